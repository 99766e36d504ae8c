"""Features of CPUs, the use of oneDNN, and limits of containers."""

import os
from unittest import mock

import pytest

from t2t_repro.runtime import cpu, tensorflow_import

AVX2 = {"avx", "avx2", "fma"}
SKYLAKE = AVX2 | {"avx512f", "avx512bw"}
CASCADE_LAKE = SKYLAKE | {"avx512_vnni"}
ZEN_4 = CASCADE_LAKE | {"avx512_bf16"}
SAPPHIRE_RAPIDS = ZEN_4 | {"amx_tile", "amx_int8", "amx_bf16"}
ALDER_LAKE = AVX2 | {"avx_vnni"}
OLD = {"avx"}
NO_X86: set = set()  # ARM, or not Linux


@pytest.mark.parametrize(
    ("features", "name", "has_bfloat16", "needed", "used"),
    [
        (AVX2, "AVX2", False, True, False),
        (SKYLAKE, "AVX512", False, True, False),
        (CASCADE_LAKE, "AVX512", False, False, True),
        (ZEN_4, "AVX512_BF16", True, False, True),
        (SAPPHIRE_RAPIDS, "AMX", True, False, True),
        (ALDER_LAKE, "AVX2", False, False, True),
        (OLD, "AVX", False, False, False),
        (NO_X86, "", False, False, False),
    ],
)
def test_features_tell_instructions_and_the_need_of_onednn(
    features, name, has_bfloat16, needed, used
):
    """It is needed where TensorFlow does not switch it on."""
    assert cpu.instruction_set(features) == name
    assert cpu.has_fast_bfloat16(features) == has_bfloat16
    assert cpu.needs_onednn(features, {}) == needed
    assert cpu.uses_onednn(features, {}) == used


@pytest.mark.parametrize(
    ("features", "setting", "used"),
    [
        (AVX2, "0", False),
        (ZEN_4, "0", False),
        (AVX2, "true", True),
        (ZEN_4, "perhaps", True),
    ],
)
def test_onednn_follows_a_setting_of_the_user(features, setting, used):
    environment = {cpu.ONEDNN: setting}
    assert not cpu.needs_onednn(features, environment)
    assert cpu.uses_onednn(features, environment) == used


def test_import_switches_onednn_on_unless_the_user_has_set_it(monkeypatch):
    monkeypatch.setattr(cpu, "features", lambda: AVX2)
    monkeypatch.setattr(tensorflow_import.sys, "modules", {})
    monkeypatch.setattr(tensorflow_import.sys, "meta_path", [])
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.setenv(cpu.ONEDNN, "0")
    tensorflow_import.prepare()
    assert os.environ[cpu.ONEDNN] == "0"
    monkeypatch.delenv(cpu.ONEDNN)
    tensorflow_import.sys.modules["tensorflow"] = None  # too late
    tensorflow_import.prepare()
    assert cpu.ONEDNN not in os.environ
    tensorflow_import.sys.modules.clear()
    tensorflow_import.prepare()
    assert os.environ[cpu.ONEDNN] == "1"


@pytest.mark.parametrize(
    ("features", "limit", "name"),
    [
        (ZEN_4, "AVX2", "AVX2"),
        (ZEN_4, "avx2", "AVX2"),
        (AVX2, "AVX512", "AVX2"),
        (ZEN_4, "AVX512_CORE_VNNI", "AVX512_BF16"),
        (ZEN_4, None, "AVX512_BF16"),
        (NO_X86, "AVX2", ""),
    ],
)
def test_a_variable_may_limit_the_instruction_set(features, limit, name):
    environment = {cpu.ONEDNN_LIMIT: limit} if limit else {}
    assert cpu.onednn_instruction_set(features, environment) == name


def write_files(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


X86 = "processor : 0\nmodel name\t: A CPU\nflags\t\t: fpu avx2\n"
ARM = "processor : 0\nFeatures : fp asimd sve\n"


def test_features_and_model_are_read_from_cpuinfo(tmp_path):
    assert cpu.features(tmp_path) == frozenset()
    assert cpu.model(tmp_path)
    write_files(tmp_path, {"proc/cpuinfo": X86})
    assert cpu.features(tmp_path) == {"fpu", "avx2"}
    assert cpu.model(tmp_path) == "A CPU"
    write_files(tmp_path, {"proc/cpuinfo": ARM})
    assert cpu.features(tmp_path) == frozenset()


GROUPS_2 = {
    "proc/self/cgroup": "0::/pod/container\n",
    "sys/fs/cgroup/pod/cpu.max": "250000 100000\n",
    "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
    "sys/fs/cgroup/pod/memory.max": "4000000000\n",
    "sys/fs/cgroup/pod/container/memory.max": "max\n",
}
GROUPS_1 = {
    "proc/self/cgroup": "4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n",
    "sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us": "250000\n",
    "sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "4000000000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
}
UNLIMITED = {
    "proc/self/cgroup": "0::/\n",
    "sys/fs/cgroup/cpu.max": "max 100000\n",
}


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        (GROUPS_2, 2.5, 4_000_000_000),
        (GROUPS_1, 2.5, 4_000_000_000),
        (UNLIMITED, None, None),
        ({}, None, None),
    ],
    ids=["version 2", "version 1", "no limit", "no groups"],
)
def test_limits_of_a_container_are_the_lowest(tmp_path, files, cores, memory):
    write_files(tmp_path, files)
    assert cpu.core_limit(tmp_path) == cores
    assert cpu.memory_limit(tmp_path) == memory


def test_threads_are_those_of_the_container(monkeypatch):
    monkeypatch.setattr(cpu, "visible_cores", lambda: 64)
    monkeypatch.setattr(cpu, "core_limit", lambda: None)
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "5")
    config = mock.Mock()
    tensorflow_import.limit_threads(config)
    assert not config.mock_calls
    monkeypatch.setattr(cpu, "core_limit", lambda: 1.5)
    assert cpu.usable_cores() == 2
    tensorflow_import.limit_threads(config)
    assert config.mock_calls == [
        mock.call.threading.set_inter_op_parallelism_threads(2)
    ]
