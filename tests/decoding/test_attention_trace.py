"""Attention of sentences: of what is translated, and of no padding."""

import dataclasses

import keras
import numpy as np
import pytest

from t2t_repro import errors, hparam, registry
from t2t_repro.data.vocabulary_pair import Vocabularies
from t2t_repro.decoding import attention_trace, score, translate
from t2t_repro.models import building
from t2t_repro.text.sentence_piece import Bpe

LINES = ["two birds sing", "the cat sat on the mat"]
SEARCH = hparam.DecodeHParams(beam_size=2, extra_length=3, return_beams=True)


@pytest.fixture(scope="module")
def vocabulary():
    return Bpe.learn(LINES * 5, 290)


@pytest.fixture(scope="module")
def model(vocabulary):
    registry.load_definitions()
    hparams = dataclasses.replace(
        registry.build_hparams("tiny"),
        hidden_size=16,
        filter_size=32,
        num_heads=2,
    )
    keras.utils.set_random_seed(1)
    return building.build(hparams, vocabulary.size)


@pytest.fixture(scope="module")
def seen(model, vocabulary):
    tracer = attention_trace.AttentionTracer(
        model, Vocabularies.shared(vocabulary), SEARCH
    )
    return list(map(tracer.trace, LINES))


def test_outputs_are_the_best_translations(seen, model, vocabulary):
    translator = translate.Translator(
        [model], Vocabularies.shared(vocabulary), SEARCH
    )
    best = [one.texts[0] for one in translator.translate(LINES)]
    assert [one.outputs for one in seen] == best
    assert [one.inputs for one in seen] == LINES


def test_pieces_spell_the_text(seen):
    for one in seen:
        assert one.source[-1] == "</s>"
        spelt = "".join(one.source[:-1]).replace("▁", " ").strip()
        assert spelt == one.inputs


def test_weights_are_distributions_over_the_pieces(seen):
    for one in seen:
        source, target = len(one.source), len(one.target)
        shapes = {
            kind: weights.shape
            for kind, weights in one.weights._asdict().items()
        }
        assert shapes == {
            "encoder": (2, 2, source, source),
            "decoder": (2, 2, target, target),
            "cross": (2, 2, target, source),
        }
        for weights in one.weights:
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
        assert not np.triu(one.weights.decoder, 1).any(), "sees the future"


@pytest.mark.parametrize(("line", "count"), [("  ", 0), ("cat " * 200, 400)])
def test_lines_that_make_no_picture_are_refused(model, vocabulary, line, count):
    with pytest.raises(errors.UserError, match=f"1 to 127 .* got {count} in"):
        attention_trace.AttentionTracer(
            model, Vocabularies.shared(vocabulary), SEARCH
        ).trace(line)


def test_the_mean_attention_of_models_with_different_layers(models):
    """Over heads, layers and models; the export's signature has it."""
    hparams = dataclasses.replace(
        models[0].hparams, num_hidden_layers=2, num_heads=4
    )
    group = [models[0], building.build(hparams, 24)]
    inputs = np.array([[5, 9, 1], [4, 1, 0]], np.int32)
    targets = np.array([[7, 8, 6, 1], [3, 1, 0, 0]], np.int32)
    found = score.mean_attention(group, inputs, targets).numpy()
    expected = np.mean(
        [
            score.cross_attention(one, inputs, targets).numpy().mean((0, 2))
            for one in group
        ],
        axis=0,
    )
    assert found.shape == (2, 1, 4, 3)
    np.testing.assert_allclose(found[0, 0], expected[0], atol=1e-6)
    np.testing.assert_allclose(
        found[1, 0, :2, :2], expected[1, :2, :2], atol=1e-6
    )
    assert not found[1, 0, 2:].any() and not found[1, 0, :, 2:].any()
