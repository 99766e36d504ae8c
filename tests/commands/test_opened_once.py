"""Commands open a run once, and look up each of its checkpoints once."""

import re
import shutil

import pytest
from stored_run import FIXTURE

# Module of a --usr_dir that prints what is read, or looked up, in a run.
PRINTING = """
import pathlib, sys
from t2t_repro.io import files
from t2t_repro.runs import checkpoint_files

def print_calls(module, name):
    function = getattr(module, name)
    def printing(path, *arguments):
        print(f"{name} {pathlib.Path(path).name}", file=sys.stderr)
        return function(path, *arguments)
    setattr(module, name, printing)

print_calls(files, "read_json")
print_calls(checkpoint_files, "list_checkpoints")
print_calls(checkpoint_files, "require")
"""
CALLS = r"^(?:read_json run\.json|list_checkpoints \w+|require ckpt-\d+)$"
OWN = "list_checkpoints averaged", "list_checkpoints checkpoints"
NAMED = ("require ckpt-300",)
CKPT = "{}/run/checkpoints/ckpt-300"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opened") / "stored"
    shutil.copytree(FIXTURE, folder)
    (folder / "usr").mkdir()
    (folder / "usr" / "printing.py").write_text(PRINTING)
    return folder


@pytest.mark.parametrize(
    ("command", "lookups"),
    [
        ("decoder --decode_from_file={}/test.en", OWN),
        (f"decoder --decode_interactive --checkpoint_path={CKPT}", NAMED),
        ("evaluate --sources={}/test.en --references={}/test.de", OWN),
        (f"exporter --format=ctranslate2 --checkpoint_path={CKPT}", NAMED),
        # It counts the steps that are done, too.
        ("report --sentence=forty-two", (*OWN, OWN[1])),
        # It looks for a newer average, too.
        ("avg_checkpoints --num_last_checkpoints=1", OWN),
        (f"avg_checkpoints --checkpoints={CKPT}", (*NAMED, OWN[0])),
    ],
)
def test_command_opens_its_run_once(forked, folder, command, lookups):
    flags = "--output_dir={}/run", "--usr_dir={}/usr"
    arguments = [text.format(folder) for text in (*command.split(), *flags)]
    result = forked(*arguments, stdin="forty-two\n")
    assert result.returncode == 0, result.stderr
    found = re.findall(CALLS, result.stderr, re.M)
    assert sorted(found) == sorted(["read_json run.json", *lookups])
