"""Packages that commands must not import, in new processes."""

import json

import pytest
from processes import run_python
from stored_run import RUN

# Imported by none of the commands below.
NEVER = {"ctranslate2", "jax", "matplotlib", "tensorflow_datasets", "torch"}
TENSORFLOW = {"keras", "tensorflow", "tensorflow_text"}
ARROW = {"pyarrow"}
SCORES = {"sacremoses"}
# Runs a command, and prints the packages that it has imported.
PROGRAM = """
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


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("--help", TENSORFLOW | ARROW | SCORES | {"absl", "numpy"}),
        ("decoder --help", TENSORFLOW | ARROW | SCORES),
        ("show --registry_help", TENSORFLOW | SCORES),
        (
            "evaluate --translations=line --references=line --language=de",
            TENSORFLOW,
        ),
        (
            f"decoder --output_dir={RUN} --decode_from_file=line",
            SCORES | {"grpc", "tensorflow_text"},
        ),
        ("query --export_dir={} --inputs=sixty-two", SCORES),
    ],
    ids=lambda value: value.split(" -")[0] if isinstance(value, str) else "",
)
def test_command_imports_only_what_it_needs(
    stored_export, tmp_path, command, unneeded
):
    (tmp_path / "line").write_text("sixty-two\n")
    arguments = command.format(stored_export).split()
    result = run_python("-c", PROGRAM, *arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    imported = {*json.loads(result.stderr.splitlines()[-1])}
    assert not imported & (NEVER | unneeded)
