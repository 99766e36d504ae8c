"""What a search must not depend on: blocks, XLA, order, padding, the cache."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import hparam
from t2t_repro.decoding import (
    beam_search,
    constraints,
    loop,
    score,
    search,
)
from t2t_repro.text import subwords

V = 24  # of `models`


def ids(rows):
    return tf.constant(rows, tf.int32)


def many_inputs():
    """12 sentences of 4 to 8 subwords."""
    random = np.random.default_rng(0)
    rows = np.zeros((12, 8), np.int32)
    for i, row in enumerate(rows):
        words = random.integers(2, V, 3 + i % 5)
        row[: len(words) + 1] = [*words, subwords.EOS]
    return rows


def without_cache(model, inputs, room, beams):
    """loop.Steps that decode all positions again at each step."""
    inputs = ids(inputs)

    def step_fn(before, parents, step, cache):
        past = tf.gather(cache["past"], parents, batch_dims=1)
        past = loop.place(past, step - 1, before)  # nowhere, at step 0
        # The subword to predict is not read, but must not be padding.
        whole = loop.place(past, step, tf.fill(tf.shape(before), 2))
        rows = tf.reshape(whole, (-1, room))
        sources = tf.repeat(cache["inputs"], beams, axis=0)
        batch = score.features(sources, rows)
        log_probs = tf.nn.log_softmax(model(batch))[:, step]
        shape = (-1, beams, log_probs.shape[-1])
        return tf.reshape(log_probs, shape), cache | {"past": past}

    past = tf.zeros((len(inputs), beams, room), tf.int32)
    return loop.Steps(step_fn, {"past": past, "inputs": inputs})


def assert_same(found, expected, most_ties=1):
    """The same best outputs, or scores that only rounding tells apart.

    Those are counted: more than `most_ties` of a batch are too many.
    """
    one, other = (x.scores[:, 0].numpy() for x in (found, expected))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    length = min(found.ids.shape[-1], expected.ids.shape[-1])
    differ = (
        (found.ids[:, 0, :length] != expected.ids[:, 0, :length])
        .numpy()
        .any(-1)
    )
    assert (np.abs(one - other)[differ] < 1e-5).all()
    assert differ.sum() <= most_ties


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"beam_size": 1},
        {"min_length": 7, "no_repeat_ngram_size": 2},
        {"sampling_temp": 1.5},
    ],
)
def test_blocks_xla_order_and_padding_change_nothing(models, settings):
    rows = many_inputs()
    settings = {"extra_length": 9, "return_beams": False} | settings
    hparams = hparam.DecodeHParams(**settings)
    expected = search.search(models[:1], ids(rows), hparams)
    for block in (None, 4):
        found = search.search(models[:1], ids(rows), hparams, block=block)
        assert_same(found, expected)
    compiled = tf.function(
        lambda: search.search(models[:1], ids(rows), hparams, block=None),
        jit_compile=True,
    )()
    assert_same(compiled, expected)
    padded = search.search(
        models[:1], ids(np.pad(rows, ((0, 0), (0, 5)))), hparams
    )
    assert_same(padded, expected)
    order = np.random.default_rng(1).permutation(len(rows))
    mixed = search.search(models[:1], ids(rows[order]), hparams)
    back = np.argsort(order)
    assert_same(loop.Hypotheses(*(tf.gather(x, back) for x in mixed)), expected)
    halves = [
        search.search(models[:1], ids(half), hparams)
        for half in (rows[:5], rows[5:])
    ]
    assert_same(
        loop.Hypotheses(*(tf.concat(x, 0) for x in zip(*halves, strict=True))),
        expected,
    )


@pytest.mark.parametrize("beams", [1, 4])
def test_a_cache_changes_nothing(models, beams):
    rows, room = many_inputs(), 14
    hparams = hparam.DecodeHParams(beam_size=beams, extra_length=6)
    bounds = constraints.bounds(ids((rows > 0).sum(1) + 6))
    plain = beam_search.beam_search(
        without_cache(models[0], rows, room, beams),
        bounds,
        constraints.Rules(),
        beams,
        room,
        hparams.alpha,
        1,
    )
    assert_same(search.search(models[:1], ids(rows), hparams), plain)


@pytest.mark.parametrize("sampling_temp", [0.0, 1.0])
@pytest.mark.parametrize("members", [1, 2])
def test_raw_scores_are_those_of_score(models, members, sampling_temp):
    rows, settings = many_inputs(), {"extra_length": 6, "return_beams": True}
    hparams = hparam.DecodeHParams(
        raw_scores=True, sampling_temp=sampling_temp, **settings
    )
    found = search.search(models[:members], ids(rows), hparams)
    for beam in range(4):
        expected = score.score(models[:members], ids(rows), found.ids[:, beam])
        np.testing.assert_allclose(found.scores[:, beam], expected, atol=1e-4)


def test_one_wanted_is_the_best_of_all(models):
    rows = many_inputs()
    one, every = (
        search.search(
            models[:1],
            ids(rows),
            hparam.DecodeHParams(extra_length=4, return_beams=return_beams),
        )
        for return_beams in (False, True)
    )
    assert one.ids.shape[1] == 1 and every.ids.shape[1] == 4
    assert_same(one, every)
