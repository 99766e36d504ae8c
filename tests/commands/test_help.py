"""t2t, and --help and --registry_help of every command."""

import dataclasses
import functools
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from forked import ok
from processes import ROOT, run_program, run_python

from t2t_repro import __main__ as t2t
from t2t_repro import __version__, hparam, problem, registry

# Commands whose help lists the settings of hparams or of problems.
LISTING = ("datagen", "importer", "show", "trainer")
# Runs the command line without the time that TensorFlow takes.
RUN = """
import sys
from t2t_repro.__main__ import main
try:
    code = main()
except SystemExit as end:
    code = end.code
heavy = {"tensorflow", "keras", "tensorflow_text"} & set(sys.modules)
sys.exit(f"imports {heavy}" if heavy else code)
"""


@functools.cache
def t2t_command(*arguments):
    """Run t2t in a process of its own; TensorFlow is not to be imported."""
    return run_python("-c", RUN, *arguments)


def flags_in_pages(name):
    """Yield the flags that README.md, docs/ and scripts give to a command."""
    pages = (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("scripts/*.md"),
        *ROOT.glob("scripts/**/*.sh"),
    )
    calls = rf"(?:python -m t2t_repro\.|\bt2t[ -]){name.replace('_', '[-_]')}\b"
    for page in pages:
        text = page.read_text("utf-8").replace("\\\n", " ")
        for call in re.findall(rf"{calls}([^\n|&`]*)", text):
            yield from re.findall(r"--([a-z]\w+)", call)


def settings_of(flag):
    """Return the names that a flag of settings takes."""
    classes = {
        "decode_hparams": [hparam.DecodeHParams],
        "problem_args": [
            problem.Problem,
            *(entry.value for entry in registry.problems),
        ],
        "hparams": [model.hparams for model in registry.models],
    }
    return {f.name for cls in classes[flag] for f in dataclasses.fields(cls)}


@pytest.mark.parametrize("name", sorted(t2t.COMMANDS))
def test_help_names_every_flag_and_setting_without_tensorflow(name):
    text = ok(t2t_command(name, "--help"))
    shown = re.findall(r"^  --(?:\[no\])?(\w+)", text, re.M)
    aliases = {"sheet_file", "t2t_usr_dir"}
    assert {*flags_in_pages(name)} - aliases <= {*shown}
    assert "logtostderr" not in shown
    settings = set(re.findall(r"^  (\w+)", text, re.M))
    for flag in {"decode_hparams", "problem_args", "hparams"} & {*shown}:
        is_listed = settings_of(flag) <= settings
        assert is_listed == (f"Names that --{flag} takes" in text)
        compared = flag != "decode_hparams" and name not in LISTING
        assert is_listed != compared
    assert f"t2t {name}" in text  # the example in the docstring
    assert max(map(len, text.splitlines())) <= 80


def test_every_setting_has_a_help_text():
    text = t2t_command("trainer", "--help").stdout
    text += t2t_command("decoder", "--help").stdout
    # A label, and beside or below it a sentence.
    assert not re.findall(r"^  (?:--)?\w+\S* *\n  ?\S", text, re.M)
    assert not re.findall(r"^  \S+ +\(", text, re.M)


def test_help_shows_settings_of_a_users_model(run):
    # A model imports Keras, so this is not t2t_command().
    text = ok(run("show", "-h", f"--usr_dir={ROOT / 'tests' / 'toys'}"))
    assert "takes for the model toy_gru:\n  attention_size" in text


def test_t2t_help_lists_commands():
    text = ok(t2t_command("--help"))
    for name in t2t.COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].+\.$", text, re.M), name
    assert max(map(len, text.splitlines())) <= 80
    assert t2t_command().stderr == text
    assert t2t_command("--version").stdout == f"{__version__}\n"
    assert t2t_command("-V").stdout == f"{__version__}\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("help", "eval"), ("evaluate", "--help")),
        (("runs", "/none"), ("show", "--runs_dir", "/none")),
    ],
)
def test_words_that_people_type_are_commands(typed, meant):
    found, expected = t2t_command(*typed), t2t_command(*meant)
    assert found.stdout == expected.stdout
    assert found.stderr == expected.stderr
    assert "Unknown" not in found.stderr


COMPLETE = """
eval "$(t2t completion)"
compopt() { :; }
complete_line() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _t2t
  echo "${COMPREPLY[@]}"
}
complete_line t2t eva
complete_line t2t train --hparams_
complete_line t2t train --hparams_set = big
complete_line t2t datagen --problem = wsj
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_shell_completes_commands_flags_and_names(tmp_path):
    t2t_script = tmp_path / "t2t"
    t2t_script.write_text(f'#!/bin/sh\n"{sys.executable}" -m t2t_repro "$@"\n')
    t2t_script.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    result = run_program("bash", "-c", COMPLETE, env={"PATH": path})
    assert ok(result).splitlines() == [
        "evaluate eval",
        "--hparams_set=",
        "big big_enfr",
        "wsj_parsing wsj_parsing_semi",
    ]


def test_choices_of_flags_are_those_of_the_libraries():
    """Commands spell them out, since the libraries import TensorFlow."""
    from t2t_repro.decoding import translation
    from t2t_repro.serving import client, exporting, served_model

    for name, choices in (
        ("exporter", exporting.FORMATS),
        ("exporter", served_model.WEIGHTS_DTYPES),
        ("query", client.PROTOCOLS),
        ("cli/decoder_flags", translation.OUTPUT_FORMATS),
    ):
        source = (ROOT / "t2t_repro" / f"{name}.py").read_text("utf-8")
        listed = ", ".join(f'"{choice}"' for choice in choices)
        assert f"[{listed}]" in source or f"({listed})" in source


def test_closed_pipe_is_not_an_error():
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


# The initialization of an extension and the conversion of a graph, interrupted,
# raise errors of their own.
@pytest.mark.parametrize("error", ["", "TypeError('Expected int32')"])
def test_control_c_ends_a_command_without_traceback(error):
    script = f"""
import signal
from t2t_repro.cli import command_line
def main():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise {error}
command_line.run(main)
"""
    result = run_python("-c", script)
    assert (result.returncode, result.stderr) == (130, "Interrupted.\n")
