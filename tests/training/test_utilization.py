"""Memory in use, and peak rates by the names of devices."""

import types

import pytest
import tensorflow as tf

from t2t_repro.training import train_log


@pytest.fixture
def gpus(monkeypatch):
    """Return a function that simulates GPUs of the given names."""
    config = tf.config

    def find(*names):
        devices = [types.SimpleNamespace(name=name) for name in names]
        listed = {"GPU": devices, "CPU": []}
        for kind in ("physical", "logical"):
            monkeypatch.setattr(config, f"list_{kind}_devices", listed.get)
        monkeypatch.setattr(
            config.experimental,
            "get_device_details",
            lambda gpu: {"device_name": gpu.name} if gpu.name else {},
        )

    return find


@pytest.mark.parametrize(
    ("names", "policy", "replicas", "peak"),
    [
        (["NVIDIA A100-SXM4-40GB"] * 2, "mixed_bfloat16", 2, 624e12),
        # One replica; and two machines with two GPUs each.
        (["NVIDIA A100-SXM4-40GB"] * 2, "mixed_bfloat16", 1, 312e12),
        (["NVIDIA A100-SXM4-40GB"] * 2, "mixed_bfloat16", 4, 1248e12),
        (["NVIDIA A100-SXM4-40GB"], "float32", 1, 156e12),
        (["Tesla T4"], "mixed_float16", 1, 65e12),
        # Names may begin alike.
        (["NVIDIA L40"], "mixed_bfloat16", 1, 181e12),
        (["NVIDIA L40S"], "mixed_bfloat16", 1, 362e12),
        (["Tesla V100-SXM2-16GB"], "mixed_float16", 1, 125e12),
        (["NVIDIA A10G"], "float32", 1, None),
        (["NVIDIA T400"], "float32", 1, None),
        (["Tesla T4", "a new one"], "float32", 2, None),
        ([""], "float32", 1, None),
        ([], "float32", 1, None),
    ],
)
def test_peak_flops_are_of_all_replicas(gpus, names, policy, replicas, peak):
    gpus(*names)
    assert train_log.peak_flops(policy, replicas) == peak


def test_device_memory_is_the_highest_peak(gpus, monkeypatch):
    used = {"a": {"current": 1, "peak": 5}, "b": {"current": 3, "peak": 4}}
    monkeypatch.setattr(
        tf.config.experimental, "get_memory_info", used.__getitem__
    )
    gpus("a", "b")
    assert train_log.peak_device_memory() == 5
    gpus()
    assert train_log.peak_device_memory() is None
