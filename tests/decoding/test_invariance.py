"""Tests that blocks, shards, order and padding keep results."""

import dataclasses
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import hparam
from t2t_repro.decoding import decode_loop, search
from t2t_repro.runtime import devices, graph
from t2t_repro.text.vocabulary import EOS

V = 24  # vocabulary size of `models`
IDS = tf.TensorSpec([None, None], tf.int32)
TIE = 1e-5  # rounding decides between scores that differ by less


def variants(models, rows, hparams):
    """Yield the name and the Hypotheses of each variant of a search."""

    def run_search(rows):
        return search.search(models, tf.convert_to_tensor(rows), hparams)

    if hparams.beam_size > 1 and not hparams.sampling_temp:
        every = dataclasses.replace(hparams, return_beams=True)
        found = search.search(models, ids(rows), every)
        assert found.ids.shape[1] == hparams.beam_size
        yield "all beams", found
    for name, block in ("one block of steps", 99), ("blocks of 4 steps", 4):
        with mock.patch.object(search, "BLOCK", block):
            yield name, run_search(rows)
    with graph.fixed_shapes():
        found = run_search(rows)
    yield "two blocks of fixed shapes", found
    traced = graph.function(run_search, input_signature=[IDS])
    concrete = traced.get_concrete_function()
    yield "3 shards", devices.map_shards(concrete, (tf.constant(rows),), (), 3)
    yield "more padding", traced(np.pad(rows, ((0, 0), (0, 5))))
    order = np.random.default_rng(1).permutation(len(rows))
    shuffled, inverse = traced(rows[order]), np.argsort(order)
    yield (
        "another order",
        decode_loop.Hypotheses(*(tf.gather(x, inverse) for x in shuffled)),
    )
    cut = len(rows) // 3
    parts = zip(traced(rows[:cut]), traced(rows[cut:]), strict=True)
    yield (
        "other batches",
        decode_loop.Hypotheses(*(tf.concat(x, 0) for x in parts)),
    )


def ids(rows):
    return tf.constant(rows, tf.int32)


def many_inputs():
    random = np.random.default_rng(0)
    rows = np.zeros((12, 8), np.int32)
    for i, row in enumerate(rows):
        words = random.integers(2, V, 3 + i % 5)
        row[: len(words) + 1] = [*words, EOS]
    return rows


def assert_same(found, expected, name):
    """Check that best outputs are equal; one may be tied within rounding."""
    scores, expected_scores = found.scores[:, 0], expected.scores[:, 0]
    np.testing.assert_allclose(
        scores, expected_scores, rtol=1e-4, atol=1e-5, err_msg=name
    )
    length = max(found.ids.shape[-1], expected.ids.shape[-1])
    best, expected_best = (
        np.pad(x.ids[:, 0], ((0, 0), (0, length - x.ids.shape[-1])))
        for x in (found, expected)
    )
    different = np.flatnonzero((best != expected_best).any(-1))
    assert len(different) <= 1, name
    for i in different:
        assert abs(scores[i] - expected_scores[i]) < TIE, name


@pytest.mark.parametrize(
    "settings",
    [
        {"min_length": 4, "no_repeat_ngram_size": 2},
        pytest.param({"beam_size": 1}, marks=pytest.mark.slow),
        pytest.param({"sampling_temp": 1.5}, marks=pytest.mark.slow),
    ],
)
def test_blocks_shards_order_padding_keep_result(models, settings, monkeypatch):
    monkeypatch.setattr(devices, "MIN_SENTENCES", 5)  # 12 are two shards
    rows = many_inputs()
    settings = {"extra_length": 4, "return_beams": False} | settings
    hparams = hparam.DecodeHParams(**settings)
    expected = search.search(models[:1], ids(rows), hparams)
    assert expected.ids.shape[1] == 1
    for name, found in variants(models[:1], rows, hparams):
        assert_same(found, expected, name)
