"""Tests of beam search and its candidates, against lists of all outputs."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from search_tables import (
    PREFIXES,
    WORDS,
    every_output,
    model_of,
    outputs,
    random_table,
)

from t2t_repro.decoding import beam_search, decode_loop, rules, sampling, search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.runtime import graph
from t2t_repro.text.vocabulary import PAD

examples = hypothesis.settings(max_examples=10, deadline=None)


def constant_table(eos, subword_2, rest=-100.0):
    """Return a table with the same log-probabilities after every prefix."""
    return np.tile([rest, eos, subword_2, rest, rest], (PREFIXES, 1))


@pytest.mark.parametrize(
    "limit, alpha, steps",
    [
        # Finished: ln 0.6 = -0.51 and ln 0.24 = -1.43; then live: -1.83.
        (100, 0.0, 2),
        # The worst finished one scores -1.43 / (7/6) = -1.22. A live one may
        # reach -0.916 n / (105/6), which is worse from n = 23.4 on.
        (100, 1.0, 24),
        # -0.916 n / (15/6): worse from n = 3.3 on.
        (10, 1.0, 4),
    ],
)
def test_search_stops_when_no_live_hypothesis_can_win(limit, alpha, steps):
    model = model_of(constant_table(np.log(0.6), np.log(0.4)), 2)
    positions = []

    def step_fn(ids, position, state):
        positions.append(int(position))
        return model.step_fn(ids, position, state)

    beam_search.beam_search(
        model._replace(step_fn=step_fn),
        rules.sentences(tf.constant([limit])),
        rules.LengthLimit(),
        limit,
        DecodeHParams(2, alpha, return_beams=True),
    )
    assert positions == list(range(steps))


def settings(min_length=0, no_repeat_ngram_size=0):
    return DecodeHParams(
        min_length=min_length, no_repeat_ngram_size=no_repeat_ngram_size
    )


def obeys(ids, limit, prefix, hparams):
    """Return whether the rules allow an output with EOS."""
    size, start = hparams.no_repeat_ngram_size, len(prefix)
    longest = max(limit, start + 1)
    if ids[:start] != prefix or len(ids) < min(hparams.min_length, longest):
        return False
    for end in range(max(size, start + 1), len(ids) if size else 0):
        # The n-gram that ends here; prefixes may repeat n-grams.
        earlier = [ids[i : i + size] for i in range(end - size)]
        if ids[end - size : end] in earlier:
            return False
    return len(ids) <= longest


def best_outputs(table, limit, prefix, hparams, penalty):
    """Return [(score, ids)] of all allowed outputs, best first."""
    every = every_output(table, max(limit, len(prefix) + 1), *penalty)
    return sorted(
        (
            (score, ids)
            for ids, score in every.items()
            if obeys(ids, limit, prefix, hparams)
        ),
        reverse=True,
    )


@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limit=st.integers(1, 5),
    prefix=st.lists(st.sampled_from(WORDS), max_size=3),
    hparams=st.builds(settings, st.integers(0, 5), st.integers(0, 3)),
    penalty=st.sampled_from([(0.0, 5), (0.6, 5), (1.0, 0)]),
)
@hypothesis.example(0, 5, [2, 2], settings(4, 2), (0.6, 5))
@hypothesis.example(1, 5, [], settings(0, 2), (0.0, 5))
@hypothesis.example(2, 5, [], settings(5, 0), (0.6, 5))
@hypothesis.example(3, 5, [3, 4, 3], settings(0, 0), (0.6, 5))
@hypothesis.example(4, 5, [], settings(0, 0), (1.0, 0))
def test_wide_beam_finds_best_outputs(seed, limit, prefix, hparams, penalty):
    table = random_table(seed)
    expected = best_outputs(table, limit, tuple(prefix), hparams, penalty)
    found = outputs(
        beam_search.beam_search(
            model_of(table, 81),
            rules.sentences(
                tf.constant([limit]), tf.constant([prefix], "int32")
            ),
            search.build_rules(hparams),
            5,
            DecodeHParams(81, *penalty, return_beams=True),
        )
    )
    if not expected:
        # No word may repeat and the output is too short to end: EOS is forced.
        assert hparams.no_repeat_ngram_size == 1 and hparams.min_length > 4
        return
    assert [ids for ids, _ in found[:5]] == [ids for _, ids in expected[:5]]
    np.testing.assert_allclose(
        [score for _, score in found],
        [score for score, _ in expected[: len(found)]],
        rtol=1e-4,
    )
    assert len(found) == min(len(expected), 81)


@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    hparams=st.builds(settings, st.integers(0, 9), st.integers(0, 3)),
    block=st.sampled_from([None, 1, 4]),
    data=st.data(),
)
def test_greedy_search_equals_beam_search_with_one_beam(
    seed, limits, hparams, block, data
):
    prefixes = data.draw(
        st.lists(
            st.tuples(*[st.sampled_from([PAD, *WORDS])] * 3),
            min_size=len(limits),
            max_size=len(limits),
        )
    )
    # PAD follows a prefix.
    prefixes = [sorted(prefix, key=lambda i: i == PAD) for prefix in prefixes]
    sentences = rules.sentences(tf.constant(limits), tf.constant(prefixes))
    rule = search.build_rules(hparams)
    model = model_of(random_table(seed), 1, len(limits), block)
    arguments = model, sentences, rule, 12, DecodeHParams(beam_size=1)
    expected = beam_search.beam_search(*arguments)
    found = sampling.greedy_search(*arguments)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


# XLA: one size with one round, and one with two.
@pytest.mark.parametrize(
    ("size", "count", "jit_compile"),
    [
        *(
            (size, count, False)
            for size in (4, 600, 5_120, 5_121)
            for count in (1, 10)
        ),
        (5_120, 4, True),
        (5_121, 4, True),
    ],
)
def test_top_k_in_two_rounds_equals_sorting(size, count, jit_compile):
    values = np.random.default_rng(size).permutation(6 * size)
    values = values.reshape(2, 3, size).astype(np.float32)
    count = min(count, size)
    best, indices = graph.function(
        lambda: decode_loop.top_k(tf.constant(values), count),
        jit_compile=jit_compile,
    )()
    expected = np.argsort(-values)[..., :count]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(best, np.take_along_axis(values, expected, 2))
