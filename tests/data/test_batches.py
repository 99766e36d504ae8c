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


def write(folder, pairs):
    """Write a corpus of (inputs, targets) ids, and open it."""
    return corpus.Corpus([write_ids(folder / "a.arrow", pairs, 100)])


def context_of(replicas, workers=1, index=0):
    return tf.distribute.InputContext(workers, index, replicas)


def read_back(arrays):
    """Return the pairs of [rows, length] arrays, by segment."""
    pairs = []
    for row in range(len(arrays["targets"])):
        last = arrays["targets_segment"][row].max()
        for segment in range(1, last + 1):
            pairs.append(
                tuple(
                    arrays[side][row][
                        arrays[f"{side}_segment"][row] == segment
                    ].tolist()
                    for side in corpus.SIDES
                )
            )
    return pairs


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
    return write(tmp_path_factory.mktemp("corpus"), pairs), pairs


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


def test_split_rows_gives_replicas_consecutive_rows():
    arrays = arrays_of(8)
    split = batches.split_rows(arrays, 2)
    assert split["inputs"].shape == (2, 1, 4, 4)
    assert split["inputs"][0, 0].tolist() == arrays["inputs"][:4].tolist()
    assert split["inputs"][1, 0].tolist() == arrays["inputs"][4:].tolist()
    assert split["first_row"].tolist() == [[0], [4]]
    assert split["first_row"].dtype == np.int32
    assert split["target_tokens"].tolist() == [24.0, 24.0]
    assert split["target_tokens"].dtype == np.float32
    assert split["source_tokens"].tolist() == [16.0, 16.0]
    assert split["sentences"].tolist() == [8.0, 8.0]


@FEW
@hypothesis.given(
    rows=st.integers(1, 40),
    replicas=st.integers(1, 8),
    limit=st.integers(4, 200),
    parallel=st.integers(1, 4),
    row_lengths=st.sampled_from([(4, 4), (4, 3), (3, 4)]),
)
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
    fewest = -(-rows // (replicas * (limit // 4)))
    assert accumulation == parallel * fewest


@pytest.mark.parametrize("batching", KINDS)
@pytest.mark.parametrize(
    ("replicas", "limit", "workers", "worker"),
    [
        (1, None, 1, 0),
        (2, None, 1, 0),
        (2, 96, 1, 0),
        (3, None, 1, 0),
        (4, 96, 2, 0),
        (4, 96, 2, 1),
    ],
)
def test_training_elements_are_the_shares_of_own_replicas(
    toy, batching, replicas, limit, workers, worker
):
    pairs, _ = toy
    plan = build(pairs, batching)
    context = context_of(replicas, workers, worker)
    microbatches = batches.Microbatches(limit)
    dataset = batches.training_dataset(pairs, plan, 3, 7, context, microbatches)
    elements = list(dataset.as_numpy_iterator())
    own = replicas // workers
    assert len(elements) == 4 * own
    for number, element in enumerate(elements):
        step, replica = divmod(number, own)
        replica += worker * own
        arrays = batches.assemble(pairs, plan.batch(3 + step))
        split = batches.split_rows(arrays, replicas, microbatches)
        assert set(element) == set(split)
        for name, value in element.items():
            expected = split[name][replica]
            np.testing.assert_array_equal(value, expected, name)
            assert value.dtype == expected.dtype


@pytest.mark.parametrize("replicas", [1, 3])
def test_evaluation_dataset_has_each_pair_once(toy, replicas):
    pairs, ids = toy
    plan = build(pairs, "packed")
    dataset = batches.evaluation_dataset(pairs, plan, context_of(replicas))
    read, tokens = [], 0
    for number, element in enumerate(dataset.as_numpy_iterator()):
        rows = {
            name: np.concatenate(element[name]) for name in batches.ROW_FEATURES
        }
        read += read_back(rows)
        tokens += element["target_tokens"] if number % replicas == 0 else 0
    assert sorted(read) == sorted((a, b) for a, b in ids)
    assert tokens == sum(len(targets) for _, targets in ids)
