"""Tests of beam search: worked examples, a greedy loop, and stopping."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from search_tables import (
    PREFIXES,
    START,
    extend_hash,
    log_prob,
    model_of,
    outputs,
    random_table,
)

from t2t_repro.decoding import beam_search, decode_loop, rules
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS

examples = hypothesis.settings(max_examples=10, deadline=None)


def constant_table(eos, subword_2, rest=-100.0):
    """Return a table with the same log-probabilities after every prefix."""
    return np.tile([rest, eos, subword_2, rest, rest], (PREFIXES, 1))


def normalized(table, ids, alpha):
    return log_prob(table, ids) / ((5 + len(ids)) / 6) ** alpha


def run(
    tables, limits, beam_size, alpha, max_length=None, calls=None, block=None
):
    """Search with `tables`; append each position to `calls`.

    Every beam's state is the hash of its prefix. Without correct reordering it
    would look up the wrong row.
    """
    model = model_of(np.stack(tables), beam_size, len(limits))

    def step_fn(ids, position, state):
        if calls is not None:
            calls.append(int(position))
        log_probs, _, beams = model.step_fn(ids, position, state["beams"])
        return log_probs, None, state | {"beams": beams}

    def reorder(state, parents):
        beams = decode_loop.gather_beams(state["beams"], parents)
        return state | {"beams": beams}

    state = {"beams": model.state, "grows": tf.zeros((len(limits), 1))}
    max_length = max_length or max(limits)
    found = beam_search.beam_search(
        decode_loop.SearchModel(step_fn, state, reorder, _grow, block),
        rules.sentences(tf.constant(limits)),
        rules.LengthLimit(),
        max_length,
        DecodeHParams(beam_size, alpha, return_beams=True),
    )
    assert found.ids.shape[1:] == (beam_size, max_length)
    return found


def _grow(state):
    return state | {"grows": tf.concat([state["grows"]] * 2, 1)}


@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limit=st.integers(1, 8),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
@hypothesis.example(seed=0, limit=8, alpha=0.6)
def test_one_beam_equals_greedy_loop(seed, limit, alpha):
    table = random_table(seed)
    greedy, prefix = [], START
    while EOS not in greedy:
        last = len(greedy) + 1 == limit
        best = 1 + int(np.argmax(table[prefix][1:]))  # PAD never comes
        greedy.append(EOS if last else best)
        prefix = extend_hash(prefix, greedy[-1])
    ((ids, score),) = outputs(run([table], [limit], 1, alpha), 0)
    assert list(ids) == greedy
    assert score == pytest.approx(normalized(table, greedy, alpha), rel=1e-4)


@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limit=st.integers(3, 8),
    beam_size=st.integers(2, 6),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_scores_are_sorted_and_belong_to_their_ids(
    seed, limit, beam_size, alpha
):
    table = random_table(seed)
    found = run([table], [limit], beam_size, alpha, max_length=limit + 2)
    rows = outputs(found, 0)
    assert len(rows) == beam_size
    assert len({ids for ids, _ in rows}) == beam_size
    scores = [score for _, score in rows]
    assert scores == sorted(scores, reverse=True)
    for ids, score in rows:
        assert len(ids) <= limit
        assert score == pytest.approx(normalized(table, ids, alpha), rel=1e-4)


@examples
@hypothesis.given(
    seeds=st.lists(st.integers(0, 2**32), min_size=2, max_size=4),
    limits=st.lists(st.integers(3, 8), min_size=4, max_size=4),
    longer=st.integers(0, 3),
    block=st.sampled_from([None, 1, 3, 16]),
)
def test_sentence_is_independent_of_its_batch(seeds, limits, longer, block):
    # Other sentences may leave the batch, and the loop may run in blocks.
    tables = [random_table(seed) for seed in seeds]
    limits = limits[: len(tables)]
    together = run(
        tables, limits, 3, 0.6, max_length=max(limits) + longer, block=block
    )
    for sentence, (table, limit) in enumerate(zip(tables, limits, strict=True)):
        alone = run([table], [limit], 3, 0.6)
        (ids, scores), (own_ids, own_scores) = (
            zip(*outputs(found, row), strict=True)
            for found, row in ((together, sentence), (alone, 0))
        )
        assert ids == own_ids
        # Rounding of sums differs between batches.
        assert scores == pytest.approx(own_scores, rel=1e-5)


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
    table = constant_table(np.log(0.6), np.log(0.4))
    calls = []
    run([table], [limit], 2, alpha, calls=calls)
    assert calls == list(range(steps))


@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limit=st.integers(3, 8),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_early_stopping_does_not_change_result(seed, limit, alpha):
    # The companion ends at its limit, so the search continues until then.
    table, companion = random_table(seed), constant_table(-50.0, -0.1)
    calls = []
    to_the_limit = run([table, companion], [limit, 8], 3, alpha, calls=calls)
    assert calls == list(range(8))
    early = run([table], [limit], 3, alpha)
    (ids, scores), (own_ids, own_scores) = (
        zip(*outputs(found, 0), strict=True) for found in (early, to_the_limit)
    )
    assert ids == own_ids
    assert scores == pytest.approx(own_scores, rel=1e-5)
