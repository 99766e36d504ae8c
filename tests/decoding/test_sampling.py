"""Sampling: its frequencies, its seeds and its ends."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from t2t_repro.decoding import sampling
from t2t_repro.text import subwords

V = 6

# Below this 99.9% of chi-squares of 5 degrees of freedom lie.
CHI_SQUARE_999 = 20.52

examples = hypothesis.settings(max_examples=15, deadline=None)


def random_table(seed):
    """[V + 1, V]: log-probabilities after each subword; the last at first."""
    logits = np.random.default_rng(seed).normal(size=(V + 1, V))
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def run(
    tables, limits, num_samples, temperature, seed, max_length=None, calls=None
):
    """Samples; the distribution depends on the subword before the last too.

    That one comes from the cache, which sampling must hand on as it is.
    """
    tables = tf.constant(np.stack(tables), tf.float32)

    def step_fn(ids, step, cache):
        if calls is not None:
            calls.append(int(step))
        here = tf.where(step > 0, ids, V)
        log_probs = tf.gather(tables, here, batch_dims=1)
        before = tf.gather(tables, cache, batch_dims=1)
        return tf.nn.log_softmax(log_probs + before), here

    return sampling.sample(
        step_fn,
        tf.fill((len(limits), num_samples), V),
        tf.constant(limits),
        num_samples,
        max_length or max(limits),
        temperature,
        seed,
    )


def next_log_probs(table, ids):
    """The distribution after `ids`, in numpy."""
    context = [V, V, *ids][-2:]
    logits = table[context[0]] + table[context[1]]
    return logits - np.log(np.exp(logits).sum())


def until_eos(row):
    ids = row.numpy().tolist()
    end = ids.index(subwords.EOS) + 1
    assert not any(ids[end:]), "only PAD may follow EOS"
    return ids[:end]


def chi_square(draws, probabilities):
    expected = len(draws) * probabilities
    observed = np.bincount(draws, minlength=len(probabilities))
    return float(((observed - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_frequencies_fit_the_distribution(temperature):
    table = random_table(1)
    found = run([table], [3], 4_000, temperature, seed=5)
    ids = found.ids[0].numpy()

    def fit(draws, prefix):
        powered = np.exp(next_log_probs(table, prefix) / temperature)
        return chi_square(draws, powered / powered.sum())

    assert fit(ids[:, 0], []) < CHI_SQUARE_999
    second = ids[ids[:, 0] == 2, 1]
    assert len(second) > 100
    assert fit(second, [2]) < CHI_SQUARE_999
    # The test can tell: another distribution does not fit.
    assert fit(second, []) > CHI_SQUARE_999


@examples
@hypothesis.given(seed=st.integers(0, 2**31 - 1), limit=st.integers(1, 6))
def test_without_temperature_it_is_greedy(seed, limit):
    table = random_table(seed)
    greedy = []
    while subwords.EOS not in greedy:
        last = len(greedy) + 1 == limit
        best = int(np.argmax(next_log_probs(table, greedy)))
        greedy.append(subwords.EOS if last else best)
    found = run([table], [limit], 3, 1e-7, seed)
    assert [until_eos(row) for row in found.ids[0]] == [greedy] * 3


@examples
@hypothesis.given(
    seed=st.integers(-(2**31), 2**31 - 1),
    limits=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    temperature=st.floats(0.1, 5.0),
)
def test_outputs_end_in_time_and_have_their_own_score(
    seed, limits, temperature
):
    tables = [random_table(number) for number in range(len(limits))]
    most = max(limits) + 2
    found = run(tables, limits, 4, temperature, seed, max_length=most)
    assert found.ids.shape == (len(limits), 4, most)
    for table, limit, rows, scores in zip(
        tables, limits, found.ids, found.scores, strict=True
    ):
        for row, score in zip(rows, scores, strict=True):
            ids = until_eos(row)
            assert len(ids) <= limit
            total = sum(
                next_log_probs(table, ids[:i])[subword]
                for i, subword in enumerate(ids)
            )
            assert float(score) == pytest.approx(total, rel=1e-4, abs=1e-5)


def test_a_seed_fixes_the_outputs():
    tables = [random_table(1), random_table(2)]
    first, again, other = (
        run(tables, [6, 6], 8, 1.0, seed) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.ids, again.ids)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert (first.ids.numpy() != other.ids.numpy()).any()


def test_samples_and_sentences_differ():
    found = run([random_table(1)] * 2, [8, 8], 8, 2.0, seed=0)
    rows = {tuple(row) for row in found.ids.numpy().reshape(16, -1).tolist()}
    assert len(rows) > 8


def test_stops_when_all_have_ended():
    table = np.full((V + 1, V), -50.0)
    table[:, subwords.EOS] = 0.0
    calls = []
    found = run([table], [50], 4, 1.0, seed=0, calls=calls)
    assert calls == [0]
    assert found.ids[0, :, :2].numpy().tolist() == [[1, 0]] * 4


def test_a_graph_draws_the_same():
    def draw():
        return run([random_table(1)], [6], 4, 1.0, seed=7)

    graph, plain = tf.function(draw)(), draw()
    np.testing.assert_array_equal(graph.ids, plain.ids)
    np.testing.assert_allclose(graph.scores, plain.scores, rtol=1e-5)
