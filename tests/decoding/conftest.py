"""Models that searches are tried on, and Translators of lines."""

import dataclasses

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
    """One of text."""
    hparams = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
    keras.utils.set_random_seed(1)
    return building.build(hparams, vocabulary.size)


@pytest.fixture(scope="package")
def translator_of(model, vocabularies):
    """A function of decode hparams: a Translator of the model."""

    def make(**settings):
        settings = {"beam_size": 2, "extra_length": 4} | settings
        hparams = hparam.DecodeHParams(**settings)
        return translate.Translator([model], vocabularies, hparams)

    return make


@pytest.fixture
def echo(monkeypatch, vocabularies):
    """Makes Translators whose outputs are the inputs.

    Beam w's score is the slots of its batch, source times beams, minus w.
    """

    def search_nothing(models, inputs, hparams, prefixes, **how):
        beams = hparams.beam_size
        shape = tf.shape(inputs)
        slots = tf.fill((shape[0], 1), tf.size(inputs) * beams)
        wanted = hparams.num_outputs
        return decode_loop.Hypotheses(
            tf.tile(inputs[:, None], (1, wanted, 1)),
            tf.cast(slots - tf.range(wanted), tf.float32),
        )

    monkeypatch.setattr(search, "search", search_nothing)
    return lambda **settings: translate.Translator(
        [], vocabularies, hparam.DecodeHParams(**settings)
    )
