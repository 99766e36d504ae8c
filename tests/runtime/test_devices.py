"""Tests of threads and GPUs of searches, which settings of users override."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from t2t_repro.runtime import devices


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
        devices.use_one_gpu(index)
    assert used == growing == expected
    assert devices.default_num_workers() == workers


def test_user_setting_of_threads_takes_precedence(monkeypatch):
    calls = []
    monkeypatch.setattr(
        tf.config.threading,
        "set_intra_op_parallelism_threads",
        calls.append,
    )
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    devices.use_one_thread_per_operation()
    assert calls == []
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    devices.use_one_thread_per_operation()
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
    devices.choose_threads_for_one_sentence(num_weights)
    assert {kind: counts for kind, counts in calls.items() if counts} == (
        expected
    )


@pytest.mark.slow
def test_operations_of_a_new_process_have_one_thread():
    code = (
        "import tensorflow as tf; from t2t_repro.runtime import devices; "
        "devices.use_one_thread_per_operation(); "
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
