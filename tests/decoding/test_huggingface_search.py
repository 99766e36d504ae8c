"""Tests of the beam search of Hugging Face's generate(), against lists."""

import hypothesis
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st
from search_tables import START, extend_hash, model_of, random_table

from t2t_repro.decoding import beam_search, rules
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS, PAD


def generate(table, limit, width, alpha):
    """Return the finished (score, ids) of generate(), best first."""
    live, finished = [(0.0, (), START)], []
    for length in range(1, limit + 1):
        candidates = []
        for total, ids, prefix in live:
            log_probs = table[prefix].copy()
            if length == limit:  # forced_eos_token_id
                log_probs[:] = -np.inf
                log_probs[EOS] = 0.0
            candidates += [
                (total + log_probs[word], (*ids, word), prefix)
                for word in range(len(log_probs))
                if word != PAD
            ]
        candidates = sorted(candidates, reverse=True)[: 2 * width]
        finished += [
            (total / length**alpha, ids)
            for total, ids, _ in candidates[:width]
            if ids[-1] == EOS and total > -np.inf
        ]
        finished = sorted(finished, reverse=True)[:width]
        live = [
            (total, ids, extend_hash(prefix, ids[-1]))
            for total, ids, prefix in candidates
            if ids[-1] != EOS and total > -np.inf
        ][:width]
        if not live:
            break
        best = live[0][0] / length**alpha
        if len(finished) == width and best <= finished[-1][0]:
            break
    return finished


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    seeds=st.lists(st.integers(0, 2**32), min_size=2, max_size=3),
    limit=st.integers(2, 9),
    block=st.sampled_from([None, 2]),
    width=st.integers(2, 4),
    alpha=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_outputs_equal_those_of_lists(seeds, limit, block, width, alpha):
    """A sentence that has ended is not changed by the others of its batch."""
    tables = [random_table(seed) for seed in seeds]
    found = beam_search.huggingface(
        model_of(np.stack(tables), width, len(seeds), block),
        rules.sentences(tf.fill((len(seeds),), limit)),
        rules.LengthLimit(),
        limit,
        DecodeHParams(width, alpha, 0, return_beams=True),
    )
    for table, ids, scores in zip(tables, *map(np.array, found), strict=True):
        expected = generate(table, limit, width, alpha)
        rows = [tuple(row[row > 0].tolist()) for row in ids]
        assert rows[: len(expected)] == [ids for _, ids in expected]
        np.testing.assert_allclose(
            scores[: len(expected)], [score for score, _ in expected], rtol=1e-4
        )
