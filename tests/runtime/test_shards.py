"""Tests of shards: all rows come back in order, one shard per thread."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.runtime import devices, graph


@pytest.mark.parametrize("num_shards", [1, 2, 5])
def test_map_shards_keeps_order_of_rows(num_shards):
    """Any batch gives balanced shards, of at least MIN_SENTENCES."""
    sizes = []

    def halve(rows, others):
        size = tf.shape(rows)[0]
        record = tf.py_function(lambda n: sizes.append(int(n)), [size], [])
        with tf.control_dependencies([record]):
            return {"sum": rows + others, "half": rows[:, 0] / 2}

    function = graph.function(
        halve, input_signature=[tf.TensorSpec([None, 2], tf.int32)] * 2
    )
    for batch in (0, 1, 7, 8, 15, 16, 17, 41):
        sizes.clear()
        rows = np.arange(2 * batch, dtype=np.int32).reshape(batch, 2)
        result = devices.map_shards(function, (rows, 10 * rows), (), num_shards)
        np.testing.assert_array_equal(result["sum"], 11 * rows)
        np.testing.assert_array_equal(result["half"], rows[:, 0] / 2)
        expected = max(1, min(num_shards, batch // devices.MIN_SENTENCES))
        used = [size for size in sizes if size]
        assert len(used) == (expected if batch else 0)
        assert max(used, default=0) - min(used, default=0) <= 1


@pytest.mark.parametrize(
    ("threads", "gpus", "expected"),
    [(3, [], 3), (64, [], devices.MAX_SHARDS), (3, ["GPU:0"], 1)],
)
def test_default_is_one_shard_per_thread(monkeypatch, threads, gpus, expected):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.setattr(
        tf.config.threading,
        "get_inter_op_parallelism_threads",
        lambda: threads,
    )
    assert devices.default_num_shards() == expected


def test_default_follows_the_variable_of_the_user(monkeypatch):
    getter = "get_inter_op_parallelism_threads"
    monkeypatch.setattr(tf.config.threading, getter, lambda: 0)
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "5")
    assert devices.default_num_shards() == 5
