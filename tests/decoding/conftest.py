"""Fixtures: tiny models and translators for tests of searches."""

import dataclasses
import functools

import keras
import pytest
import tensorflow as tf

from t2t_repro import hparam
from t2t_repro.decoding import decode_loop, search, translate
from t2t_repro.models import building


@pytest.fixture(scope="package")
def models(tiny_hparams):
    """Two tiny models of the same shape and different weights."""
    hparams = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
    keras.utils.set_random_seed(1)
    return [building.build(hparams, 24) for _ in range(2)]


@pytest.fixture(scope="package")
def model(tiny_hparams, vocabulary):
    hparams = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
    keras.utils.set_random_seed(1)
    return building.build(hparams, vocabulary.size)


@pytest.fixture(scope="package")
def translator_of(model, vocabularies):
    """A function of decode hparams: the model's translator, cached."""

    @functools.cache
    def make(**settings):
        settings = {"beam_size": 2, "extra_length": 4} | settings
        hparams = hparam.DecodeHParams(**settings)
        return translate.BatchTranslator([model], vocabularies, hparams)

    return make


@pytest.fixture
def echo(monkeypatch, vocabularies):
    """A function of decode hparams: a translator that returns its inputs.

    Beam w's score is the size of its batch, rows times length times
    beams, minus w.
    """

    def return_inputs(models, inputs, hparams, given, **settings):
        beams = hparams.beam_size
        shape = tf.shape(inputs)
        sizes = tf.fill((shape[0], 1), tf.size(inputs) * beams)
        num_outputs = hparams.num_outputs
        return decode_loop.Hypotheses(
            tf.tile(inputs[:, None], (1, num_outputs, 1)),
            tf.cast(sizes - tf.range(num_outputs), tf.float32),
        )

    monkeypatch.setattr(search, "search", return_inputs)
    return lambda **settings: translate.BatchTranslator(
        [], vocabularies, hparam.DecodeHParams(**settings)
    )
