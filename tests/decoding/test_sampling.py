"""Tests of sampling: frequencies, seeds and ends of outputs."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from search_tables import START, extend_hash, model_of, outputs, random_table

from t2t_repro import hparam
from t2t_repro.decoding import rules, sampling, search
from t2t_repro.text.vocabulary import PAD

# Quantile of 99.9% of chi-square with 3 degrees of freedom (PAD is impossible).
CHI_SQUARE_999 = 16.27


def run(
    tables,
    limits,
    num_samples,
    temperature,
    seed,
    *,
    keys=None,
    max_length=None,
    **settings,
):
    """Sample outputs; random numbers are functions of the inputs, `keys`."""
    hparams = hparam.DecodeHParams(
        num_samples,
        alpha=0.0,
        return_beams=True,
        sampling_temp=temperature,
        sampling_seed=seed,
        **settings,
    )
    keys = tf.constant(keys or [*range(1, len(limits) + 1)])
    return sampling.sample(
        model_of(np.stack(tables), num_samples, len(limits)),
        rules.sentences(tf.constant(limits), inputs=keys[:, None]),
        search.build_rules(hparams),
        max_length or max(limits),
        hparams,
    )


def probabilities(table, ids, temperature):
    """Return the probabilities of sampling after `ids`, 0 for PAD."""
    log_probs = table[functools.reduce(extend_hash, ids, START)]
    powered = np.exp(log_probs / temperature)
    powered[PAD] = 0.0
    return powered / powered.sum()


def chi_square(ids, expected):
    """Return chi-square of ids; infinite if an impossible one occurs."""
    observed = np.bincount(ids, minlength=len(expected))
    if observed[expected == 0].any():
        return float("inf")
    observed, expected = observed[expected > 0], expected[expected > 0]
    expected = len(ids) * expected
    return float(((observed - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_frequencies_fit_distribution(temperature):
    table = random_table(1)
    found = run([table], [3], 4_000, temperature, seed=5)
    ids = found.ids[0].numpy()

    def fit(samples, prefix):
        return chi_square(samples, probabilities(table, prefix, temperature))

    assert fit(ids[:, 0], []) < CHI_SQUARE_999
    second = ids[ids[:, 0] == 2, 1]
    assert len(second) > 100
    assert fit(second, [2]) < CHI_SQUARE_999
    # Another distribution does not fit.
    assert fit(second, []) > CHI_SQUARE_999


def test_samples_come_best_first():
    few, many = (
        run([random_table(1), random_table(2)], [6, 4], count, 1.0, seed=3)
        for count in (4, 9)
    )
    for sentence in range(2):
        first, every = (outputs(found, sentence) for found in (few, many))
        scores = [score for _, score in every]
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) > 4
        # They are samples of the same numbers.
        assert {ids for ids, _ in first} <= {ids for ids, _ in every}


def test_seed_determines_outputs_in_any_batch():
    tables = [random_table(number) for number in range(4)]
    keys, limits = [17, -5, 99, 4], [6, 4, 7, 5]
    together = run(tables, limits, 5, 1.5, seed=3, keys=keys)
    different = run(tables, limits, 5, 1.5, seed=4, keys=keys)
    assert (together.ids.numpy() != different.ids.numpy()).any()
    order = [2, 0, 3, 1]
    reordered = run(
        *([list_[i] for i in order] for list_ in (tables, limits)),
        5,
        1.5,
        seed=3,
        keys=[keys[i] for i in order],
        max_length=9,
    )
    for row, i in enumerate(order):
        np.testing.assert_array_equal(
            reordered.ids[row, :, :7], together.ids[i]
        )
        alone = run([tables[i]], [limits[i]], 5, 1.5, seed=3, keys=[keys[i]])
        np.testing.assert_array_equal(
            alone.ids[0], together.ids[i, :, : limits[i]]
        )


@pytest.mark.parametrize(
    "settings",
    [
        *({"sampling_keep_top_k": kept} for kept in (1, 2, 4)),
        *({"sampling_keep_top_p": share} for share in (0.05, 0.5, 0.8, 0.95)),
    ],
)
def test_top_k_and_top_p_truncate_the_distribution(settings):
    table = random_table(1)
    found = run([table], [3], 4_000, 1.3, seed=5, **settings)
    expected = probabilities(table, [], 1.3)
    order = np.argsort(-expected)
    count = settings.get("sampling_keep_top_k")
    if share := settings.get("sampling_keep_top_p"):  # until it is reached
        count = 1 + np.searchsorted(np.cumsum(expected[order]), share)
    expected[order[count:]] = 0.0
    samples = found.ids.numpy()[0, :, 0]
    assert chi_square(samples, expected / expected.sum()) < CHI_SQUARE_999
