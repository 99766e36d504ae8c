"""Tests of shards: all rows come back in order; numbers of threads."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import graph
from t2t_repro.decoding import shards


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
        result = shards.map_shards(function, (rows, 10 * rows), (), num_shards)
        np.testing.assert_array_equal(result["sum"], 11 * rows)
        np.testing.assert_array_equal(result["half"], rows[:, 0] / 2)
        expected = max(1, min(num_shards, batch // shards.MIN_SENTENCES))
        used = [size for size in sizes if size]
        assert len(used) == (expected if batch else 0)
        assert max(used, default=0) - min(used, default=0) <= 1


@pytest.mark.parametrize(
    ("threads", "gpus", "expected"),
    [(3, [], 3), (64, [], shards.MAX_SHARDS), (3, ["GPU:0"], 1)],
)
def test_default_is_one_shard_per_thread(monkeypatch, threads, gpus, expected):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.setattr(
        tf.config.threading,
        "get_inter_op_parallelism_threads",
        lambda: threads,
    )
    assert shards.default_num_shards() == expected


def test_default_follows_the_variable_of_the_user(monkeypatch):
    getter = "get_inter_op_parallelism_threads"
    monkeypatch.setattr(tf.config.threading, getter, lambda: 0)
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "5")
    assert shards.default_num_shards() == 5


@pytest.mark.parametrize(
    ("gpus", "expected", "workers"),
    [(["a", "b"], ["b", "a", "b"], 2), ([], [], 3)],
    ids=["two GPUs", "no GPU"],
)
def test_processes_share_gpus_in_turn(monkeypatch, gpus, expected, workers):
    used, growing = [], []
    config = tf.config
    monkeypatch.setattr(config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.setattr(
        config, "set_visible_devices", lambda gpu, kind: used.append(gpu)
    )
    monkeypatch.setattr(
        config.experimental,
        "set_memory_growth",
        lambda gpu, grows: growing.append(gpu),
    )
    monkeypatch.setattr(
        config.threading, "get_inter_op_parallelism_threads", lambda: 3
    )
    for index in (1, 2, 3):
        shards.use_one_gpu(index)
    assert used == growing == expected
    assert shards.default_num_workers() == workers


def test_user_setting_of_threads_takes_precedence(monkeypatch):
    calls = []
    monkeypatch.setattr(
        tf.config.threading,
        "set_intra_op_parallelism_threads",
        calls.append,
    )
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    shards.use_one_thread_per_operation()
    assert calls == []
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    shards.use_one_thread_per_operation()
    assert calls == [1]


@pytest.mark.parametrize(
    ("num_weights", "expected"),
    [(8_000_000, {"intra": [1], "inter": [1]}), (63_000_000, {})],
)
def test_single_sentences_of_small_models_have_one_thread(
    monkeypatch, num_weights, expected
):
    calls = {}
    for kind in ("intra", "inter"):
        monkeypatch.delenv(f"TF_NUM_{kind.upper()}OP_THREADS", raising=False)
        monkeypatch.setattr(
            tf.config.threading,
            f"set_{kind}_op_parallelism_threads",
            calls.setdefault(kind, []).append,
        )
    shards.choose_threads_for_one_sentence(num_weights)
    assert {kind: counts for kind, counts in calls.items() if counts} == (
        expected
    )


@pytest.mark.slow
def test_operations_of_a_new_process_have_one_thread():
    code = (
        "import tensorflow as tf; from t2t_repro.decoding import shards; "
        "shards.use_one_thread_per_operation(); "
        "print(tf.config.threading.get_intra_op_parallelism_threads())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["1"]
