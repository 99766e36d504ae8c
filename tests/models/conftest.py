"""Fixtures: Transformers with random weights."""

import dataclasses
import functools
import pathlib
import runpy

import pytest

from t2t_repro.models import building

VARIANTS = runpy.run_path(str(pathlib.Path(__file__).with_name("variants.py")))


@pytest.fixture(scope="package")
def build_transformer(tiny_hparams, randomize, vocab_size):
    """A function of changes and a dtype policy: a model with random weights.

    It has one layer unless `changes` say otherwise.
    """

    def build(changes, dtype="float32"):
        hparams = dataclasses.replace(
            tiny_hparams, **{"num_hidden_layers": 1} | changes
        )
        model = building.build(hparams, vocab_size, dtype)
        randomize(model)
        return model

    return build


@pytest.fixture(scope="package")
def transformer_of(build_transformer):
    """A function of a variant's name: its model, cached."""
    return functools.cache(
        lambda name: build_transformer(VARIANTS["VARIANTS"][name])
    )
