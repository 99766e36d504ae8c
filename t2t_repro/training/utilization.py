"""Utilization of the machine: memory, and the peak of its arithmetic."""

import os
import re
import resource
import sys
from typing import NamedTuple

import tensorflow as tf


class PeakFlops(NamedTuple):
    """Published dense matrix-multiply rates of a GPU, in TFLOP/s."""

    half: float  # bfloat16 if supported, and float16, summed in float32
    single: float  # TF32 if supported, as TensorFlow computes; else float32


# The first name that is part of a device's name applies. Source: NVIDIA's data
# sheets; those of Ada and Hopper state twice these rates, with sparsity.
PEAKS = {
    "H200": PeakFlops(989.4, 494.7),
    "H100 PCIe": PeakFlops(756.5, 378.0),
    "H100 NVL": PeakFlops(835.5, 417.5),
    "H100": PeakFlops(989.4, 494.7),
    "A100": PeakFlops(312.0, 156.0),
    "A40": PeakFlops(149.7, 74.8),
    "A30": PeakFlops(165.0, 82.0),
    "A10": PeakFlops(125.0, 62.5),
    "L40S": PeakFlops(362.0, 183.0),
    "L40": PeakFlops(181.0, 90.5),
    "L4": PeakFlops(121.0, 60.0),
    "RTX 4090": PeakFlops(165.2, 82.6),  # white paper of AD102
    "RTX 3090": PeakFlops(71.0, 35.6),  # white paper of GA102
    "V100-SXM2": PeakFlops(125.0, 15.7),
    "V100-PCIE": PeakFlops(112.0, 14.0),
    "T4": PeakFlops(65.0, 8.1),
    "P100-SXM2": PeakFlops(21.2, 10.6),
    "P100-PCIE": PeakFlops(18.7, 9.3),
}


def peak_flops(policy: str, replicas: int) -> float | None:
    """Return the FLOP/s of all replicas, or None without a known GPU.

    Args:
        policy: Keras's dtype policy.
        replicas: number of GPUs of all machines that train; all are assumed to
            be like those of this machine.
    """
    gpus = tf.config.list_physical_devices("GPU")
    peaks = [
        named_peak(
            tf.config.experimental.get_device_details(gpu).get(
                "device_name", ""
            )
        )
        for gpu in gpus
    ]
    if not peaks or None in peaks:
        return None
    kind = "single" if policy == "float32" else "half"
    mean = sum(getattr(peak, kind) for peak in peaks) / len(peaks)
    return 1e12 * mean * replicas


def named_peak(device_name: str) -> PeakFlops | None:
    """Return PEAKS["A100"] for "NVIDIA A100-SXM4-40GB"; None if unknown."""
    for name, peak in PEAKS.items():
        if re.search(rf"\b{name}\b", device_name):
            return peak
    return None


def host_memory() -> int:
    """Return the bytes of this process in memory.

    Linux reports the present size; macOS the largest so far, in bytes.
    """
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def device_memory() -> int | None:
    """Return the highest peak of bytes on any GPU, or None without a GPU."""
    gpus = tf.config.list_logical_devices("GPU")
    peaks = [
        tf.config.experimental.get_memory_info(gpu.name)["peak"] for gpu in gpus
    ]
    return max(peaks, default=None)
