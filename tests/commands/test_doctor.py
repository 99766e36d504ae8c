"""The doctor's report of simulated machines, and of this one."""

import json
import re

import pytest
from forked import ROOT

from t2t_repro import doctor

GIGABYTE = 10**9


def facts(**changes):
    """Return the facts of a machine about which there is nothing to say."""
    machine = {
        "cpu": {
            "cores": 2,
            "load": 0.0,
            "instruction_set": "AVX512_BF16",
            "onednn": True,
            "gflops": {"float32": 100.0, "bfloat16": 100.0},
        },
        "memory": {"total": 16 * GIGABYTE, "limit": None},
        "gpus": {},
        "disk": {"run": {"free": 100 * GIGABYTE, "total": 200 * GIGABYTE}},
        "environment": {},
    }
    return {name: machine[name] | changes.get(name, {}) for name in machine}


@pytest.fixture
def no_driver(monkeypatch, tmp_path):
    path = tmp_path / "absent"
    monkeypatch.setattr(doctor.tensorflow_import, "NVIDIA_DRIVER", path)


@pytest.mark.parametrize(
    ("section", "change", "words"),
    [
        ("cpu", {"onednn": False}, "unset TF_ENABLE_ONEDNN_OPTS"),
        ("cpu", {"load": 5.0}, "load 5.0 on 2 cores"),
        (
            "cpu",
            {"gflops": {"float32": 100.0, "bfloat16": 210.0}},
            "2.1 times as fast in bfloat16: .*--mixed_precision=bfloat16",
        ),
        ("environment", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, "hides instructions"),
        ("environment", {"KERAS_BACKEND": "jax"}, "KERAS_BACKEND=jax"),
        ("memory", {"limit": GIGABYTE}, "1.0 GB .* --max_tokens_per_replica"),
        (
            "disk",
            {"run": {"free": 15 * GIGABYTE, "total": 99 * GIGABYTE}},
            "disk of run has 15.0 GB free.* needs 16.* --output_dir",
        ),
    ],
)
def test_advice_names_reason_and_setting(no_driver, section, change, words):
    assert list(doctor.advice(facts())) == []
    (sentence,) = doctor.advice(facts(**{section: change}))
    assert re.search(words, sentence)


def test_advice_for_a_gpu_that_tensorflow_does_not_find(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.tensorflow_import, "NVIDIA_DRIVER", tmp_path)
    (sentence,) = doctor.advice(facts())
    assert "CUDA's libraries: pip install" in sentence
    hidden = facts(environment={"CUDA_VISIBLE_DEVICES": ""})
    (sentence,) = doctor.advice(hidden)
    assert "Unset it" in sentence


def test_missing_package_and_unwritable_folder_are_problems(
    no_driver, monkeypatch, tmp_path
):
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: ["absent>=1"])
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    found = doctor.diagnose([tmp_path / "new" / "run"])
    assert found.problems == [
        "absent is not installed. Install t2t_repro again.",
        f"{tmp_path} is not writable. Give this user access to it, or name "
        "another folder.",
    ]
    assert not (tmp_path / "new").exists()


def test_extra_of_a_requirement_needs_its_packages(monkeypatch):
    required = {
        "t2t_repro": ['big[fast,x]<2,>=1; extra == "gpu"', "small>=1"],
        "big": ["chip<13; extra == 'fast'", "other"],
    }
    monkeypatch.setattr(doctor.metadata, "requires", required.get)
    assert [*doctor.requirements("t2t_repro")] == ["small"]
    assert [*doctor.requirements("t2t_repro", "gpu")] == ["big", "chip"]


def test_doctor_prints_a_report_or_json(run, tmp_path):
    output = run("doctor", f"--output_dir={tmp_path / 'new'}").stdout
    for word in ("Versions", "tensorflow", "CPU", "GFLOP/s", "Disk", "new"):
        assert word in output
    assert "No problem found." in output
    assert max(map(len, output.splitlines())) <= 120
    usr = f"--usr_dir={ROOT / 'tests' / 'toys'}"
    found = json.loads(
        run("doctor", "--json", usr, "--hparams_set=toy_gru").stdout
    )
    assert found["problems"] == []
    assert found["facts"]["cpu"]["gflops"]["float32"] > 0
    model = found["facts"]["model"]
    assert model["bfloat16"] == "follows the rules of docs/models.md"


@pytest.mark.parametrize(
    ("end", "found"),
    [("exit 0", {"GPU:0": "A100"}), ("exit 9", {}), ("exec sleep 3600", {})],
)
def test_driver_that_fails_has_no_gpus(monkeypatch, tmp_path, end, found):
    if "sleep" in end:
        monkeypatch.setattr(doctor, "_DRIVER_SECONDS", 0.1)
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho A100\n{end}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert doctor._driver() == found


def test_model_that_breaks_a_rule_is_a_problem(run, tmp_path):
    gru = (ROOT / "tests" / "toys" / "gru.py").read_text("utf-8")
    (tmp_path / "mine.py").write_text(
        gru.replace("toy_gru", "mine").replace(
            "def decode_step(self, ids, step, state):",
            "def decode_step(self, ids, step, state):\n        step = 1",
        )
    )
    arguments = (f"--usr_dir={tmp_path}", "--hparams_set=mine")
    result = run("doctor", *arguments, "--json")
    found = json.loads(result.stdout)
    assert result.returncode == 1
    assert found["facts"]["model"] == {
        "name": "mine",
        "float32": "breaks a rule",
        "bfloat16": "breaks a rule",
    }
    assert "In float32: The model 'mine' breaks a" in found["problems"][0]
