"""A training job: options that continue those of a run, and its notes."""

import contextlib
import dataclasses
import os
import re
import sys

import pytest

from t2t_repro import registry
from t2t_repro.training import job
from t2t_repro.training.options import Options

registry.load_definitions()
BASE = registry.build_hparams("base")
KERAS = dataclasses.replace(BASE, learning_rate_schedule="cosine_decay")
MANY = 5_000_000  # pairs


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
    options = job._continue_options(
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


@pytest.mark.parametrize(
    ("hparams", "options", "pairs", "length", "note"),
    [
        (BASE, {}, MANY, 256, None),
        (BASE, {}, 20_000, 256, "suits a corpus of 20,000 pairs better than b"),
        (BASE, {}, MANY, 255, "max_length=256, .* no training pairs above"),
        (BASE, {"keep_checkpoint_max": 5}, MANY, 256, None),
        (BASE, {"keep_checkpoint_max": 4}, MANY, 256, "last 5 checkpoints.*=4"),
        (BASE, {"train_steps": 9}, MANY, 256, None),
        (KERAS, {"train_steps": BASE.train_steps}, MANY, 256, None),
        (KERAS, {"train_steps": 9}, MANY, 256, "=9 does not change .*cosine_d"),
    ],
)
def test_settings_that_fit_badly_are_noted(
    hparams, options, pairs, length, note
):
    found = job.notes_on_settings(
        "base", hparams, Options(**options), pairs, length
    )
    texts = list(found)
    assert len(texts) == (note is not None)
    assert all(re.search(note, text) for text in texts)
