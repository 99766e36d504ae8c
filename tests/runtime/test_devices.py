"""Replicas, precision, XLA and threads by the machine; shards of a batch."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.runtime import devices, graph


@pytest.fixture
def threads(monkeypatch):
    """Replace TensorFlow's threads, of which it chooses the numbers: 0."""
    counts = {"intra": 0, "inter": 0}
    fake = types.SimpleNamespace()
    for kind in counts:
        monkeypatch.delenv(f"TF_NUM_{kind.upper()}OP_THREADS", raising=False)
        name = f"{kind}_op_parallelism_threads"
        setattr(fake, f"get_{name}", functools.partial(counts.get, kind))
        setter = functools.partial(counts.__setitem__, kind)
        setattr(fake, f"set_{name}", setter)
    monkeypatch.setattr(tf.config, "threading", fake)
    return counts


@pytest.mark.parametrize(
    ("gpus", "expected", "workers"),
    [(["a", "b"], ["b", "a", "b"], 2), ([], [], 3)],
    ids=["two GPUs", "no GPU"],
)
def test_processes_share_gpus_in_turn(
    monkeypatch, threads, gpus, expected, workers
):
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
    for index in (1, 2, 3):
        devices.use_one_gpu(index)
    assert used == growing == expected
    threads["inter"] = 3
    assert devices.default_num_workers() == workers


def test_user_setting_of_threads_takes_precedence(monkeypatch, threads):
    devices.use_one_thread_per_operation()
    assert threads == {"intra": 1, "inter": 0}
    assert devices.operation_threads() == 1
    threads["intra"] = 0
    assert devices.operation_threads() == devices.cpu.visible_cores()
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    devices.use_one_thread_per_operation()
    assert devices.operation_threads() == 2 and threads["intra"] == 0
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "5")
    assert devices.default_num_shards() == 5


@pytest.mark.parametrize(("num_weights", "count"), [(8e6, 1), (63e6, 0)])
def test_sentences_of_small_models_have_one_thread(threads, num_weights, count):
    devices.choose_threads_for_one_sentence(num_weights)
    assert threads == {"intra": count, "inter": count}


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
    ).get_concrete_function()
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
    ("number", "gpus", "expected"),
    [(3, [], 3), (64, [], devices.MAX_SHARDS), (3, ["GPU:0"], 1)],
)
def test_default_is_one_shard_per_thread(
    monkeypatch, threads, number, gpus, expected
):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    threads["inter"] = number
    assert devices.default_num_shards() == expected


@pytest.fixture
def machine(monkeypatch):
    """Return a function that simulates CPUs, and GPUs with capabilities."""

    def pretend(cpus=1, gpus=()):
        def physical(kind=None):
            return [f"gpu:{i}" for i in range(len(gpus))] * (kind == "GPU")

        def logical(kind):
            real = list_logical("CPU")[:cpus]
            return real[: len(gpus)] if kind == "GPU" else real

        list_logical = tf.config.list_logical_devices
        details = {
            f"gpu:{i}": {"compute_capability": capability, "device_name": "X"}
            if capability
            else {}
            for i, capability in enumerate(gpus)
        }
        monkeypatch.setattr(tf.config, "list_physical_devices", physical)
        monkeypatch.setattr(tf.config, "list_logical_devices", logical)
        monkeypatch.setattr(
            tf.config.experimental, "get_device_details", details.get
        )

    return pretend


@pytest.mark.parametrize(
    ("distribution", "cpus", "replicas", "mirrored"),
    [
        ("auto", 1, 1, False),
        ("auto", 4, 4, True),
        ("one_device", 4, 1, False),
        ("mirrored", 2, 2, True),
        ("mirrored", 1, 1, True),
    ],
)
def test_strategy_follows_distribution_and_devices(
    machine, distribution, cpus, replicas, mirrored
):
    machine(cpus=cpus)
    strategy = devices.strategy(distribution)
    assert strategy.num_replicas_in_sync == replicas
    assert isinstance(strategy, tf.distribute.MirroredStrategy) == mirrored


@pytest.mark.parametrize(
    ("function", "choice", "gpus", "expected"),
    [
        (devices.use_xla, "auto", [], False),
        (devices.use_xla, "auto", [(7, 0)], True),
        (devices.use_xla, "on", [], True),
        (devices.use_xla, "off", [(8, 0)], False),
        (devices.dtype_policy, "auto", [], "float32"),
        (devices.dtype_policy, "auto", [(7, 5)], "float32"),
        (devices.dtype_policy, "auto", [(8, 0)], "mixed_bfloat16"),
        (devices.dtype_policy, "auto", [(9, 0), (8, 9)], "mixed_bfloat16"),
        (devices.dtype_policy, "auto", [(9, 0), (7, 0)], "float32"),
        (devices.dtype_policy, "auto", [None], "float32"),
        (devices.dtype_policy, "bfloat16", [], "mixed_bfloat16"),
        (devices.dtype_policy, "float32", [(9, 0)], "float32"),
    ],
)
def test_auto_compiles_on_gpus_and_is_bfloat16_if_all_have_it(
    machine, function, choice, gpus, expected
):
    machine(gpus=gpus)
    assert function(choice) == expected


def test_hardware_summary_says_how_to_find_a_gpu_that_has_a_driver(
    machine, monkeypatch, tmp_path
):
    machine()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices.tensorflow_import, "NVIDIA_DRIVER", tmp_path)
    strategy = devices.strategy("one_device")
    line = devices.summary(strategy, "float32", False)
    assert "1 replica on one CPU (TensorFlow finds no GPU. " in line
    assert "pip install" in line
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "pip" not in devices.summary(strategy, "float32", False)


def test_hardware_summary_has_replicas_cpu_precision_xla(machine, monkeypatch):
    features = {"avx2", "avx512f", "avx512_bf16"}
    monkeypatch.setattr(devices.cpu, "features", lambda: features)
    monkeypatch.setattr(devices, "operation_threads", lambda: 3)
    monkeypatch.delenv(devices.cpu.ONEDNN, raising=False)
    machine(cpus=4)
    assert devices.summary(
        devices.strategy("one_device"), "float32", False
    ) == (
        "1 replica on one CPU, AVX512_BF16, oneDNN on, 3 threads, float32, "
        "XLA off"
    )
    features.clear()  # not an x86 CPU on Linux
    assert devices.summary(devices.strategy(), "float32", False) == (
        "4 replicas on CPUs (MirroredStrategy), 3 threads, float32, XLA off"
    )
    machine(cpus=2, gpus=[(8, 0), (8, 0)])
    assert devices.summary(devices.strategy(), "mixed_bfloat16", True) == (
        "2 replicas on GPUs (X, MirroredStrategy), mixed_bfloat16, XLA on"
    )


@pytest.mark.parametrize(
    ("capability", "override", "expected"),
    [
        ((8, 0), None, "float32 with products in TF32"),
        ((8, 0), "0", "float32"),
        ((7, 0), None, "float32"),
    ],
)
def test_hardware_summary_names_tf32(
    machine, monkeypatch, capability, override, expected
):
    if override:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    machine(cpus=1, gpus=[capability])
    strategy = devices.strategy("one_device")
    line = devices.summary(strategy, "float32", False)
    assert line == f"1 replica on one GPU (X), {expected}, XLA off"


@pytest.mark.parametrize(
    ("cores", "intra", "inter", "expected"),
    [
        (2, 1, 0, 2),
        (2, 2, 0, 1),  # operations share the cores
        (8, 2, 8, 4),
        (8, 1, 0, 4),
        (4, 1, 3, 3),  # so many threads begin operations
        (1, 4, 4, 1),
    ],
)
def test_microbatches_run_in_parallel_where_operations_have_few_threads(
    machine, monkeypatch, threads, cores, intra, inter, expected
):
    machine(cpus=2)
    monkeypatch.setattr(devices.cpu, "usable_cores", lambda: cores)
    threads |= {"intra": intra, "inter": inter}
    strategy = devices.strategy("one_device")
    assert devices.parallel_microbatches(strategy, xla=False) == expected
    assert devices.parallel_microbatches(strategy, xla=True) == 1
    assert devices.parallel_microbatches(devices.strategy(), False) == 1
    machine(gpus=[(8, 0)])
    assert devices.parallel_microbatches(strategy, False) == 1


@pytest.mark.parametrize(
    ("cores", "gpus", "distribution", "xla", "expected"),
    [
        (2, [], "auto", "auto", 1),
        (4, [], "one_device", "off", 1),
        (5, [], "auto", "auto", 0),
        (2, [(8, 0)], "auto", "auto", 0),
        (2, [], "multi_worker", "auto", 0),
        (2, [], "auto", "on", 0),
    ],
)
def test_operations_have_one_thread_where_microbatches_can_have_the_cores(
    machine, monkeypatch, threads, cores, gpus, distribution, xla, expected
):
    machine(gpus=gpus)
    monkeypatch.setattr(devices.cpu, "usable_cores", lambda: cores)
    devices.choose_threads(distribution, xla)
    assert threads == {"intra": expected, "inter": 0}


def test_peak_of_a_product_is_measured_on_cpus_only(machine):
    assert devices.cpu_product_flops("mixed_bfloat16") > 0
    machine(gpus=[(8, 0)])
    assert devices.cpu_product_flops("mixed_bfloat16") is None
