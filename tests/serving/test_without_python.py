"""scripts/serving/translate.c: the exported model in a C program."""

import shutil
import subprocess
import sys

import pytest
from processes import ROOT

FOLDER = ROOT / "scripts" / "serving"
SECONDS = 300  # timeout
LINES = ["two birds sing", "", "🐶 \0 sat", "a dog sat on the mat"] * 10

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("make") and shutil.which("cc")),
        reason="no make, or no C compiler",
    ),
]


def test_c_program_translates_as_python(exported, local, tmp_path):
    def make(export, *settings):
        return subprocess.run(
            [
                *("make", "-sC", FOLDER, f"BUILD={tmp_path}", "run"),
                *(f"PYTHON={sys.executable}", f"EXPORT={export}", *settings),
            ],
            input="\n".join(LINES).encode(),
            capture_output=True,
            timeout=SECONDS,
        )

    result = make(exported / "2")
    assert result.returncode == 0, result.stderr
    expected = local("serving_default", inputs=LINES)["outputs"]
    assert result.stdout.split(b"\n") == [*expected.tolist(), b""]
    result = make(tmp_path)
    assert result.returncode
    assert f"translate: {tmp_path}" in result.stderr.decode()
    assert b"Could not find SavedModel" in result.stderr
    result = make(exported / "2", "OPERATIONS=none.so")
    assert result.returncode and b"none.so" in result.stderr
