"""scripts/reproduce/*.sh: which commands, with a python that echoes."""

import os
import pathlib
import subprocess

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "scripts" / "reproduce"


@pytest.fixture
def reproduce(tmp_path):
    """A function that runs a script; what its commands were called with."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "python $*"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])

    def run(name, *arguments):
        done = subprocess.run(
            [FOLDER / f"{name}.sh", *arguments],
            env=os.environ | {"PATH": path},
            capture_output=True,
            encoding="utf-8",
        )
        lines = done.stdout.splitlines()
        called = [line for line in lines if line.startswith("python")]
        return done, called

    return run


@pytest.mark.parametrize(
    ("pair", "model", "hparams_set"),
    [
        ("ende", "base", "base"),
        ("ende", "big", "big"),
        ("enfr", "base", "base"),
        ("enfr", "big", "big_enfr"),
    ],
)
def test_the_road_with_the_papers_settings(reproduce, pair, model, hparams_set):
    done, called = reproduce(f"wmt14_{pair}", model, "F", "--raw_dir=R")
    assert done.returncode == 0
    run = f"F/wmt14_{pair}/{hparams_set}"
    assert called == [
        f"python -m t2t_repro.trainer --problem=wmt14_{pair} "
        f"--hparams_set={hparams_set} --mixed_precision=float32 "
        f"--data_dir=F/data --output_dir={run} --raw_dir=R",
        f"python -m t2t_repro.avg_checkpoints --output_dir={run}",
        f"python -m t2t_repro.evaluate --output_dir={run} --split=test",
        f"python -m t2t_repro.exporter --output_dir={run} "
        f"--export_dir={run}/export",
        f"python -m t2t_repro.report --output_dir={run}",
    ]


@pytest.mark.parametrize("pair", ["ende", "enfr"])
@pytest.mark.parametrize("arguments", [(), ("huge", "F")])
def test_a_model_that_is_not_the_papers(reproduce, pair, arguments):
    done, called = reproduce(f"wmt14_{pair}", *arguments)
    assert done.returncode == 1
    assert not called
    assert f"wmt14_{pair}.sh base|big FOLDER" in done.stderr


def test_the_parser_in_the_papers_precision(reproduce):
    problem = "wsj_parsing_semi"
    done, called = reproduce("table4", problem, "T", "F", "--num_gpus=1")
    assert done.returncode == 0
    assert called[0] == (
        f"python -m t2t_repro.trainer --problem={problem} "
        "--hparams_set=parsing --mixed_precision=float32 --raw_dir=T "
        f"--data_dir=F/data --output_dir=F/{problem} --num_gpus=1"
    )
    assert called[-1].endswith(f"scripts.paper.table4_parsing F/{problem}")
    done, called = reproduce("table4", problem, "T")
    assert done.returncode == 1
    assert not called
    assert "TREEBANK FOLDER" in done.stderr


@pytest.mark.parametrize("pair", ["ende", "enfr"])
def test_multi30k_in_half_an_hour(reproduce, pair):
    done, called = reproduce("multi30k", pair, "F", "--raw_dir=R")
    assert done.returncode == 0
    assert f"--problem=multi30k_{pair} --hparams_set=multi30k_tiny" in called[0]
    assert called[0].endswith(
        "--data_dir=F/data --output_dir=F/train --raw_dir=R"
    )
    assert [line.split()[2] for line in called] == [
        f"t2t_repro.{command}"
        for command in (
            "trainer",
            "avg_checkpoints",
            "evaluate",
            "exporter",
            "report",
        )
    ]


@pytest.mark.parametrize("table", ["table2", "table3", "positions"])
def test_tables_in_small(reproduce, table):
    done, (called,) = reproduce("tables_multi30k", table, "F", "--seed=2")
    assert done.returncode == 0
    assert f" -m scripts.paper.{table}" in called
    assert " --problem=multi30k_ende " in called
    assert called.endswith(f"--data_dir=F/data --output_dir=F/{table} --seed=2")
    assert ("max_length=16," in called) == (table == "positions")
    assert ("num_averaged_checkpoints=5" in called) == (table == "table2")


@pytest.mark.parametrize("arguments", [(), ("table3",), ("table1", "F")])
def test_tables_that_are_not_in_small(reproduce, arguments):
    done, called = reproduce("tables_multi30k", *arguments)
    assert done.returncode == 1
    assert not called
    assert "table2|table3|positions FOLDER" in done.stderr
