"""Tests of a wide beam search against enumeration of all outputs."""

import functools
import pathlib
import runpy

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from t2t_repro.decoding import beam_search, rules
from t2t_repro.decoding.rules import LengthPenalty
from t2t_repro.runtime import graph

TABLES = runpy.run_path(str(pathlib.Path(__file__).with_name("tables.py")))
random_table, model_of, every_output, log_prob = (
    TABLES[x] for x in ("random_table", "model_of", "every_output", "log_prob")
)
MAX_LENGTH = 6  # maximum length of an output
# All hypotheses that can be live at once: 3 words at each position before the
# last.
BEAMS = 3 ** (MAX_LENGTH - 1)


@functools.cache
def wide_search(length_penalty):
    """Return a wide beam search as a function of a table and limits."""
    return graph.function(
        lambda table, limits: beam_search.beam_search(
            model_of(table, BEAMS, limits.shape[0]),
            rules.sentences(limits),
            rules.LengthLimit(),
            BEAMS,
            MAX_LENGTH,
            length_penalty,
            BEAMS,
        )
    )


@pytest.mark.parametrize(("alpha", "offset"), [(0.0, 5), (0.6, 5), (1.0, 0)])
@hypothesis.settings(max_examples=10, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limits=st.lists(st.integers(1, MAX_LENGTH), min_size=3, max_size=3),
)
@hypothesis.example(seed=0, limits=[6, 1, 4])
@hypothesis.example(seed=1, limits=[5, 6, 6])
def test_wide_beam_equals_enumeration(alpha, offset, seed, limits):
    table = random_table(seed)
    found = wide_search(LengthPenalty(alpha, offset))(
        tf.constant(table, tf.float32), tf.constant(limits)
    )
    for ids, scores, limit in zip(*map(np.array, found), limits, strict=True):
        every = every_output(table, limit, alpha, offset)
        best = sorted(every.values(), reverse=True)[:BEAMS]
        real = scores > rules.FORBIDDEN / 10
        assert real.tolist() == [i < len(best) for i in range(BEAMS)]
        np.testing.assert_allclose(scores[real], best, rtol=1e-4)
        rows = [tuple(row[row > 0].tolist()) for row in ids[real]]
        assert len(set(rows)) == len(rows)
        row_scores = [every[row] for row in rows]
        np.testing.assert_allclose(scores[real], row_scores, rtol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_enumeration_has_all_outputs_and_their_scores(alpha):
    """There are 1 + 3 + … + 3^5 outputs."""
    table = random_table(7)
    every = every_output(table, MAX_LENGTH, alpha)
    assert len(every) == (3**MAX_LENGTH - 1) // 2
    for ids, score in every.items():
        penalty = ((5 + len(ids)) / 6) ** alpha
        assert score == pytest.approx(log_prob(table, ids) / penalty)
