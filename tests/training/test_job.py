"""A training job: options that continue those of a run."""

import contextlib
import os
import sys

import pytest

from t2t_repro.training import job
from t2t_repro.training.options import Options


@pytest.mark.parametrize(
    ("stored", "given", "expected"),
    [
        ({"keep_best_checkpoints": 2}, None, 2),
        ({"keep_best_checkpoints": 2}, 0, 0),
        ({"keep_best_checkpoints": 2}, 3, 3),
        ({"keep_best_checkpoints": 0}, None, None),
        ({}, None, None),
    ],
)
def test_resumed_run_keeps_its_best_checkpoints_unless_told(
    capsys, stored, given, expected
):
    options = job._continue_best_checkpoints(
        Options(keep_best_checkpoints=given), stored
    )
    assert options.keep_best_checkpoints == expected
    printed = capsys.readouterr().out
    continues = given is None and expected is not None
    assert ("continues with --keep_best_checkpoints=2" in printed) is continues


def test_training_goes_on_when_nobody_reads_its_output(monkeypatch):
    def open_folder(*_):
        print("a message", flush=True)
        print("another", file=sys.stderr, flush=True)
        raise ZeroDivisionError  # reached

    monkeypatch.setattr(job, "_open_folder", open_folder)
    reader, writer = os.pipe()
    os.close(reader)
    with (
        open(writer, "w", encoding="utf-8") as pipe,
        contextlib.redirect_stdout(pipe),
        contextlib.redirect_stderr(pipe),
        pytest.raises(ZeroDivisionError),
    ):
        job.train(None, None, "")
