"""Packages that commands must not import, in new processes."""

import json
import tarfile

import pytest
from processes import ROOT, run_python

FIXTURE = ROOT / "tests" / "fixtures" / "run"
# Imported by none of the commands below.
NEVER = {"ctranslate2", "jax", "matplotlib", "tensorflow_datasets", "torch"}
TENSORFLOW = {"keras", "tensorflow", "tensorflow_text"}
ARROW = {"pyarrow"}
SCORES = {"sacremoses"}
# Runs a command, and prints the packages that it has imported.
RUN = """
import json, sys
from t2t_repro.__main__ import main
try:
    code = main()
except SystemExit as end:
    code = end.code
packages = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(packages), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with `export/`, and a file of one line."""
    folder = tmp_path_factory.mktemp("imports")
    with tarfile.open(FIXTURE / "export.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "line").write_text("sixty-two\n")
    return folder


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("--help", TENSORFLOW | ARROW | SCORES | {"absl", "numpy"}),
        ("decoder --help", TENSORFLOW | ARROW | SCORES),
        ("datagen --help", TENSORFLOW | ARROW | SCORES),
        ("show --hparams_set=tiny", {"sentencepiece", "tensorflow_text"}),
        (
            "evaluate --translations=line --references=line --language=de",
            TENSORFLOW,
        ),
        (
            f"decoder --output_dir={FIXTURE / 'run'} --decode_from_file=line",
            SCORES | {"grpc", "tensorflow_text"},
        ),
        ("query --export_dir=export --inputs=sixty-two", SCORES),
    ],
    ids=lambda value: value.split(" -")[0] if isinstance(value, str) else "",
)
def test_command_imports_only_what_it_needs(folder, command, unneeded):
    result = run_python("-c", RUN, *command.split(), cwd=folder)
    assert result.returncode == 0, result.stderr
    imported = {*json.loads(result.stderr.splitlines()[-1])}
    assert not imported & (NEVER | unneeded)
