"""Features of the CPU, the limits of its container, and oneDNN."""

import math
import os
import pathlib
import platform
from collections.abc import Collection, Iterator, Mapping

ONEDNN = "TF_ENABLE_ONEDNN_OPTS"  # variable that switches oneDNN on or off
ONEDNN_LIMIT = "ONEDNN_MAX_CPU_ISA"  # its largest set of instructions
# TensorFlow's oneDNN is on by default if the CPU has one of these features
# (DefaultOneDnnPolicy in tensorflow/core/util/port.cc).
_ONEDNN_BY_DEFAULT = {
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
}
# Features of x86 in /proc/cpuinfo, with the names of sets of instructions.
_INSTRUCTION_SETS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX512_BF16",
    "avx512f": "AVX512",
    "avx2": "AVX2",
    "avx": "AVX",
}
_UNLIMITED = 2**60  # bytes; cgroups of version 1 have no word for it


def features(root: pathlib.Path = pathlib.Path("/")) -> frozenset[str]:
    """Return the features of an x86 CPU on Linux; elsewhere none."""
    return frozenset(_read(root / "proc/cpuinfo", "flags").split())


def model(root: pathlib.Path = pathlib.Path("/")) -> str:
    """Return the name of the CPU, or of its architecture."""
    return _read(root / "proc/cpuinfo", "model name") or platform.machine()


def _read(path, name):
    """Return the value of the first line "name : value", "" if there is none.

    On ARM, the line has another name than "flags". The file repeats the lines
    for each core, and every command reads it.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    return value.strip()
    except OSError:
        pass
    return ""


def instruction_set(features: Collection[str]) -> str:
    """Return the largest set of vector instructions, "" if it is unknown."""
    return next(
        (name for key, name in _INSTRUCTION_SETS.items() if key in features), ""
    )


def onednn_instruction_set(
    features: Collection[str], environment: Mapping[str, str]
) -> str:
    """Return the instruction_set() to which a variable may limit oneDNN.

    It is read at the first product of matrices.
    """
    largest = instruction_set(features)
    limit = environment.get(ONEDNN_LIMIT, "").upper()
    known = list(_INSTRUCTION_SETS.values())
    if limit in known and largest in known:
        return max(limit, largest, key=known.index)
    return largest


def has_fast_bfloat16(features: Collection[str]) -> bool:
    """Return whether the CPU multiplies matrices of bfloat16."""
    return instruction_set(features) in ("AMX", "AVX512_BF16")


def needs_onednn(
    features: Collection[str], environment: Mapping[str, str]
) -> bool:
    """Return whether oneDNN is to be switched on for TensorFlow.

    It is faster with AVX2, too, where TensorFlow leaves it off. A setting of
    the user is kept.
    """
    return (
        "avx2" in features
        and not _ONEDNN_BY_DEFAULT.intersection(features)
        and ONEDNN not in environment
    )


def uses_onednn(
    features: Collection[str], environment: Mapping[str, str]
) -> bool:
    """Return whether TensorFlow, which reads a variable, uses oneDNN on x86."""
    setting = environment.get(ONEDNN, "").lower()
    if setting in ("0", "false", "1", "true"):
        return setting in ("1", "true")
    return bool(_ONEDNN_BY_DEFAULT.intersection(features))


def visible_cores() -> int:
    """Return the number of cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores() -> int:
    """Return visible_cores(), or fewer if the container has less time."""
    visible = visible_cores()
    return min(visible, math.ceil(core_limit() or visible))


def core_limit(root: pathlib.Path = pathlib.Path("/")) -> float | None:
    """Return the cores' worth of time that the container has; None: all."""
    limits = []
    for folder in _control_groups("cpu", root):
        quota, period = (
            _numbers(folder / "cpu.max")
            or (
                *_numbers(folder / "cpu.cfs_quota_us"),
                *_numbers(folder / "cpu.cfs_period_us"),
            )
            or (-1, 1)
        )
        if quota > 0:  # -1 and "max" are no limit
            limits.append(quota / period)
    return min(limits, default=None)


def memory_limit(root: pathlib.Path = pathlib.Path("/")) -> int | None:
    """Return the bytes of memory that the container has; None: all."""
    limits = [
        number
        for folder in _control_groups("memory", root)
        for name in ("memory.max", "memory.limit_in_bytes")
        for number in _numbers(folder / name)
        if 0 < number < _UNLIMITED
    ]
    return min(limits, default=None)


def _control_groups(
    controller: str, root: pathlib.Path
) -> Iterator[pathlib.Path]:
    """Yield the folders of this process's control group and its parents.

    Version 2 has one tree of groups, version 1 one for each controller.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        tree = root / "sys/fs/cgroup" / (controller if controllers else "")
        group = pathlib.PurePosixPath(path)
        for folder in (group, *group.parents):
            yield tree / folder.relative_to("/")


def _numbers(path: pathlib.Path) -> tuple[int, ...]:
    """Return the numbers in a file, -1 for "max"; () if there is no file."""
    try:
        words = path.read_text("ascii").split()
    except OSError:
        return ()
    return tuple(-1 if word == "max" else int(word) for word in words)
