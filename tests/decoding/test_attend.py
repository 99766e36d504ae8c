"""Attention of sentences: of what is translated, and of no padding."""

import dataclasses

import keras
import numpy as np
import pytest

from t2t_repro import errors, hparam, registry
from t2t_repro.decoding import attend, translate
from t2t_repro.models import transformer
from t2t_repro.text import subwords

LINES = ["two birds sing", "the cat sat on the mat"]
SEARCH = hparam.DecodeHParams(beam_size=2, extra_length=3, return_beams=True)


@pytest.fixture(scope="module")
def vocabulary():
    return subwords.learn(LINES * 5, 290)


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
    return transformer.build(hparams, vocabulary.size)


@pytest.fixture(scope="module")
def seen(model, vocabulary):
    observer = attend.Observer(model, vocabulary, SEARCH)
    return list(map(observer.look, LINES))


def test_outputs_are_the_best_translations(seen, model, vocabulary):
    translator = translate.Translator([model], vocabulary, SEARCH)
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
        shapes = [weights.shape for weights in one.weights]
        assert shapes == [
            (2, 2, source, source),
            (2, 2, target, target),
            (2, 2, target, source),
        ]
        for weights in one.weights:
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
        assert not np.triu(one.weights.decoder, 1).any(), "sees the future"


@pytest.mark.parametrize(("line", "count"), [("  ", 0), ("cat " * 200, 400)])
def test_lines_that_make_no_picture_are_refused(model, vocabulary, line, count):
    with pytest.raises(errors.UserError, match=f"1 to 127 .* got {count} in"):
        attend.Observer(model, vocabulary, SEARCH).look(line)
