"""Plans of batches: rows, buckets and packing."""

import dataclasses
import random

import hypothesis
import numpy as np
import plans
import pytest
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.data import batch_plan, buckets, corpus

# {kind: batching, and its settings}
KINDS = {
    "packed": ("packed", {}),
    "bucketed": ("bucketed", {}),
    # Pairs are shuffled among batches in every epoch.
    "reshuffled": ("bucketed", {"reshuffle_buckets": True}),
    # Rows of the sides differ in length.
    "proportional": ("packed", {"proportional_rows": True}),
    "separate": ("packed", {"separate_row_lengths": True}),
    "apart": ("bucketed", {"separate_row_lengths": True}),
    # Buckets are chosen by the lengths of both sides.
    "fitted": ("bucketed", {"num_buckets": 20}),
}
PACKED = [kind for kind, (batching, _) in KINDS.items() if batching == "packed"]
every_kind = pytest.mark.parametrize("batching", KINDS)
LENGTHS = st.lists(
    st.tuples(st.integers(1, 80), st.integers(1, 80)), min_size=1, max_size=150
)
FEW = hypothesis.settings(max_examples=25)
MAX_LENGTH = 64


def as_lengths(pairs):
    arrays = np.array(pairs, np.int32).reshape(-1, 2)
    return dict(zip(corpus.SIDES, arrays.T, strict=True))


def build(lengths, kind, batch_tokens=300, seed=0, **settings):
    batching, own = KINDS[kind]
    settings = {"max_length": MAX_LENGTH} | own | settings
    return plans.build(lengths, batching, batch_tokens, seed=seed, **settings)


def rows_of(batch):
    """Return [the pairs of each row] of a batch, including empty rows."""
    rows = [[] for _ in range(batch.num_rows)]
    for pair, row in zip(batch.pairs.tolist(), batch.rows, strict=True):
        rows[row].append(pair)
    return rows


def first_epochs(plan, count):
    """Collect the packed rows, or the batches, of each of the first epochs."""
    is_packed = isinstance(plan, batch_plan.PackedPlan)
    size = plan.rows_per_epoch if is_packed else int(plan.steps_per_epoch)
    units, step = [], 0
    while len(units) < count * size:
        batch = plan.batch(step)
        units += rows_of(batch) if is_packed else [batch.pairs.tolist()]
        step += 1
    return [units[i * size : (i + 1) * size] for i in range(count)]


def test_usable_pairs_have_no_longer_side():
    lengths = as_lengths([(8, 8), (9, 1), (2, 9), (1, 3)])
    assert batch_plan.usable_pairs(lengths, 8).tolist() == [0, 3]
    assert batch_plan.usable_pairs(lengths, 9, 2).tolist() == [0, 3]


@every_kind
@FEW
@hypothesis.given(pairs=LENGTHS, tokens=st.integers(1, 2000))
@hypothesis.example(pairs=[(9, 9)] * 150, tokens=1)  # many batches
def test_epoch_and_pass_have_each_usable_pair_once(batching, pairs, tokens):
    usable = [i for i, pair in enumerate(pairs) if max(pair) <= MAX_LENGTH]
    hypothesis.assume(usable)
    plan = build(as_lengths(pairs), batching, tokens)
    batches = [batch.pairs.tolist() for batch in plan.single_pass()]
    assert all(batches)
    for units in (*first_epochs(plan, 3), batches):
        seen = [pair for unit in units for pair in unit]
        assert sorted(seen) == usable
    if batching in PACKED:
        assert len(batches) == -(-plan.rows_per_epoch // plan.rows_per_batch)


@every_kind
@FEW
@hypothesis.given(pairs=LENGTHS, tokens=st.integers(1, 2000))
def test_no_row_overflows_and_lengths_have_one_shape(batching, pairs, tokens):
    hypothesis.assume(any(max(pair) <= MAX_LENGTH for pair in pairs))
    plan = build(as_lengths(pairs), batching, tokens)
    shapes = set()
    for step in range(int(plan.steps_per_epoch) + 3):
        batch = plan.batch(step)
        shapes.add((batch.num_rows, batch.row_lengths))
        assert batch.num_rows % 8 == 0
        slots = batch.num_rows * max(batch.row_lengths)
        assert slots <= plan.max_batch_slots
        assert np.all(np.diff(batch.rows) >= 0)
        for row in rows_of(batch):
            for side in (0, 1):
                used = sum(pairs[pair][side] for pair in row)
                assert used <= batch.row_lengths[side]
            if batching in PACKED:
                assert row  # none is empty
            else:
                assert len(row) <= 1
    if batching in PACKED:
        assert shapes == {(plan.rows_per_batch, plan.row_lengths)}
        shorter, longer = sorted(plan.row_lengths)
        most = 3 if batching == "separate" else 2
        assert MAX_LENGTH <= longer <= most * MAX_LENGTH
        assert longer == MAX_LENGTH or batching != "packed"
        assert shorter == MAX_LENGTH or batching == "separate"
        return
    rows_of_lengths = {
        "x".join(map(str, dict.fromkeys(lengths))): rows
        for rows, lengths in shapes
    }
    assert rows_of_lengths == plan.rows_per_batch
    assert len(rows_of_lengths) == len(shapes)
    if batching in ("bucketed", "reshuffled"):
        for _, (inputs, targets) in shapes:
            assert inputs == targets <= MAX_LENGTH
            assert inputs in buckets.BOUNDARIES


@FEW
@hypothesis.given(pairs=LENGTHS, tokens=st.integers(1, 500))
def test_bucketed_batches_are_full_and_the_shortest_are_even(pairs, tokens):
    hypothesis.assume(any(max(pair) <= MAX_LENGTH for pair in pairs))
    plan = build(as_lengths(pairs), "bucketed", tokens)
    batches = [plan.batch(i) for i in range(int(plan.steps_per_epoch))]
    shortest = min(batch.row_lengths for batch in batches)
    counts = []
    for batch in batches:
        assert batch.rows.tolist() == list(range(len(batch.pairs)))
        if batch.row_lengths > shortest:
            assert len(batch.pairs) == batch.num_rows
        else:
            counts.append(len(batch.pairs))
            assert 0 <= batch.num_rows - max(counts) < buckets.ROW_MULTIPLE
    assert max(counts) - min(counts) <= 1


def test_bucket_takes_missing_pairs_from_next_shorter_bucket():
    """128 tokens are 8 rows of length 16, of which 3 hold shorter pairs."""
    lengths = as_lengths([(8, 8)] * 20 + [(16, 16)] * 5)
    taken = set()
    for seed in range(10):  # the choice depends on the seed
        plan = build(lengths, "bucketed", 128, seed, max_length=16)
        assert plan.rows_per_batch == {"16": 8, "8": 24}
        long, short = sorted(
            (plan.batch(0), plan.batch(1)), key=lambda batch: batch.num_rows
        )
        assert len(long.pairs) == 8 and len(short.pairs) == 17
        assert set(range(20, 25)) <= set(long.pairs.tolist())
        taken.add(tuple(sorted(long.pairs.tolist())))
    assert len(taken) > 5


@every_kind
def test_batch_does_not_depend_on_earlier_calls(batching):
    lengths = plans.draw_lengths(300)
    used = build(lengths, batching, seed=5)
    steps = [*range(0, 24, 8), 10_000]
    random.Random(0).shuffle(steps)
    for step in steps:
        fresh = build(lengths, batching, seed=5)
        for a, b in zip(used.batch(step), fresh.batch(step), strict=True):
            np.testing.assert_array_equal(a, b)


@every_kind
def test_each_epoch_has_another_order(batching):
    first, second, third = first_epochs(
        build(plans.draw_lengths(2000), batching), 3
    )
    assert first != second and second != third and first != third
    keeps = sorted(first) == sorted(second) == sorted(third)
    assert keeps == (batching != "reshuffled")


@every_kind
@pytest.mark.parametrize("unit", ["real_tokens", "slots"])
def test_batches_have_about_batch_tokens_of_their_unit(batching, unit):
    lengths = plans.draw_lengths(40_000)
    if unit == "slots":  # of targets: here these have 0.7 times the subwords
        lengths["targets"] = np.ceil(0.7 * lengths["targets"]).astype(int)
    plan = build(lengths, batching, 25_000, max_length=256, batch_unit=unit)
    batches = [plan.batch(step) for step in range(int(plan.steps_per_epoch))]
    tokens = [lengths["targets"][batch.pairs].sum() for batch in batches]
    slots = [batch.num_rows * batch.row_lengths[1] for batch in batches]
    assert len(batches) > 20
    mean = np.mean(slots if unit == "slots" else tokens)
    rel = 0.1 if batching == "fitted" else 0.04
    assert mean == pytest.approx(25_000, rel=rel)
    share = 1 / len(batches)
    assert plan.tokens["targets"] == pytest.approx(sum(tokens), rel=share)
    usable = batch_plan.usable_pairs(lengths, 256)
    assert plan.tokens["inputs"] == lengths["inputs"][usable].sum()


@pytest.mark.parametrize(
    "batching", [kind for kind in KINDS if kind != "separate"]
)
def test_summary_has_mean_counts_of_a_batch(batching):
    lengths = as_lengths([(5, 3)] * 800)
    plan = build(lengths, batching, batch_tokens=240, max_length=8)
    # A pair has 5 + 3 tokens. Its row has 8 + 8 slots; a proportional row has
    # 16 + 8 for two pairs, and a bucket of two lengths 8 + 4 for one.
    is_less = batching in ("proportional", "apart")
    padding = "33.3%" if is_less else "50.0%"
    if batching == "fitted":
        padding = "0.0%"
    assert plan.summary().endswith(
        "80 pairs, 400 input and 240 target tokens, "
        f"{padding} padding of both sides"
    )


CORPORA = {  # mean subwords of inputs and targets, and the longest
    "summaries": ((400, 1000), (30, 100), 1024),
    "classes": ((25, 200), (2, 2), 256),
    "language model": ((1, 1), (30, 200), 256),
}


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
@pytest.mark.parametrize("name", CORPORA)
def test_rows_of_their_own_lengths_leave_little_padding(name, batching):
    *sides, max_length = CORPORA[name]
    pairs = 8_000 if batching == "packed" else 80_000
    spread = np.random.default_rng(0).lognormal(0, 0.5, (2, pairs))
    lengths = {
        side: np.clip(mean * row, min(mean, 2), longest).astype(int)
        for side, (mean, longest), row in zip(
            corpus.SIDES, sides, spread, strict=True
        )
    }
    setting = {"separate_row_lengths": True}
    if batching == "bucketed":
        setting = {"num_buckets": 32}
    before, after = (
        plans.build(
            lengths,
            batching,
            4_000,
            max_length,
            proportional_rows=True,
            **changed,
        )
        for changed in ({}, setting)
    )
    assert before.padding > 0.25
    assert after.padding < 0.1
    targets = lengths["targets"]
    sums = [targets[after.batch(i).pairs].sum() for i in range(30)]
    assert np.mean(sums) == pytest.approx(4_000, rel=0.1)


def test_fitted_buckets_are_those_of_the_cut_that_leaves_fewest_slots():
    """The first cut is by inputs: 3 * 104 * (3 + 9) + 3 * 144 * (8 + 9) slots.

    By targets it would leave 5 * 104 * (8 + 9) + 232 * (8 + 4).
    """
    pairs = as_lengths([(3, 9)] * 300 + [(8, 9)] * 200 + [(8, 4)] * 225)
    plan = build(pairs, "bucketed", 900, num_buckets=2)
    assert plan.rows_per_batch == {"3x9": 104, "8x9": 144}
    assert plan.padded_tokens == 11_088
    for most in (3, 9):
        plan = build(pairs, "bucketed", 900, num_buckets=most)
        assert plan.rows_per_batch == {"3x9": 104, "8x9": 104, "8x4": 232}


def test_note_names_the_setting_that_lessens_padding():
    lengths = {"inputs": np.full(900, 40), "targets": np.full(900, 2)}
    hparams = plans.settings("packed", 300, MAX_LENGTH, proportional_rows=True)
    note = batch_plan.padding_note(
        batch_plan.build(lengths, hparams, 0), hparams
    )
    assert "inputs have 20.0 times" in note
    assert "--hparams=separate_row_lengths=true" in note
    bucketed = dataclasses.replace(hparams, batching="bucketed")
    plan = batch_plan.build(lengths, bucketed, 0)
    note = batch_plan.padding_note(plan, bucketed)
    assert "--hparams=num_buckets=24" in note
    for setting in ({"separate_row_lengths": True}, {"num_buckets": 32}):
        changed = dataclasses.replace(hparams, **setting)
        plan = batch_plan.build(lengths, changed, 0)
        assert not batch_plan.padding_note(plan, changed)
    same = {"inputs": np.full(9, 5), "targets": np.full(9, 5)}  # a row of 600
    plan = batch_plan.build(same, hparams, 0)
    assert not batch_plan.padding_note(plan, hparams)


@every_kind
@pytest.mark.parametrize("pairs", [[], [(65, 1), (1, 65)]])
def test_build_without_usable_pairs_is_user_error(batching, pairs):
    message = f"of {len(pairs)} training pairs none has at most 64 subwords"
    with pytest.raises(errors.UserError, match=message):
        build(as_lengths(pairs), batching)


PAIRS = st.lists(st.tuples(*[st.integers(1, 40)] * 2), max_size=150)


def pack_pair_by_pair(pairs, row_lengths):
    """Compute pack() pair by pair, for one lane, as its docstring says."""
    rows, row = {}, 0
    while len(rows) < len(pairs):
        head = min(set(range(len(pairs))) - set(rows))
        # Pairs that have a row stay in the window, and take no tokens.
        sizes = [(0, 0) if i in rows else pair for i, pair in enumerate(pairs)]
        window, room, taken = [*range(head, len(pairs))], [*row_lengths], []

        def take(index, sign, room=room, sizes=sizes):
            for side in (0, 1):
                room[side] -= sign * sizes[index][side]

        def fits(index, room=room, sizes=sizes):
            return all(sizes[index][side] <= room[side] for side in (0, 1))

        while window and fits(window[0]):
            take(window[0], 1)
            taken.append(window.pop(0))
        if window and len(taken) > 1:
            take(taken[-1], -1)
            window.insert(0, taken.pop())
        for _ in range(2):
            fitting = [i for i in window if fits(i) and i not in rows]
            if fitting:
                longest = max(fitting, key=lambda i: (sum(pairs[i]), -i))
                take(longest, 1)
                taken.append(longest)
                window.remove(longest)
        rows |= {index: row for index in taken if index not in rows}
        row += 1
    return [rows[index] for index in range(len(pairs))]


@hypothesis.settings(max_examples=30)
@hypothesis.given(PAIRS, st.sampled_from([(40, 40), (40, 52), (64, 40)]))
@hypothesis.example([(2, 23), (39, 1), (1, 18), (1, 1), (1, 19)], (40, 40))
@hypothesis.example([], (40, 40))
# 5 + 2 leaves room for 3: the row gives 2 back and takes the later 5.
@hypothesis.example([(5, 5), (2, 2), (8, 8), (5, 5), (1, 1)], (10, 10))
def test_pack_equals_packing_pair_by_pair(pairs, row_lengths):
    """The pairs fit into one window, whose size then has no effect."""
    pairs = pairs[: batch_plan._PACKING_WINDOW]
    lengths = np.array(pairs, int).reshape(-1, 2).T
    rows = batch_plan.pack(*lengths, row_lengths)
    assert rows.tolist() == pack_pair_by_pair(pairs, row_lengths)
