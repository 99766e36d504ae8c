"""Notes about settings that fit badly together."""

import dataclasses
import re

import pytest

from t2t_repro import registry
from t2t_repro.training import job
from t2t_repro.training.options import Options

registry.load_definitions()
BASE = registry.build_hparams("base")
KERAS = dataclasses.replace(BASE, learning_rate_schedule="cosine_decay")
STEPS = BASE.train_steps


@pytest.mark.parametrize(
    ("hparams", "options", "pairs", "length", "note"),
    [
        (BASE, {}, 5_000_000, 256, None),
        (BASE, {}, 20_000, 256, "suits a corpus of 20,000 pairs better than b"),
        (
            BASE,
            {},
            5_000_000,
            255,
            "max_length=256, .* no training pairs above",
        ),
        (BASE, {"keep_checkpoint_max": 5}, 5_000_000, 256, None),
        (
            BASE,
            {"keep_checkpoint_max": 4},
            5_000_000,
            256,
            "last 5 checkpoints .*, but --keep_checkpoint_max=4 keeps 4",
        ),
        (BASE, {"train_steps": 9}, 5_000_000, 256, None),
        (KERAS, {"train_steps": STEPS}, 5_000_000, 256, None),
        (KERAS, {}, 5_000_000, 256, None),
        (
            KERAS,
            {"train_steps": 9},
            5_000_000,
            256,
            "train_steps=9 does not change the schedule cosine_decay",
        ),
    ],
)
def test_settings_that_fit_badly_are_noted(
    hparams, options, pairs, length, note
):
    found = list(
        job.notes_on_settings(
            "base", hparams, Options(**options), pairs, length
        )
    )
    assert len(found) == (note is not None)
    assert all(re.search(note, each) for each in found)
