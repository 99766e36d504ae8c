"""Shards of a batch: all rows, once, in order, whatever their number."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding import shards


@pytest.mark.parametrize("number", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [0, 1, 7, 8, 15, 16, 17, 41])
def test_rows_come_back_in_order(batch, number):
    sizes = []

    def halve(rows, others):
        count = tf.shape(rows)[0]
        note = tf.py_function(lambda n: sizes.append(int(n)), [count], [])
        with tf.control_dependencies([note]):
            return {"sum": rows + others, "half": rows[:, 0] / 2}

    rows = np.arange(2 * batch, dtype=np.int32).reshape(batch, 2)
    found = tf.function(
        lambda *rows: shards.map_shards(halve, rows, number),
        input_signature=[tf.TensorSpec([None, 2], tf.int32)] * 2,
    )(rows, 10 * rows)
    np.testing.assert_array_equal(found["sum"], 11 * rows)
    np.testing.assert_array_equal(found["half"], rows[:, 0] / 2)
    wanted = max(1, min(number, batch // shards.MIN_SENTENCES))
    used = [size for size in sizes if size]
    assert len(used) == (wanted if batch else 0)
    assert max(used, default=0) - min(used, default=0) <= 1


def threads(inter_op=3, **env):
    """Of one operation, and shards, in a process that has just started."""
    code = (
        "import tensorflow as tf; from t2t_repro.decoding import shards; "
        "shards.use_one_thread_per_operation(); "
        f"tf.config.threading.set_inter_op_parallelism_threads({inter_op}); "
        "print(tf.config.threading.get_intra_op_parallelism_threads(), "
        "shards.default_num_shards())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | env,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_an_operation_has_a_thread_unless_the_user_says_otherwise():
    assert threads() == ["1", "3"]
    assert threads(64, TF_NUM_INTRAOP_THREADS="2") == [
        "0",
        str(shards.MAX_SHARDS),
    ]
