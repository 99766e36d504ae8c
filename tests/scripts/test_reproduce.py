"""Tests of scripts/reproduce/*.sh with a python that prints its arguments."""

import os
import re

import pytest
from processes import ROOT, run_program

from scripts.paper import claims


@pytest.fixture
def reproduce(tmp_path):
    """Return a function: script, arguments -> process, its python commands."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "python $*"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])

    def run(name, *arguments):
        script = ROOT / "scripts" / "reproduce" / f"{name}.sh"
        finished = run_program(script, *arguments, env={"PATH": path})
        return finished, re.findall(r"^python -m (.*)", finished.stdout, re.M)

    return run


@pytest.mark.parametrize(
    ("call", "first"),
    [
        (
            "wmt14 enfr big F --raw_dir=R",
            "trainer --output_dir=F/wmt14_enfr/big_enfr --problem=wmt14_enfr "
            "--hparams_set=big_enfr --mixed_precision=float32 "
            "--data_dir=F/data --raw_dir=R",
        ),
        (
            "multi30k ende F --raw_dir=R",
            "trainer --output_dir=F/train --problem=multi30k_ende "
            "--hparams_set=small --eval_every=500 --data_dir=F/data "
            "--raw_dir=R",
        ),
    ],
)
def test_script_runs_its_steps_with_the_papers_settings(reproduce, call, first):
    finished, commands = reproduce(*call.split())
    assert finished.returncode == 0
    assert commands[0] == f"t2t_repro {first}"
    programs = "trainer avg_checkpoints evaluate exporter report".split()
    assert [command.split()[1] for command in commands] == programs


@pytest.mark.parametrize(
    ("call", "usage"),
    [
        ("wmt14 ende huge F", "wmt14.sh ende|enfr base|big FOLDER"),
        ("table4 wsj_parsing T", "TREEBANK FOLDER"),
        ("claims", "claims.sh FOLDER"),
    ],
)
def test_wrong_arguments_are_an_error(reproduce, call, usage):
    finished, commands = reproduce(*call.split())
    assert finished.returncode == 1
    assert not commands
    assert usage in finished.stderr


def test_claims_trains_the_rows_that_the_list_names(reproduce, tmp_path):
    finished, commands = reproduce("claims", str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    _, others = reproduce("claims", str(tmp_path), "small_differences")
    rows = {
        row
        for command in [*commands, *others]
        for names in re.findall(r" --rows=(\S+)", command)
        for row in names.split(",")
    }
    _, experiments = claims.read_list()
    in_folders = {
        name
        for each in experiments
        if each.results in ("table3", "variants", "overfitting")
        for claim in each.claims
        if claim.quantity != "correlation"
        for name in (claim.row, claim.base)
    }
    assert in_folders <= rows
    figures = {}
    for command in commands:
        for kind in re.findall(r"--figures=(\w+)", command):
            figures.setdefault(kind, []).append(command)
    trainings = sum("table3_variations" in command for command in commands)
    assert {kind: len(found) for kind, found in figures.items()} == {
        "greedy": trainings,
        "heads": 1,
        "search": 1,
    }
    ours = figures["heads"] + figures["search"]
    assert all(command.count("base-seed") == 6 for command in ours)
