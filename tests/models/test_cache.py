"""The cache of decoding: what settles, and what is dropped."""

import numpy as np
import pytest
from keras import ops

from t2t_repro.models.cache import Cache


@pytest.fixture
def cache():
    """One layer, one head, keys of 1; 2 sentences, 2 beams, room for 2.

    Keys are 10 * position + beam, and values the same below zero. In the first
    sentence both hypotheses of position 1 come from beam 1, in the second each
    stays where it is.
    """
    memory = (np.zeros((2, 1, 3, 1)), np.zeros((2, 1, 3, 1)))
    mask = np.ones((2, 1, 1, 3), bool)
    empty = Cache.empty([memory], mask, 2, 2, "float32")
    return _two_steps(empty, [[1, 1], [0, 1]], 0)


def _two_steps(cache, parents, first):
    """`cache` with positions `first` and the next, which has these parents."""
    slots = [10 * (first + i) + beam for i in range(2) for beam in range(2)]
    keys = np.tile(np.float32(slots)[None, None, :, None], (2, 1, 1, 1))
    cache = cache._replace(keys=(keys,), values=(-keys,))
    stay = np.tile(np.arange(2, dtype="int32"), (2, 1))
    cache = cache.follow(stay, first)
    return cache.follow(np.array(parents, "int32"), first + 1)


def test_hypotheses_see_themselves_and_their_ancestors(cache):
    seen, distances = cache.sight(1, reach=0)
    np.testing.assert_array_equal(
        seen[:, 0],
        [[[0, 1, 1, 0], [0, 1, 0, 1]], [[1, 0, 1, 0], [0, 1, 0, 1]]],
    )
    np.testing.assert_array_equal(distances, [[-1, -1, 0, 0]] * 2)


def test_what_is_written_where(cache):
    """Rows of 2 positions for each of 2 sentences."""
    np.testing.assert_array_equal(cache.rows(2), [[0], [2]])
    np.testing.assert_array_equal(cache.rows(3), [[1], [3]])


def test_what_nobody_has_seen_does_not_settle(cache):
    """The second sentence has seen all 4 slots, the first one 3 of them."""
    settled = cache.settle()
    keys = ops.convert_to_numpy(settled.past_keys[0])[:, 0, :, 0]
    assert keys[0, :3].tolist() == [1, 10, 11]
    assert keys[1].tolist() == [0, 1, 10, 11]
    values = ops.convert_to_numpy(settled.past_values[0])[:, 0, :, 0]
    np.testing.assert_array_equal(values, -keys)
    seen = ops.convert_to_numpy(settled.seen)
    assert seen.shape == (2, 2, 4 + 4)
    np.testing.assert_array_equal(seen[0, :, :4], [[1, 1, 0, 0], [1, 0, 1, 0]])
    assert not seen[:, :, 4:].any()
    positions = ops.convert_to_numpy(settled.positions)
    assert positions[0, :3].tolist() == [0, 1, 1]
    assert positions[1].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_ancestors_in_common_leave_a_slot_a_position(cache):
    """Once all hypotheses come from one, the past is that one's alone."""
    settled = _two_steps(cache.settle(), [[0, 0], [1, 1]], 2).settle()
    past = ops.shape(settled.past_keys[0])[2]
    seen = ops.convert_to_numpy(settled.seen)[..., :past]
    keys = ops.convert_to_numpy(settled.past_keys[0])[:, 0, :, 0]
    for sentence, beam, expected in (
        (0, 0, [1, 10, 20, 30]),
        (0, 1, [1, 10, 20, 31]),
        (1, 0, [1, 11, 21, 30]),
        (1, 1, [1, 11, 21, 31]),
    ):
        assert keys[sentence, seen[sentence, beam]].tolist() == expected
    assert past == 5


def test_nothing_beyond_reach_is_seen(cache):
    seen, _ = cache.sight(1, reach=1)
    assert not ops.convert_to_numpy(seen)[..., :2].any()


def test_no_sentences_settle(cache):
    """As at the end of a search."""
    memory = (np.zeros((0, 1, 3, 1)), np.zeros((0, 1, 3, 1)))
    mask = np.ones((0, 1, 1, 3), bool)
    settled = Cache.empty([memory], mask, 2, 2, "float32").settle()
    assert ops.shape(settled.past_keys[0]) == (0, 1, 0, 1)
