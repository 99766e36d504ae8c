"""Tests that blocks, XLA, shards, order, padding and cache keep results."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import hparam
from t2t_repro.data import batches
from t2t_repro.decoding import beam_search, decode_loop, rules, search
from t2t_repro.runtime import devices, graph
from t2t_repro.text.vocabulary import EOS, PAD

V = 24  # vocabulary size of `models`
IDS = tf.TensorSpec([None, None], tf.int32)
TIE = 1e-5  # rounding decides between scores that differ by less


class Comparison(NamedTuple):
    """Counts of sentences whose best outputs two searches share or not."""

    sentences: int
    different: int
    ties: int  # among the different ones


def compare(actual, expected) -> Comparison:
    """Compare Hypotheses of the same sentences; their T may differ."""
    length = max(actual.ids.shape[-1], expected.ids.shape[-1])
    actual_ids, expected_ids = (
        np.pad(x.ids[:, 0], ((0, 0), (0, length - x.ids.shape[-1])))
        for x in (actual, expected)
    )
    different = (actual_ids != expected_ids).any(-1)
    difference = np.abs(actual.scores[:, 0] - expected.scores[:, 0])
    return Comparison(
        len(different),
        int(different.sum()),
        int((different & (difference < TIE)).sum()),
    )


def variants(models, rows, hparams, xla=True):
    """Yield the name and the Hypotheses of each variant.

    Args:
        models: models, as for search.search().
        rows: [B, L] int32, ids with EOS, PAD after.
        hparams: DecodeHParams.
        xla: whether to compile one variant with XLA, which is slow.
    """

    def run_search(rows, **settings):
        inputs = tf.convert_to_tensor(rows)
        return search.search(models, inputs, hparams, **settings)

    yield "one block of steps", run_search(rows, block=None)
    yield "blocks of 4 steps", run_search(rows, block=4)
    if xla:
        compiled = tf.function(
            lambda: run_search(rows, block=None), jit_compile=True
        )
        yield "XLA", compiled()
    traced = graph.function(run_search, input_signature=[IDS])
    yield "3 shards", devices.map_shards(traced, (tf.constant(rows),), (), 3)
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


def without_cache(model, rows, hparams) -> decode_loop.Hypotheses:
    """Return the result of a beam search that has no cache."""
    beams = hparams.beam_size
    room = rows.shape[1] + hparams.extra_length

    def step_fn(before, position, state):
        past = decode_loop.set_subwords(
            state["past"], position - 1, before
        )  # changes nothing at position 0
        # The subword to predict is not read, but must not be padding.
        whole = decode_loop.set_subwords(
            past, position, tf.fill(tf.shape(before), 2)
        )
        sources = tf.repeat(state["inputs"], beams, axis=0)
        batch = batches.one_sentence_per_row(
            sources, tf.reshape(whole, (-1, room))
        )
        logits = model(batch)[:, position]
        shape = (-1, beams, logits.shape[-1])
        return tf.reshape(logits, shape), None, state | {"past": past}

    def reorder(state, parents):
        return state | {
            "past": decode_loop.gather_beams(state["past"], parents)
        }

    past = tf.zeros((len(rows), beams, room), tf.int32)
    limits = (rows != PAD).sum(1) + hparams.extra_length
    return beam_search.beam_search(
        decode_loop.SearchModel(
            step_fn, {"past": past, "inputs": tf.constant(rows)}, reorder
        ),
        rules.sentences(tf.constant(limits, tf.int32)),
        rules.LengthLimit(),
        room,
        dataclasses.replace(hparams, return_beams=False),
    )


def ids(rows):
    return tf.constant(rows, tf.int32)


def many_inputs():
    """Return 12 sentences of 4 to 8 subwords."""
    random = np.random.default_rng(0)
    rows = np.zeros((12, 8), np.int32)
    for i, row in enumerate(rows):
        words = random.integers(2, V, 3 + i % 5)
        row[: len(words) + 1] = [*words, EOS]
    return rows


def assert_same(found, expected, name, max_ties=1):
    """Check that best outputs are equal, or tied within rounding.

    At most `max_ties` outputs of a batch may differ by a tie.
    """
    np.testing.assert_allclose(
        found.scores[:, 0], expected.scores[:, 0], rtol=1e-4, atol=1e-5
    )
    comparison = compare(found, expected)
    print(f"{name}: {comparison}")
    assert comparison.different == comparison.ties <= max_ties


SETTINGS = [
    {"min_length": 7, "no_repeat_ngram_size": 2},
    {},
    {"beam_size": 1},
    {"sampling_temp": 1.5},
]


@pytest.mark.parametrize(
    ("settings", "xla"),
    [
        (SETTINGS[0], False),
        *(
            pytest.param(settings, True, marks=pytest.mark.slow)
            for settings in SETTINGS
        ),
    ],
)
def test_blocks_xla_shards_order_and_padding_keep_result(
    models, settings, xla, monkeypatch
):
    monkeypatch.setattr(devices, "MIN_SENTENCES", 5)  # 12 are two shards
    rows = many_inputs()
    settings = {"extra_length": 9, "return_beams": False} | settings
    hparams = hparam.DecodeHParams(**settings)
    expected = search.search(models[:1], ids(rows), hparams)
    for name, found in variants(models[:1], rows, hparams, xla):
        assert_same(found, expected, name)


def test_cache_keeps_result(models):
    rows = many_inputs()
    hparams = hparam.DecodeHParams(beam_size=4, extra_length=6)
    expected = without_cache(models[0], rows, hparams)
    found = search.search(models[:1], ids(rows), hparams)
    assert_same(found, expected, "no cache")


def test_best_output_is_first_of_all_beams(models):
    rows = many_inputs()
    best, beams = (
        search.search(
            models[:1],
            ids(rows),
            hparam.DecodeHParams(extra_length=4, return_beams=return_beams),
        )
        for return_beams in (False, True)
    )
    assert best.ids.shape[1] == 1 and beams.ids.shape[1] == 4
    assert_same(best, beams, "best only")
