"""Tests of scripts/reproduce/*.sh with a python that prints its arguments."""

import os
import pathlib
import re
import subprocess

import pytest

from scripts.paper import claims

FOLDER = pathlib.Path(__file__).parents[2] / "scripts" / "reproduce"


@pytest.fixture
def reproduce(tmp_path):
    """Return a function: script, arguments -> process, its python commands."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "python $*"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])

    def run(name, *arguments):
        finished = subprocess.run(
            [FOLDER / f"{name}.sh", *arguments],
            env=os.environ | {"PATH": path},
            capture_output=True,
            encoding="utf-8",
        )
        lines = finished.stdout.splitlines()
        commands = [line for line in lines if line.startswith("python")]
        return finished, commands

    return run


@pytest.mark.parametrize(
    ("pair", "model", "hparams_set"),
    [("ende", "base", "base"), ("enfr", "big", "big_enfr")],
)
def test_wmt14_runs_all_steps_with_the_papers_settings(
    reproduce, pair, model, hparams_set
):
    finished, commands = reproduce("wmt14", pair, model, "F", "--raw_dir=R")
    assert finished.returncode == 0
    run = f"F/wmt14_{pair}/{hparams_set}"
    assert commands == [
        f"python -m t2t_repro trainer --output_dir={run} "
        f"--problem=wmt14_{pair} --hparams_set={hparams_set} "
        "--mixed_precision=float32 --data_dir=F/data --raw_dir=R",
        f"python -m t2t_repro avg_checkpoints --output_dir={run}",
        f"python -m t2t_repro evaluate --output_dir={run} --split=test",
        f"python -m t2t_repro exporter --output_dir={run} "
        f"--export_dir={run}/export",
        f"python -m t2t_repro report --output_dir={run}",
    ]


@pytest.mark.parametrize(
    ("script", "arguments", "usage"),
    [
        ("wmt14", ("ende", "huge", "F"), "wmt14.sh ende|enfr base|big FOLDER"),
        ("wmt14", ("enfr", "big"), "wmt14.sh ende|enfr base|big FOLDER"),
        ("table4", ("wsj_parsing", "T"), "TREEBANK FOLDER"),
        ("tables_multi30k", ("table3",), "table2|table3 FOLDER"),
        ("tables_multi30k", ("table1", "F"), "table2|table3 FOLDER"),
        ("claims", (), "claims.sh FOLDER"),
    ],
)
def test_wrong_arguments_are_an_error(reproduce, script, arguments, usage):
    finished, commands = reproduce(script, *arguments)
    assert finished.returncode == 1
    assert not commands
    assert usage in finished.stderr


def test_table4_trains_in_single_precision_and_prints_the_row(reproduce):
    problem = "wsj_parsing_semi"
    finished, commands = reproduce("table4", problem, "T", "F", "--num_gpus=1")
    assert finished.returncode == 0
    assert commands[0] == (
        f"python -m t2t_repro trainer --output_dir=F/{problem} "
        f"--problem={problem} --hparams_set=parsing "
        "--mixed_precision=float32 --raw_dir=T --data_dir=F/data --num_gpus=1"
    )
    assert commands[-1].endswith(f"scripts.paper.table4_parsing F/{problem}")


@pytest.mark.parametrize("pair", ["ende", "enfr"])
def test_multi30k_runs_all_steps_with_small(reproduce, pair):
    finished, commands = reproduce("multi30k", pair, "F", "--raw_dir=R")
    assert finished.returncode == 0
    assert f"--problem=multi30k_{pair} --hparams_set=small " in commands[0]
    assert commands[0].endswith("--data_dir=F/data --raw_dir=R")
    assert [line.split()[3] for line in commands] == [
        "trainer",
        "avg_checkpoints",
        "evaluate",
        "exporter",
        "report",
    ]


@pytest.mark.parametrize("table", ["table2", "table3"])
def test_tables_multi30k_runs_the_program_of_the_table(reproduce, table):
    finished, (command,) = reproduce("tables_multi30k", table, "F", "--seed=2")
    assert finished.returncode == 0
    program, settings = {
        "table2": (
            "t2t_repro sweep",
            f"--config={FOLDER}/table2_multi30k.yaml",
        ),
        "table3": ("scripts.paper.table3_variations", "--divide_widths=8"),
    }[table]
    assert f" -m {program} " in command and f" {settings} " in command
    assert command.endswith(
        f"--data_dir=F/data --output_dir=F/{table} --seed=2"
    )


def test_claims_trains_the_rows_that_the_list_names(reproduce, tmp_path):
    finished, commands = reproduce("claims", str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    rows = {
        row
        for command in commands
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
    figures = [c for c in commands if " --figures=" in c]
    assert [re.findall(r"--figures=(\w+)", c)[0] for c in figures] == [
        "heads",
        "search",
    ]
    assert all(c.count("base-seed") == 6 for c in figures)
