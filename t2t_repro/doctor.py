"""Show what this machine and installation offer, with advice.

    t2t doctor
    t2t doctor --output_dir=… --json
    t2t doctor --hparams_set=… --usr_dir=…

With --hparams_set it checks the rules of the model in float32 and in bfloat16,
with two vocabularies if --problem has them. The exit status is 1 if something
does not work, else 0.
"""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import flag
from t2t_repro.io import files, storage
from t2t_repro.runtime import cpu, tensorflow_import


@common_flags.options
class Options:
    """Options of doctor, each a flag of the same name."""

    json: bool = flag(False, "Print one JSON object instead.")


_LABELS = {
    "cpu": "CPU",
    "gpus": "GPUs",
    "driver": "GPUs of the driver",
    "core_limit": "limit of cores",
    "instruction_set": "instructions",
    "onednn": "oneDNN",
    "gflops": "GFLOP/s",
}
_PACKAGES = (  # whose versions are shown
    *("tensorflow", "keras", "tensorflow-text", "sentencepiece"),
    *("numpy", "pyarrow", "sacrebleu"),
)
# "name[extra]>=1,<2".
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?")
# Variables that change what TensorFlow uses.
# TF_CLI_… and TF_VAR_… are those of Terraform.
_VARIABLES = re.compile("(TF(?!_CLI|_VAR)|ONEDNN|OMP|CUDA|XLA|KERAS)_")
# A product in bfloat16 must be so many times as fast as one in float32 for a
# training to gain.
_WORTHWHILE = 1.2
_DRIVER_SECONDS = 20  # for nvidia-smi to answer
# 63 million parameters of base with Adam's moments, 12 bytes each, in 20 stored
# checkpoints and one that is written: 15.9 GB.
_BASE_GIGABYTES = 16


def main() -> int:
    # Mistakes in flags answer at once.
    is_model_named = any(
        flags.FLAGS[name].value
        for name in ("hparams_set", "hparams", "problem", "problem_args")
    )
    model = _model() if is_model_named else None
    found = diagnose(_folders())
    if model:
        _check_model(found, *model)
    if common_flags.field_values(Options).json:
        print(json.dumps(found._asdict(), default=str))
    else:
        print("\n".join(_lines(found)))
    return 1 if found.problems else 0


def _folders():
    folders = [pathlib.Path.cwd()]
    if data_dir := common_flags.given_data_dir():
        folders.append(storage.local_path(data_dir))
    if flags.FLAGS["output_dir"].present:
        folders.append(common_flags.output_dir())
    return folders


def _model():
    """Return the hparams that flags name, and whether vocabularies differ."""
    hparams = common_flags.hparams()
    if not flags.FLAGS["problem"].value:
        return hparams, False
    return hparams, common_flags.problem().separate_vocabularies


def _check_model(found, hparams, separate):
    """Add to a diagnosis whether the model follows the rules of models."""
    from t2t_repro.models import building
    from t2t_repro.training import model_check

    result = found.facts["model"] = {"name": hparams.model}
    policies = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
    if cpu.ONEDNN_LIMIT in os.environ:  # it ends the process in bfloat16
        del policies["bfloat16"]
    for name, policy in policies.items():
        try:
            model_check.check(hparams, policy, separate)
            result[name] = "follows the rules of docs/models.md"
        except errors.UserError as error:
            result[name] = "breaks a rule"
            found.problems.append(f"In {name}: {error}")
        except Exception as error:  # of the model's own code
            result[name] = "failed"
            traceback.print_exc()
            found.problems.append(f"In {name} the model raised {error!r}.")
    found.advice.extend(building.notes_of(hparams.model))


def _lines(found):
    for section, values in found.facts.items():
        if not values and section != "gpus":
            continue
        yield _LABELS.get(section, section.capitalize())
        labels = [_LABELS.get(name, name) for name in values]
        width = max(map(len, labels), default=0)
        for label, value in zip(labels, values.values(), strict=True):
            yield f"  {label:{width}}  {_text(section, value)}"
        if not values:
            yield "  none that TensorFlow can use"
        yield ""
    for title, sentences in (
        ("Problems", found.problems),
        ("Advice", found.advice),
    ):
        if sentences:
            yield title
            for sentence in sentences:
                # Commands stay whole.
                yield textwrap.fill(
                    sentence,
                    80,
                    initial_indent="  - ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            yield ""
    if not found.problems:
        yield "No problem found."


def _text(section, value):
    if value is None:
        return "no limit"
    if section == "memory":
        return files.size_text(value)
    if section == "disk":
        free, total = map(files.size_text, (value["free"], value["total"]))
        return f"{free} of {total} free"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {_text('', entry)}" for name, entry in value.items()
        )
    return str(value)


class Diagnosis(NamedTuple):
    """Facts about this machine and installation, and advice."""

    facts: dict[str, dict[str, Any]]  # {section: {name: value}}
    problems: list[str]  # what does not work
    advice: list[str]  # what would work better


def diagnose(folders: Sequence[pathlib.Path]) -> Diagnosis:
    """Check packages, CPU, memory, GPUs, and the disks of folders.

    Short products of matrices are measured, which takes half a second. The
    folders may be future ones.
    """
    problems = [
        f"{name} is not installed. Install t2t_repro again."
        for name in requirements("t2t_repro")
        if not _is_installed(name)
    ]
    facts: dict[str, dict[str, Any]] = {
        "versions": _versions(),
        "extras": _extras(),
        "cpu": _cpu(),
        "memory": {
            "total": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "limit": cpu.memory_limit(),  # of the container; None: all
        },
        "gpus": {},
        "driver": _driver(),
        "disk": {},
        "environment": {
            name: os.environ[name]
            for name in sorted(filter(_VARIABLES.match, os.environ))
        },
    }
    try:
        facts["cpu"] |= _computation()
        facts["gpus"] = _gpus()
    except ImportError as error:
        problems.append(
            f"TensorFlow cannot be imported: {error}. Install t2t_repro in a "
            "new environment."
        )
    for folder in folders:
        existing = files.nearest_existing(folder)
        usage = shutil.disk_usage(existing)
        facts["disk"][str(folder)] = {"free": usage.free, "total": usage.total}
        if not os.access(existing, os.W_OK):
            problems.append(
                f"{existing} is not writable. Give this user access to it, or "
                "name another folder."
            )
    return Diagnosis(facts, problems, list(advice(facts)))


def requirements(package: str, extra: str = "") -> Iterator[str]:
    """Yield the names of what a package or one of its extras needs."""
    for requirement in errors.requirements(package, extra):
        name, its_extras = _REQUIREMENT.match(requirement).groups("")  # type: ignore[union-attr]
        yield name
        for its_extra in filter(None, its_extras.split(",")):
            yield from requirements(name, its_extra)


def _is_installed(package: str) -> bool:
    return any(metadata.distributions(name=package))


def _versions() -> dict[str, str]:
    return {
        "t2t_repro": errors.version(),
        "python": platform.python_version(),
        "system": platform.platform(),
    } | {
        name: metadata.version(name)
        for name in _PACKAGES
        if _is_installed(name)
    }


def _extras() -> dict[str, str]:
    """Return {extra: "installed", or the command that installs it}."""
    try:
        names = metadata.metadata("t2t_repro").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return {}
    return {
        name: "installed"
        if all(map(_is_installed, requirements("t2t_repro", name)))
        else errors.install_command(name)
        for name in names
        if name != "dev"
    }


def _cpu() -> dict[str, Any]:
    features = cpu.features()
    return {
        "model": cpu.model(),
        "cores": cpu.visible_cores(),
        "core_limit": cpu.core_limit(),  # of the container; None: all
        "load": os.getloadavg()[0],
        "instruction_set": cpu.instruction_set(features) or "unknown",
        "onednn": cpu.uses_onednn(features, os.environ),
    }


def _computation() -> dict[str, Any]:
    """Import TensorFlow; return its threads and the speed of products."""
    from t2t_repro.runtime import devices

    speeds = {"float32": devices.product_flops("float32") / 1e9}
    # With a lower ISA, oneDNN's product in bfloat16 ends the process.
    if (
        cpu.has_fast_bfloat16(cpu.features())
        and cpu.ONEDNN_LIMIT not in os.environ
    ):
        speeds["bfloat16"] = devices.product_flops("bfloat16") / 1e9
    return {"threads": devices.operation_threads(), "gflops": speeds}


def _gpus() -> dict[str, Any]:
    """Return {device: its name and compute capability} as TensorFlow has it."""
    from t2t_repro.runtime import devices

    return {
        f"GPU:{index}": {
            name.replace("device_", ""): value for name, value in gpu.items()
        }
        for index, gpu in enumerate(devices.gpu_details())
    }


def _driver() -> dict[str, str]:
    """Return {device: name, memory and version} as NVIDIA's driver has it."""
    query = "--query-gpu=name,memory.total,driver_version"
    try:
        lines = subprocess.check_output(
            ["nvidia-smi", query, "--format=csv,noheader"],
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            timeout=_DRIVER_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):  # no driver, or a lost GPU
        return {}
    return {f"GPU:{i}": s for i, s in enumerate(lines.splitlines())}


def advice(facts: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield sentences, each with the command or the setting."""
    yield from _advice_on_cpu(facts["cpu"], facts["environment"])
    if not facts["gpus"]:
        gflops = facts["cpu"].get("gflops", {})
        ratio = gflops.get("bfloat16", 0) / gflops.get("float32", 1)
        if ratio > _WORTHWHILE:
            yield (
                f"Products of matrices are {ratio:.1f} times as fast in "
                "bfloat16: train with trainer --mixed_precision=bfloat16. "
                "Results differ slightly from those in float32."
            )
        has_driver = tensorflow_import.NVIDIA_DRIVER.exists()
        if has_driver and "CUDA_VISIBLE_DEVICES" in facts["environment"]:
            yield "CUDA_VISIBLE_DEVICES hides the GPU. Unset it to use the GPU."
        elif has_driver:
            yield (
                "This machine has a driver for a GPU, but TensorFlow lacks "
                f"CUDA's libraries: {errors.install_command('gpu')}"
            )
    memory = facts["memory"]
    usable = memory["limit"] or memory["total"]
    if usable < 4e9:
        yield (
            f"{files.size_text(usable)} of memory are enough for small models: "
            "trainer --max_tokens_per_replica=2048 needs less."
        )
    for folder, disk in facts["disk"].items():
        if disk["free"] < _BASE_GIGABYTES * 1e9:
            yield (
                f"The disk of {folder} has {files.size_text(disk['free'])} "
                f"free, and a run of base needs {_BASE_GIGABYTES} GB: make "
                "room, name other folders by --data_dir and --output_dir, or "
                "keep fewer checkpoints by trainer --keep_checkpoint_max=5."
            )


def _advice_on_cpu(
    processor: dict[str, Any], environment: dict[str, str]
) -> Iterator[str]:
    if not processor["onednn"] and processor["instruction_set"] != "unknown":
        yield f"oneDNN is off, which is slower: unset {cpu.ONEDNN}."
    if cpu.ONEDNN_LIMIT in environment:
        yield (
            f"{cpu.ONEDNN_LIMIT} hides instructions of this CPU, which is "
            "slower: unset it."
        )
    if processor["load"] > 1.5 * processor["cores"]:
        yield (
            f"Other programs use the CPU (load {processor['load']:.1f} on "
            f"{processor['cores']} cores): the measured speeds are too low."
        )
    backend = environment.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        yield (
            f"KERAS_BACKEND={backend}, but commands need TensorFlow: unset it."
        )


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Folders": ("data_dir", "output_dir"),
            "Model": ("hparams_set", "hparams", "problem", "problem_args"),
        },
    )
