"""Plans: each pair once an epoch, in rows and batches that hold it."""

import random

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.data import batch_plan, corpus

# "reshuffled": bucketed, with pairs shuffled among batches in every epoch.
KINDS = ("packed", "bucketed", "reshuffled")
every_kind = pytest.mark.parametrize("batching", KINDS)
LENGTHS = st.lists(
    st.tuples(st.integers(1, 80), st.integers(1, 80)), min_size=1, max_size=150
)
SETTINGS = {"deadline": None, "max_examples": 60, "derandomize": True}
MAX_LENGTH = 64


def as_lengths(pairs):
    arrays = np.array(pairs, np.int32).reshape(-1, 2)
    return dict(zip(corpus.SIDES, arrays.T, strict=True))


def natural(count, seed=0):
    """Lengths like those of sentences, the sides alike."""
    draws = np.random.default_rng(seed)
    inputs = draws.lognormal(3.1, 0.6, count)
    targets = inputs * draws.lognormal(0, 0.15, count)
    pairs = np.stack([inputs, targets], 1).astype(int) + 1
    return as_lengths(pairs)


def build(lengths, batching, batch_tokens=300, seed=0, **settings):
    settings = {"max_length": MAX_LENGTH} | settings
    if batching == "reshuffled":
        batching, settings["reshuffle_buckets"] = "bucketed", True
    return batch_plan.build(
        lengths, batching, batch_tokens, seed=seed, **settings
    )


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def rows_of(batch):
    """[row: list of pairs] of a batch, empty rows too."""
    rows = [[] for _ in range(batch.num_rows)]
    for pair, row in zip(batch.pairs.tolist(), batch.rows, strict=True):
        rows[row].append(pair)
    return rows


def epochs(planned, count):
    """The units of each of the first epochs: packed rows, or batches."""
    if isinstance(planned, batch_plan.PackedPlan):
        size = planned.rows_per_epoch
    else:
        size = int(planned.steps_per_epoch)
    units, step = [], 0
    while len(units) < count * size:
        batch = planned.batch(step)
        if isinstance(planned, batch_plan.PackedPlan):
            units += rows_of(batch)
        else:
            units.append(batch.pairs.tolist())
        step += 1
    return [units[i * size : (i + 1) * size] for i in range(count)]


@pytest.mark.parametrize(
    ("rows", "rounded"), [(0.1, 8), (8, 8), (11.9, 8), (12.1, 16), (97, 96)]
)
def test_rows_are_the_nearest_multiple_of_8(rows, rounded):
    assert batch_plan.round_rows(rows) == rounded


def test_usable_pairs_fit_on_both_sides():
    lengths = as_lengths([(8, 8), (9, 1), (2, 9), (1, 3)])
    assert batch_plan.usable_pairs(lengths, 8).tolist() == [0, 3]
    assert batch_plan.mean_lengths(lengths, 8) == ((8 + 1) / 2, (8 + 3) / 2)
    assert batch_plan.mean_lengths(lengths, 9) == (
        (8 + 9 + 2 + 1) / 4,
        (8 + 1 + 9 + 3) / 4,
    )


@every_kind
@hypothesis.settings(**SETTINGS)
@hypothesis.given(pairs=LENGTHS, tokens=st.integers(1, 2000))
def test_every_usable_pair_comes_once_an_epoch(batching, pairs, tokens):
    usable = [i for i, pair in enumerate(pairs) if max(pair) <= MAX_LENGTH]
    hypothesis.assume(usable)
    planned = build(as_lengths(pairs), batching, tokens)
    for units in epochs(planned, 3):
        seen = [pair for unit in units for pair in unit]
        assert sorted(seen) == usable


@every_kind
@hypothesis.settings(**SETTINGS)
@hypothesis.given(pairs=LENGTHS, tokens=st.integers(1, 2000))
def test_no_row_overflows_and_shapes_are_few(batching, pairs, tokens):
    hypothesis.assume(any(max(pair) <= MAX_LENGTH for pair in pairs))
    planned = build(as_lengths(pairs), batching, tokens)
    shapes = set()
    for step in range(int(planned.steps_per_epoch) + 3):
        batch = planned.batch(step)
        shapes.add((batch.num_rows, batch.row_length))
        assert batch.num_rows % 8 == 0
        assert np.all(np.diff(batch.rows) >= 0)
        for row in rows_of(batch):
            for side in (0, 1):
                used = sum(pairs[pair][side] for pair in row)
                assert used <= batch.row_length
            if batching == "packed":
                assert row  # none is empty
            else:
                assert len(row) <= 1
    if batching == "packed":
        assert shapes == {(planned.rows_per_batch, MAX_LENGTH)}
    else:
        assert {str(length): rows for rows, length in shapes} == (
            planned.rows_per_batch
        )
        assert len(shapes) == len({length for _, length in shapes})
        allowed = {b for b in batch_plan.BUCKET_BOUNDARIES if b <= MAX_LENGTH}
        assert {length for _, length in shapes} <= allowed


@hypothesis.settings(**SETTINGS)
@hypothesis.given(pairs=LENGTHS, tokens=st.integers(1, 500))
def test_no_bucketed_batch_is_short(pairs, tokens):
    hypothesis.assume(any(max(pair) <= MAX_LENGTH for pair in pairs))
    planned = build(as_lengths(pairs), "bucketed", tokens)
    batches = [planned.batch(i) for i in range(int(planned.steps_per_epoch))]
    shortest = min(batch.row_length for batch in batches)
    dealt = []
    for batch in batches:
        assert batch.rows.tolist() == list(range(len(batch.pairs)))
        if batch.row_length > shortest:
            assert len(batch.pairs) == batch.num_rows
        else:
            dealt.append(len(batch.pairs))
            assert 0 <= batch.num_rows - max(dealt) < batch_plan.ROW_MULTIPLE
    assert max(dealt) - min(dealt) <= 1


def test_a_bucket_borrows_and_the_shortest_deals_out_evenly():
    """128 tokens: 8 rows of 16 slots, of which 3 hold shorter pairs."""
    lengths = as_lengths([(8, 8)] * 20 + [(16, 16)] * 5)
    planned = build(lengths, "bucketed", 128, max_length=16)
    assert planned.rows_per_batch == {"16": 8, "8": 24}
    long, short = sorted(
        (planned.batch(step) for step in (0, 1)), key=lambda b: b.num_rows
    )
    assert len(long.pairs) == 8 and len(short.pairs) == 17
    assert set(range(20, 25)) <= set(long.pairs.tolist())
    borrowed = set()
    for seed in range(10):  # which are borrowed is left to chance
        planned = build(lengths, "bucketed", 128, seed, max_length=16)
        batches = [planned.batch(step) for step in (0, 1)]
        long = min(batches, key=lambda b: b.num_rows)
        borrowed.add(tuple(sorted(long.pairs.tolist())))
    assert len(borrowed) > 5


def test_pairs_of_a_bucket_are_mixed_among_its_batches():
    """No batch is of 9s alone, and none of 16s."""
    lengths = as_lengths([(i, i) for i in range(9, 17)] * 100)
    planned = build(lengths, "bucketed", 500)
    for step in range(int(planned.steps_per_epoch)):
        batch = planned.batch(step)
        found = lengths["targets"][batch.pairs]
        assert batch.row_length == 16
        assert len(found) > 30 and len(set(found.tolist())) > 5


@every_kind
def test_a_batch_does_not_depend_on_what_was_asked_before(batching):
    lengths = natural(3000)
    used = build(lengths, batching, seed=5)
    steps = list(range(60)) + [1000, 10_000]
    random.Random(0).shuffle(steps)
    for step in steps:
        fresh = build(lengths, batching, seed=5)
        assert same(used.batch(step), fresh.batch(step))


@every_kind
def test_epochs_differ_in_order(batching):
    first, second, third = epochs(build(natural(2000), batching), 3)
    assert first != second and second != third and first != third
    if batching != "reshuffled":  # rows or batches keep their pairs
        assert sorted(first) == sorted(second) == sorted(third)


def test_reshuffled_batches_share_no_members_between_epochs():
    """Batches of one shape only: a lone batch of a bucket cannot change."""
    planned = build(as_lengths([(9, 9)] * 3000), "reshuffled", 300)
    assert len(planned.rows_per_batch) == 1
    first, second, third = (
        {frozenset(batch) for batch in units} for units in epochs(planned, 3)
    )
    assert not first & second and not second & third and not first & third


def test_reshuffling_changes_no_shape():
    lengths = natural(3000)
    constant, reshuffled = (build(lengths, kind) for kind in KINDS[1:])
    for step in range(2 * int(constant.steps_per_epoch)):
        one, other = constant.batch(step), reshuffled.batch(step)
        assert one[2:] == other[2:] and len(one.pairs) == len(other.pairs)


@every_kind
def test_seeds_differ_in_what_lies_together(batching):
    lengths = natural(2000)
    one, other = (build(lengths, batching, seed=seed) for seed in (0, 1))
    (ours,), (theirs,) = epochs(one, 1), epochs(other, 1)
    assert ours != theirs
    together = [
        {tuple(sorted(unit)) for unit in units if len(unit) > 1}
        for units in (ours, theirs)
    ]
    assert len(together[0] & together[1]) < 0.05 * len(together[0])


@every_kind
def test_order_is_not_that_of_the_corpus(batching):
    (units,) = epochs(build(natural(2000), batching), 1)
    seen = [pair for unit in units for pair in unit]
    ascending = np.mean(np.diff(seen) > 0)
    assert 0.4 < ascending < 0.6


@every_kind
def test_a_batch_has_about_batch_tokens_real_target_tokens(batching):
    lengths = natural(60_000)
    planned = build(lengths, batching, batch_tokens=25_000, max_length=256)
    steps = int(planned.steps_per_epoch)
    tokens = [
        lengths["targets"][planned.batch(step).pairs].sum()
        for step in range(steps)
    ]
    assert steps > 30
    assert np.mean(tokens) == pytest.approx(25_000, rel=0.04)
    share = 1 / steps
    assert planned.tokens["targets"] == pytest.approx(sum(tokens), rel=share)
    usable = batch_plan.usable_pairs(lengths, 256)
    assert planned.tokens["inputs"] == lengths["inputs"][usable].sum()


@every_kind
def test_a_batch_has_about_as_many_slots_where_they_are_counted(batching):
    """tensor2tensor's batch_size counts padding."""
    planned = build(
        natural(60_000), batching, 25_000, max_length=256, unit="slots"
    )
    slots = []
    for step in range(int(planned.steps_per_epoch)):
        batch = planned.batch(step)
        slots.append(batch.num_rows * batch.row_length)
    assert np.mean(slots) == pytest.approx(25_000, rel=0.04)


@every_kind
def test_a_description_counts_what_an_epoch_has(batching):
    lengths = as_lengths([(5, 3)] * 800)
    planned = build(lengths, batching, batch_tokens=240, max_length=8)
    # A pair of 5 and 3 has a row of 8 to itself: 8 of its 16 slots are real.
    assert planned.summary().endswith(
        "80 pairs, 400 input and 240 target tokens, 50.0% padding"
    )


def test_a_sweep_is_one_epoch_in_batches_of_one_shape():
    lengths = natural(500)
    planned = build(lengths, "packed", 2000)
    sweep = list(planned.single_pass())
    assert len(sweep) == -(-planned.rows_per_epoch // planned.rows_per_batch)
    seen = [pair for batch in sweep for pair in batch.pairs.tolist()]
    usable = batch_plan.usable_pairs(lengths, MAX_LENGTH).tolist()
    assert sorted(seen) == usable
    for batch in sweep:
        assert batch.num_rows == planned.rows_per_batch
        assert batch.rows.max() < batch.num_rows


@every_kind
@pytest.mark.parametrize("pairs", [[], [(65, 1), (1, 65)]])
def test_a_corpus_without_usable_pairs_is_explained(batching, pairs):
    message = f"of {len(pairs)} training pairs none has at most 64 subwords"
    with pytest.raises(errors.UserError, match=message):
        build(as_lengths(pairs), batching)


@pytest.mark.parametrize(
    ("max_length", "shapes"), [(8, {8}), (40, {8, 16, 24, 32, 40})]
)
def test_the_longest_bucket_is_max_length(max_length, shapes):
    lengths = as_lengths([(i, i) for i in range(1, 300)] * 9)
    planned = build(lengths, "bucketed", 100, max_length=max_length)
    assert {int(length) for length in planned.rows_per_batch} == shapes
    assert f"{len(shapes)} bucketed shapes" in planned.summary()
