"""What a search must not depend on: blocks, XLA, order, padding, the cache."""

import numpy as np
import pytest
import tensorflow as tf

from scripts.benchmarks import bench_decode_variants
from t2t_repro import hparam
from t2t_repro.decoding import decode_loop, score, search, shards
from t2t_repro.text.vocabulary import EOS

V = 24  # of `models`


def ids(rows):
    return tf.constant(rows, tf.int32)


def many_inputs():
    """12 sentences of 4 to 8 subwords."""
    random = np.random.default_rng(0)
    rows = np.zeros((12, 8), np.int32)
    for i, row in enumerate(rows):
        words = random.integers(2, V, 3 + i % 5)
        row[: len(words) + 1] = [*words, EOS]
    return rows


def assert_same(found, expected, name, most_ties=1):
    """The same best outputs, or scores that only rounding tells apart.

    Those are counted: more than `most_ties` of a batch are too many.
    """
    one, other = (x.scores[:, 0].numpy() for x in (found, expected))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    counted = bench_decode_variants.compare(found, expected)
    print(f"{name}: {counted}")
    assert counted.different == counted.ties <= most_ties


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"beam_size": 1},
        {"min_length": 7, "no_repeat_ngram_size": 2},
        {"sampling_temp": 1.5},
    ],
)
@pytest.mark.parametrize(
    "xla", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_blocks_xla_shards_order_and_padding_change_nothing(
    models, settings, xla, monkeypatch
):
    monkeypatch.setattr(shards, "LEAST", 5)  # 12 are two of 6, and none
    rows = many_inputs()
    settings = {"extra_length": 9, "return_beams": False} | settings
    hparams = hparam.DecodeHParams(**settings)
    expected = search.search(models[:1], ids(rows), hparams)
    for name, found in bench_decode_variants.variants(
        models[:1], rows, hparams, xla
    ):
        assert_same(found, expected, name)


@pytest.mark.parametrize("beams", [1, 4])
def test_a_cache_changes_nothing(models, beams):
    rows = many_inputs()
    hparams = hparam.DecodeHParams(beam_size=beams, extra_length=6)
    plain = bench_decode_variants.without_cache(models[0], rows, hparams)
    found = search.search(models[:1], ids(rows), hparams)
    assert_same(found, plain, f"no cache, beam {beams}")


def test_other_outputs_are_counted_and_ties_among_them():
    expected = decode_loop.Hypotheses(
        ids([[[5, 1, 0]], [[5, 6, 1]], [[7, 1, 0]], [[8, 1, 0]]]),
        tf.constant([[-1.0], [-1.0], [-1.0], [-1.0]]),
    )
    found = decode_loop.Hypotheses(
        ids([[[5, 1]], [[5, 1]], [[1, 0]], [[8, 1]]]),
        tf.constant([[-1.0], [-1.000001], [-1.1], [-1.1]]),
    )
    assert bench_decode_variants.compare(found, expected) == (4, 2, 1)


@pytest.mark.parametrize("sampling_temp", [0.0, 1.0])
@pytest.mark.parametrize("members", [1, 2])
def test_raw_scores_are_those_of_score(models, members, sampling_temp):
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
    assert_same(one, every, "one wanted")
