"""Tests of searches that XLA compiles, beside uncompiled ones."""

import threading
import warnings

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import hparam
from t2t_repro.decoding import compiled, rules, search
from t2t_repro.runtime import graph
from t2t_repro.text.vocabulary import EOS

INPUTS = [[5, 9, 7, EOS, 0], [8, EOS, 0, 0, 0], [3, 3, 6, 9, EOS]]
PREFIXES = [[4, 7], [0, 0], [6, 0]]


def find(models, **settings):
    hparams = hparam.DecodeHParams(extra_length=6, **settings)
    rule = search.build_rules(hparams)
    ids = map(tf.constant, (INPUTS, PREFIXES))
    return compiled.Search(models, hparams, rule)(*ids)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 0), (1, 0)),
        ((2, 1), (8, 16)),
        ((8, 16), (8, 16)),
        ((9, 17), (16, 32)),
        ((16, 33), (16, 64)),
        ((33, 1_000), (48, 1_024)),
    ],
)
def test_bucket_is_the_next_shape(shape, expected):
    count, length = shape
    found = compiled.padded_count(count), compiled.padded_length(length)
    assert tuple(map(int, found)) == expected


def test_batch_is_padded_by_its_first_sentence_and_cut_again():
    def echo(inputs, prefixes, factor):
        return inputs * factor, tf.reduce_sum(inputs) - tf.zeros(8, tf.int32)

    call = graph.function(compiled.in_buckets(echo))
    ids, sums = call(tf.constant(INPUTS), tf.constant(PREFIXES), 2)
    expected = np.pad(INPUTS, ((0, 0), (0, 11))) * 2
    np.testing.assert_array_equal(ids, expected)
    total = np.sum(INPUTS) + 5 * np.sum(INPUTS[0])
    np.testing.assert_array_equal(sums, [total] * 3)


class _Spelling(rules.Rule):
    def excluded(self, step, state):
        return [tf.strings.length(tf.strings.as_string(step.ids))]


def test_operation_that_xla_does_not_know_is_named():
    rule = rules.CombinedRule([_Spelling()])

    def spell(ids, shared):
        return rule.excluded(rules.SearchStep(0, ids, None), [()])

    call = graph.function(compiled.in_buckets(spell))
    with pytest.raises(tf.errors.OpError) as failure:
        call(tf.constant(INPUTS), ())
    named = compiled.what_is_refused(failure.value)
    assert named == "the operation AsString (rule._Spelling/AsString)"
    fold = graph.function(lambda ids: tf.foldl(tf.add, ids), jit_compile=True)
    with pytest.raises(tf.errors.OpError) as failure:  # of an axis of length 0
        fold(tf.zeros((0, 1)))
    named = compiled.what_is_refused(failure.value)
    assert named.startswith("the operation foldl/") and ": " in named


def test_search_that_xla_refuses_runs_uncompiled(monkeypatch):
    hparams = hparam.DecodeHParams(xla="on")
    refused = compiled.Search([], hparams, rules.LengthLimit())

    def run(ids, compiled=False):
        if compiled:
            raise TypeError("no strings")
        return len(ids)

    monkeypatch.setattr(refused, "_run", run)
    ids = tf.constant(INPUTS)
    with pytest.warns(UserWarning, match="XLA cannot compile no strings"):
        assert refused(ids, ids) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert refused(ids, ids) == 2


@pytest.mark.parametrize("num_shards", [None, 1])
def test_single_sentences_are_compiled_later(num_shards, monkeypatch):
    calls = []
    monkeypatch.setattr(compiled, "_SECONDS_BEFORE", 3.5)
    monkeypatch.setattr(compiled.time, "perf_counter", lambda: len(calls))
    auto = compiled.Search([], hparam.DecodeHParams(), None, num_shards)
    monkeypatch.setattr(
        auto, "_run", lambda ids, compiled=False: calls.append(compiled)
    )

    def search_once(count=1, length=5):
        ids = tf.zeros((count, length), tf.int32)
        auto(ids, ids[:, :0])
        for thread in set(threading.enumerate()) - before:
            thread.join()
        return calls[-1]

    before = set(threading.enumerate())
    for _ in range(5):  # a second each, of which the first does not count
        search_once(), search_once(count=2)
    compiles = num_shards is None
    assert (True in calls) == compiles
    assert search_once() == search_once(length=16) == compiles
    assert not search_once(length=17) and not search_once(count=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_models", "settings"),
    [
        (2, {"return_beams": True, "coverage_penalty": 0.2}),
        (1, {"min_length": 7, "no_repeat_ngram_size": 2}),
        (1, {"beam_size": 1}),
        (1, {"return_beams": True, "sampling_temp": 1.5}),
    ],
)
def test_compiled_search_equals_uncompiled_one(models, num_models, settings):
    """N-best lists with prefixes; also of an ensemble."""
    found, expected = (
        find(models[:num_models], xla=xla, **settings) for xla in ("on", "off")
    )
    length = expected.ids.shape[-1]
    np.testing.assert_array_equal(found.ids[..., :length], expected.ids)
    assert not np.any(found.ids[..., length:])
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
