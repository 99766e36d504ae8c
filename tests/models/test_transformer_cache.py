"""Tests of the decoding cache: compaction."""

import numpy as np
import pytest
from keras import ops

from t2t_repro.models.seq2seq import gather_beams
from t2t_repro.models.transformer_stack import Cache


@pytest.fixture
def state():
    """A cache and its visible entries after two steps.

    One layer, one head, keys of size 1; 2 sentences, 2 beams, 2 positions.

    Keys are 10 * position + beam, and values are negative keys. In the first
    sentence both hypotheses of position 1 come from beam 1; in the second, each
    stays in its beam.
    """
    memory = (np.zeros((2, 1, 3, 1)), np.zeros((2, 1, 3, 1)))
    mask = np.ones((2, 1, 1, 3), bool)
    empty = Cache.empty([memory], mask, 2, 2, "float32")
    return _two_steps(*empty, [[1, 1], [0, 1]], 0)


def _two_steps(cache, visible, parents, first):
    """Add positions `first` and the next, whose hypotheses have `parents`."""
    values = [10 * (first + i) + beam for i in range(2) for beam in range(2)]
    keys = np.tile(np.float32(values)[None, None, :, None], (2, 1, 1, 1))
    cache = cache._replace(recent=((keys, -keys),))
    visible = cache.with_current(visible, first)
    visible = gather_beams(visible, np.array(parents, "int32"))
    return cache, cache.with_current(visible, first + 1)


def test_compact_keeps_one_entry_per_position_of_common_ancestor(state):
    """When all hypotheses share an ancestor, the past has only its entries."""
    cache, visible = state
    later = _two_steps(*cache.compact(visible), [[0, 0], [1, 1]], 2)
    compacted, visible = later[0].compact(later[1])
    past = ops.shape(compacted.past[0][0])[2]
    mask = ops.convert_to_numpy(visible)[..., :past]
    keys = ops.convert_to_numpy(compacted.past[0][0])[:, 0, :, 0]
    for sentence, beam, expected in (
        (0, 0, [1, 10, 20, 30]),
        (0, 1, [1, 10, 20, 31]),
        (1, 0, [1, 11, 21, 30]),
        (1, 1, [1, 11, 21, 31]),
    ):
        assert keys[sentence, mask[sentence, beam]].tolist() == expected
    assert past == 5
    seen = mask.any(1)
    values = ops.convert_to_numpy(compacted.past[0][1])[:, 0, :, 0]
    np.testing.assert_array_equal(values, -keys)
    positions = ops.convert_to_numpy(compacted.positions)[:, :past]
    np.testing.assert_array_equal(positions[seen], keys[seen] // 10)
