"""--help and --registry_help of every command."""

import pathlib
import re
import signal
import subprocess
import sys

import pytest

COMMANDS = {
    "avg_checkpoints": ["num_last_checkpoints", "checkpoints"],
    "datagen": ["raw_dir", "num_workers", "verify"],
    "decoder": ["decode_from_file", "checkpoint_path", "score_file"],
    "evaluate": ["split", "references", "baseline", "sources", "tokenized"],
    "exporter": ["export_dir", "decode_hparams", "format", "weights_dtype"],
    "query": ["export_dir", "server", "protocol", "inputs"],
    "report": [],
    "serve": [
        "export_dir",
        "host",
        "rest_port",
        "max_batch_bytes",
        "grace_secs",
    ],
    "show": ["vocab_size"],
    "trainer": ["train_steps", "raw_dir", "verify", "xla", "profile"],
}
SHARED = (
    "problem problem_args hparams_set hparams data_dir output_dir usr_dir "
    "registry_help"
).split()


ROOT = pathlib.Path(__file__).parent.parent.parent


def flags_in_pages(name):
    """Flags that README.md, docs/ and scripts give to a command."""
    pages = (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("scripts/**/*.sh"),
    )
    calls = rf"(?:python -m t2t_repro\.|\bt2t[ -]){name.replace('_', '[-_]')}\b"
    for page in pages:
        text = page.read_text("utf-8").replace("\\\n", " ")
        for call in re.findall(rf"{calls}([^\n|&`]*)", text):
            yield from re.findall(r"--([a-z]\w+)", call)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_is_complete(run, name):
    result = run(name, "--help")
    text = result.stdout
    named = {*COMMANDS[name], *SHARED, *flags_in_pages(name)}
    for flag in sorted(named):
        assert re.search(rf"^  --(\[no\])?{flag}:", text, re.M), flag
    assert f"t2t_repro.{name}" in text  # the example in the docstring


def test_registry_help_lists_ours_and_the_users(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import dataclasses\n"
        "from t2t_repro.registry import hparams_sets\n"
        '@hparams_sets.register("my_set", parent="base")\n'
        "def my_set(parent):\n"
        '    """Mine."""\n'
        "    return dataclasses.replace(parent, num_heads=4)\n"
    )
    result = run("show", "--registry_help", f"--usr_dir={tmp_path}")
    assert result.returncode == 0, result.stderr
    for name in (
        "wmt14_ende",
        "multi30k_enfr",
        "parallel_text",
        "big",
        "transformer",
    ):
        assert re.search(rf"^  {name} +\S", result.stdout, re.M), name
    assert re.search(r"^  my_set +Mine\.\n +\S*mine\.py$", result.stdout, re.M)
    shown = run("show", "--hparams_set=my_set", f"--t2t_usr_dir={tmp_path}")
    assert "num_heads: 8 -> 4" in shown.stdout


def test_a_reader_that_has_read_enough_is_no_error():
    """As of `| head -1`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "t2t_repro.datagen", "--registry_help"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 128 + signal.SIGPIPE
