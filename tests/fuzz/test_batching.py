"""Properties of encoding and batching on random text: no pair is lost."""

import numpy as np
import pytest
from file_strategies import LINES
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro.data import batch_plan, encode
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary_pair import Vocabularies

PAIRS = st.lists(st.tuples(LINES, LINES), max_size=8)
LENGTHS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=40
)


@pytest.fixture(scope="module")
def vocabulary():
    return Bpe.learn(["two birds sing", "the cat sat"] * 9, 290)


@given(PAIRS, st.integers(2, 30), st.sampled_from([0.0, 1.0, 1.5, 3.0]))
def test_each_pair_is_kept_or_dropped_for_a_reason(
    vocabulary, pairs, most, ratio
):
    part = encode.Encoder(Vocabularies.shared(vocabulary), most, ratio).encode(
        pairs
    )
    sides = [part.ids[side].to_pylist() for side in ("inputs", "targets")]
    assert part.read == len(pairs) and part.texts == {}
    assert len(sides[0]) == part.read - sum(part.dropped.values())
    for lengths in zip(*(map(len, side) for side in sides), strict=True):
        assert 1 < min(lengths) and max(lengths) <= most
        assert not ratio or max(lengths) <= ratio * min(lengths)
    kept = [pair for pair in pairs if _fits(vocabulary, pair, most, ratio)]
    assert list(zip(*sides, strict=True)) == [
        tuple(vocabulary.encode(pair)) for pair in kept
    ]


def _fits(vocabulary, pair, most, ratio):
    shorter, longer = sorted(map(len, vocabulary.encode(pair)))
    even = not ratio or longer <= ratio * shorter
    return 1 < shorter and longer <= most and even


@given(PAIRS)
def test_split_to_score_keeps_all_pairs(vocabulary, pairs):
    part = encode.Encoder(Vocabularies.shared(vocabulary), None).encode(pairs)
    assert sum(part.dropped.values()) == 0
    texts = zip(part.texts["inputs"], part.texts["targets"], strict=True)
    assert list(texts) == pairs


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
@given(
    LENGTHS,
    st.integers(1, 10_000),
    st.sampled_from([8, 24, 40]),
    st.sampled_from(["real_tokens", "slots"]),
    st.integers(0, 1 << 40),
    st.integers(0, (1 << 31) - 1),
)
def test_batch_of_any_step_of_any_plan_fits(
    batching, pairs, tokens, most, unit, step, seed
):
    inputs, targets = np.array(pairs).T
    lengths = {"inputs": inputs, "targets": targets}
    if not len(batch_plan.usable_pairs(lengths, most)):
        return
    made = batch_plan.build(lengths, batching, tokens, most, seed, unit)
    batch = made.batch(step)
    again = batch_plan.build(lengths, batching, tokens, most, seed, unit).batch(
        step
    )
    for one, other in zip(batch, again, strict=True):
        assert np.array_equal(one, other)
    assert len(batch.pairs) and batch.rows.max() < batch.num_rows
    assert batch.num_rows * max(batch.row_lengths) <= made.max_batch_slots
    # Packed rows of one side may be longer.
    assert min(batch.row_lengths) <= most
    assert batching == "packed" or max(batch.row_lengths) <= most
    for side, length in zip(lengths.values(), batch.row_lengths, strict=True):
        assert side[batch.pairs].max() <= min(length, most)
        filled = np.bincount(batch.rows, side[batch.pairs])
        assert filled.max() <= length
