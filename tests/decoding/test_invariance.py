"""Tests that blocks, XLA, shards, order, padding and cache keep results."""

import numpy as np
import pytest
import tensorflow as tf

from scripts.benchmarks import search_variants
from t2t_repro import hparam
from t2t_repro.decoding import decode_loop, score, search
from t2t_repro.runtime import devices
from t2t_repro.text.vocabulary import EOS

V = 24  # vocabulary size of `models`


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
    comparison = search_variants.compare(found, expected)
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
    for name, found in search_variants.variants(models[:1], rows, hparams, xla):
        assert_same(found, expected, name)


def test_cache_keeps_result(models):
    rows = many_inputs()
    hparams = hparam.DecodeHParams(beam_size=4, extra_length=6)
    expected = search_variants.without_cache(models[0], rows, hparams)
    found = search.search(models[:1], ids(rows), hparams)
    assert_same(found, expected, "no cache")


def test_comparison_counts_differences_and_ties():
    expected = decode_loop.Hypotheses(
        ids([[[5, 1, 0]], [[5, 6, 1]], [[7, 1, 0]], [[8, 1, 0]]]),
        tf.constant([[-1.0], [-1.0], [-1.0], [-1.0]]),
    )
    found = decode_loop.Hypotheses(
        ids([[[5, 1]], [[5, 1]], [[1, 0]], [[8, 1]]]),
        tf.constant([[-1.0], [-1.000001], [-1.1], [-1.1]]),
    )
    assert search_variants.compare(found, expected) == (4, 2, 1)


@pytest.mark.parametrize(("members", "sampling_temp"), [(1, 0.0), (2, 1.0)])
def test_raw_scores_equal_sentence_log_probs(models, members, sampling_temp):
    rows, settings = many_inputs(), {"extra_length": 6, "return_beams": True}
    hparams = hparam.DecodeHParams(
        raw_scores=True, sampling_temp=sampling_temp, **settings
    )
    found = search.search(models[:members], ids(rows), hparams)
    for beam in range(4):
        expected = score.sentence_log_probs(
            models[:members], ids(rows), found.ids[:, beam]
        )
        np.testing.assert_allclose(found.scores[:, beam], expected, atol=1e-4)


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
