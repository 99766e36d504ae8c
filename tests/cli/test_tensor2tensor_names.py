"""Command lines and names of tensor2tensor, explained."""

import pathlib
import re
import shlex

import pytest
import yaml

from t2t_repro import errors, registry
from t2t_repro.cli import command_line
from t2t_repro.problem import build_problem
from t2t_repro.training import schedules

FILE = pathlib.Path(__file__).with_name("tensor2tensor_lines.yml")
CASES = yaml.safe_load(FILE.read_text("utf-8"))
TRAINER = {"problem", "hparams_set", "hparams", "data_dir", "output_dir"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["line"][:12])
def test_command_line_is_explained_once_with_the_line_to_type(case):
    command, *arguments = shlex.split(case["line"])
    known = TRAINER if command == "trainer" else ()
    text = command_line.explain_tensor2tensor(command, arguments, known)
    for reason in case["reasons"]:
        assert reason in text
    typed = text.partition("Type instead:")[2].replace("\\\n", "")
    assert shlex.split(typed) == shlex.split(case["instead"])


@pytest.mark.parametrize(
    "line", ["--problm=x", "--num_heads=4", "--noverify", "--output_dir a"]
)
def test_other_command_lines_are_not_explained(line):
    known = {*TRAINER, "verify"}
    explain = command_line.explain_tensor2tensor
    assert explain("trainer", line.split(), known) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("translate_ende_wmt32k", "'wmt14_ende'?"),
        ("translate_ende_wmt_bpe32k", "'wmt14_ende'?"),
        ("translate_enfr_wmt32k_packed_rev", "'wmt14_enfr_rev'?"),
        ("translate_enzh_wmt32k", "'tfds_translate' or 'parallel_text'?"),
        ("parsing_english_ptb16k", "'wsj_parsing'?"),
    ],
)
def test_problem_of_tensor2tensor_suggests_ours(name, expected):
    with pytest.raises(errors.UserError, match=re.escape(expected)):
        build_problem(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("learning_rate_schedule=exp_decay", "mean exponential_decay?"),
        ("learning_rate_schedule=constant*legacy", "in place of tensor2tensor"),
        ("batch_size=3", "mean batch_tokens? Note: batch_tokens counts"),
    ],
)
def test_hparam_of_tensor2tensor_suggests_ours(name, expected):
    with pytest.raises(errors.UserError, match=re.escape(expected)):
        schedules.build(registry.build_hparams("base").override(name))
