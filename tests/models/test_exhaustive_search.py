"""Tests of a wide beam search with models against all possible outputs."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import hparam, registry
from t2t_repro.data import batches
from t2t_repro.decoding import search
from t2t_repro.models import building

V, WORDS = 5, (2, 3, 4)  # PAD, EOS and three words
INPUTS = np.array([[3, 4, 1], [2, 1, 0]], np.int32)
EXTRA_LENGTH, ALPHA = 2, 0.6
BEAMS = 3**4  # all hypotheses of four words can be live at once


@pytest.fixture(
    scope="module",
    params=["bytenet_tiny", "neural_gpu_tiny", "transformer_moe_tiny"],
)
def model(request, randomize):
    registry.load_definitions()
    hparams = registry.build_hparams(request.param)
    hparams = dataclasses.replace(hparams, hidden_size=8)
    model = building.build(hparams, V)
    randomize(model, matrices=1.0)
    return model


def _every_output(model, row, limit):
    """Return {ids: score} of all outputs, from one pass over given targets."""
    outputs = [
        (*words, 1)
        for length in range(limit)
        for words in itertools.product(WORDS, repeat=length)
    ]
    targets = np.zeros((len(outputs), limit), np.int32)
    for target, ids in zip(targets, outputs, strict=True):
        target[: len(ids)] = ids
    inputs = np.repeat(row[None], len(outputs), axis=0)
    logits = model(batches.one_sentence_per_row(inputs, targets))
    log_probs = tf.nn.log_softmax(logits).numpy()
    log_probs = np.take_along_axis(log_probs, targets[..., None], -1)[..., 0]
    lengths = (targets > 0).sum(1)
    totals = (log_probs * (targets > 0)).sum(1)
    scores = totals / ((5 + lengths) / 6) ** ALPHA
    return dict(zip(outputs, scores.tolist(), strict=True))


def test_wide_beam_finds_the_best_of_all_outputs(model):
    settings = hparam.DecodeHParams(
        beam_size=BEAMS,
        alpha=ALPHA,
        extra_length=EXTRA_LENGTH,
        return_beams=True,
    )
    found = search.search([model], tf.constant(INPUTS), settings)
    for row, ids, scores in zip(INPUTS, *map(np.array, found), strict=True):
        limit = int((row > 0).sum()) + EXTRA_LENGTH
        bounds = model.max_output_lengths(tf.constant([(row > 0).sum()]))
        if bounds is not None:
            limit = min(limit, int(bounds[0]))
        every = _every_output(model, row, limit)
        best = sorted(every.values(), reverse=True)[:BEAMS]
        np.testing.assert_allclose(scores[: len(best)], best, rtol=1e-4)
        outputs = [tuple(each[each > 0].tolist()) for each in ids[: len(best)]]
        assert len(set(outputs)) == len(outputs)
        np.testing.assert_allclose(
            [every[output] for output in outputs], best, rtol=1e-4
        )
