"""Tests of attention traces: texts, pieces and weights of sentences."""

import dataclasses

import keras
import numpy as np
import pytest

from t2t_repro.decoding import score, translate
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models import building

LINES = ["two birds sing", "the cat sat on the mat"]


@pytest.fixture(scope="module")
def translator(translator_of):
    return translator_of(return_beams=True)


def test_trace_has_best_translation_and_distributions_over_pieces(translator):
    for line, best in zip(LINES, translator.translate(LINES), strict=True):
        trace = translator.attention(line)
        assert (trace.inputs, trace.outputs) == (line, best.text)
        *pieces, end = trace.source
        assert ("".join(pieces), end) == (f"▁{line.replace(' ', '▁')}", "</s>")
        source, target = len(trace.source), len(trace.target)
        shapes = {k: v.shape for k, v in trace.weights._asdict().items()}
        assert shapes == {
            "encoder": (1, 2, source, source),
            "decoder": (1, 2, target, target),
            "cross": (1, 2, target, source),
        }
        for weights in trace.weights:
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
        assert not np.triu(trace.weights.decoder, 1).any(), "sees the future"


def test_trace_of_an_ensemble_has_its_translation(model, vocabularies):
    keras.utils.set_random_seed(2)
    members = [model, building.build(model.hparams, vocabularies.target.size)]
    hparams = DecodeHParams(beam_size=2, extra_length=4)
    ensemble = translate.BatchTranslator(members, vocabularies, hparams)
    outputs = [ensemble.attention(line).outputs for line in LINES]
    assert outputs == [each.text for each in ensemble.translate(LINES)]


def test_mean_attention_of_models_with_different_numbers_of_layers(models):
    hparams = dataclasses.replace(
        models[0].hparams, num_hidden_layers=2, num_heads=4
    )
    group = [models[0], building.build(hparams, 24)]
    inputs = np.array([[5, 9, 1], [4, 1, 0]], np.int32)
    targets = np.array([[7, 8, 6, 1], [3, 1, 0, 0]], np.int32)
    mean = score.attention_of_models(group, inputs, targets).numpy()[:, :, 0]
    expected = np.mean(
        [
            score.cross_attention(member, inputs, targets).numpy().mean((0, 2))
            for member in group
        ],
        axis=0,
    )
    assert mean.shape == (2, 1, 4, 3)
    np.testing.assert_allclose(mean[0, 0], expected[0], atol=1e-6)
    np.testing.assert_allclose(
        mean[1, 0, :2, :2], expected[1, :2, :2], atol=1e-6
    )
    assert not mean[1, 0, 2:].any() and not mean[1, 0, :, 2:].any()
