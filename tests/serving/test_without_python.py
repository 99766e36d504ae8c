"""scripts/serving/translate.c: the exported model in a C program."""

import pathlib
import shutil
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "scripts" / "serving"
SECONDS = 300  # timeout
LINES = ["two birds sing", "", "🐶 \0 sat", "a dog sat on the mat"] * 10

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("make") and shutil.which("cc")),
        reason="no make, or no C compiler",
    ),
]


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Return a function of settings of the Makefile that runs make."""
    build = tmp_path_factory.mktemp("build")

    def make(*settings, stdin=b""):
        return subprocess.run(
            [
                *("make", "-sC", FOLDER, f"BUILD={build}"),
                *(f"PYTHON={sys.executable}", *settings),
            ],
            input=stdin,
            capture_output=True,
            timeout=SECONDS,
        )

    return make


def test_c_program_translates_as_python(make, exported, local):
    result = make(
        "run", f"EXPORT={exported / '2'}", stdin="\n".join(LINES).encode()
    )
    assert result.returncode == 0, result.stderr
    expected = local("serving_default", inputs=LINES)["outputs"]
    assert result.stdout.split(b"\n") == [*expected.tolist(), b""]


def test_c_program_reports_missing_model_and_library(make, exported, tmp_path):
    for settings, words in (
        ([f"EXPORT={tmp_path}"], "Could not find SavedModel"),
        ([f"EXPORT={exported / '2'}", "OPERATIONS=none.so"], "none.so"),
    ):
        result = make("run", *settings)
        assert result.returncode
        assert f"translate: {tmp_path if 'Could' in words else ''}" in (
            result.stderr.decode()
        )
        assert words in result.stderr.decode()
