"""Batches: the position of each id, and the rows of each replica."""

import collections

import hypothesis
import numpy as np
import plans
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from small_corpora import write_ids

from t2t_repro.data import batches, corpus

FEW = hypothesis.settings(max_examples=25)
KINDS = ("packed", "bucketed")


def context_of(replicas, workers=1, index=0):
    return tf.distribute.InputContext(workers, index, replicas)


def assemble_by_brute_force(pairs, batch):
    """Compute assemble() id by id."""
    row_length = dict(zip(corpus.SIDES, batch.row_lengths, strict=True))
    arrays = {
        name: np.zeros((batch.num_rows, row_length[name.split("_")[0]]), int)
        for name in batches.ROW_FEATURES
    }
    used = collections.Counter()
    for pair, row in zip(batch.pairs, batch.rows, strict=True):
        used[row, "segment"] += 1
        for i, side in enumerate(corpus.SIDES):
            for position, token in enumerate(pairs[pair][i]):
                index = row, used[row, side]
                arrays[side][index] = token
                arrays[f"{side}_segment"][index] = used[row, "segment"]
                arrays[f"{side}_position"][index] = position
                used[row, side] += 1
    return arrays


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A corpus of random ids that end in EOS, and its pairs."""
    random = np.random.default_rng(0)

    def side():
        return [*random.integers(2, 100, random.integers(20)).tolist(), 1]

    pairs = [(side(), side()) for _ in range(200)]
    path = tmp_path_factory.mktemp("corpus") / "a.arrow"
    return corpus.Corpus([write_ids(path, pairs, 100)]), pairs


def build(pairs, batching, batch_tokens=200):
    return plans.build(pairs.lengths, batching, batch_tokens, 24)


@pytest.mark.parametrize("batching", KINDS)
def test_assemble_equals_brute_force(toy, batching):
    pairs, ids = toy
    plan = build(pairs, batching)
    for step in range(20):
        batch = plan.batch(step)
        arrays = batches.assemble(pairs, batch)
        expected = assemble_by_brute_force(ids, batch)
        for name in batches.ROW_FEATURES:
            np.testing.assert_array_equal(arrays[name], expected[name], name)


def arrays_of(rows, row_lengths=(4, 4)):
    """Build distinguishable rows whose last token is padding."""
    arrays = {}
    for side, length in zip(corpus.SIDES, row_lengths, strict=True):
        values = np.arange(rows * length, dtype=np.int32).reshape(rows, length)
        for name in batches.ROW_FEATURES:
            if name.startswith(side):
                arrays[name] = values + 1
    arrays["targets_segment"] = np.ones((rows, row_lengths[1]), np.int32)
    arrays["targets_segment"][:, -1] = 0
    arrays["inputs_segment"] = np.zeros((rows, row_lengths[0]), np.int32)
    arrays["inputs_segment"][:, :2] = [1, 2]
    return arrays


@FEW
@hypothesis.given(
    rows=st.integers(1, 40),
    replicas=st.integers(1, 8),
    limit=st.integers(4, 200),
    parallel=st.integers(1, 4),
    row_lengths=st.sampled_from([(4, 4), (4, 3), (3, 4)]),
)
@hypothesis.example(12, 1, 12, 1, (4, 3))
def test_microbatches_keep_the_limit_and_every_row(
    rows, replicas, limit, parallel, row_lengths
):
    """The limit is for the side with rows of length 4."""
    arrays = arrays_of(rows, row_lengths)
    microbatches = batches.Microbatches(limit, parallel)
    split = batches.split_rows(arrays, replicas, microbatches)
    _, accumulation, microbatch_rows, _ = split["inputs"].shape
    # Whole rows: of those at once, one each may be rounded up.
    assert microbatch_rows * parallel < limit // 4 + parallel
    for side, length in zip(corpus.SIDES, row_lengths, strict=True):
        flat = split[side].reshape(-1, length)
        assert flat[:rows].tolist() == arrays[side].tolist()
        assert not flat[rows:].any()
    first = split["first_row"].ravel()
    assert first.tolist() == [i * microbatch_rows for i in range(len(first))]
    assert split["first_row"].dtype == np.int32
    # The denominators are those of the whole batch, on each replica.
    counts = rows * (row_lengths[1] - 1), 2 * rows, rows
    for name, count in zip(batches.DENOMINATORS, counts, strict=True):
        assert split[name].tolist() == [count] * replicas
        assert split[name].dtype == np.float32
    fewest = -(-rows // (replicas * (limit // 4)))
    assert accumulation == parallel * fewest


class Shift:
    """Stand-in for a SubwordSampler: adds the step to each id."""

    def resegment(self, side, step, batch, ids, lengths):
        return ids + step, lengths


def assert_shares(
    dataset, expected, context, microbatches=batches.ONE_MICROBATCH
):
    """Check that a dataset has the worker's shares of assembled batches."""
    replicas = context.num_replicas_in_sync
    own = replicas // context.num_input_pipelines
    first = context.input_pipeline_id * own
    elements = dataset.as_numpy_iterator()
    for arrays in expected:
        split = batches.split_rows(arrays, replicas, microbatches)
        for replica in range(first, first + own):
            element = next(elements)
            assert set(element) == set(split)
            for name, value in element.items():
                np.testing.assert_array_equal(value, split[name][replica], name)
                assert value.dtype == split[name].dtype
    assert next(elements, None) is None


@pytest.mark.parametrize("batching", KINDS)
@pytest.mark.parametrize(
    ("replicas", "limit", "workers", "worker", "sampler"),
    [
        (1, None, 1, 0, None),
        (2, None, 1, 0, None),
        (2, 96, 1, 0, None),
        (3, None, 1, 0, None),
        (4, 96, 2, 0, None),
        (4, 96, 2, 1, Shift()),
    ],
)
def test_training_elements_are_the_shares_of_own_replicas(
    toy, batching, replicas, limit, workers, worker, sampler
):
    """Samples depend on the step, and not on the first one."""
    pairs, _ = toy
    plan = build(pairs, batching)
    context = context_of(replicas, workers, worker)
    microbatches = batches.Microbatches(limit)
    dataset = batches.training_dataset(
        pairs, plan, 3, 7, context, microbatches, sampler
    )
    expected = [
        batches.assemble(pairs, plan.batch(step), sampler, step)
        for step in range(3, 7)
    ]
    assert_shares(dataset, expected, context, microbatches)


@pytest.mark.parametrize("replicas", [1, 3])
def test_evaluation_elements_are_those_of_a_single_pass(toy, replicas):
    pairs, _ = toy
    plan = build(pairs, "packed")
    context = context_of(replicas)
    dataset = batches.evaluation_dataset(pairs, plan, context)
    expected = [batches.assemble(pairs, b) for b in plan.single_pass()]
    assert_shares(dataset, expected, context)
