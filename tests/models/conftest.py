"""Fixtures: small models with random weights."""

import dataclasses
import functools

import pytest
from transformer_variants import VARIANTS

from t2t_repro import registry
from t2t_repro.models import building


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
    return functools.cache(lambda name: build_transformer(VARIANTS[name]))


@pytest.fixture(scope="package")
def build_small(randomize):
    """A function of a set, changes, and a vocabulary's size.

    It returns a model with random weights, which has 8 channels unless
    `changes` say otherwise.
    """

    def build(hparams_set, changes, vocab_size=12):
        hparams = dataclasses.replace(
            registry.build_hparams(hparams_set), **{"hidden_size": 8} | changes
        )
        model = building.build(hparams, vocab_size)
        randomize(model)
        return model

    return build
