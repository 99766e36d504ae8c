"""run.json: the settings of a run, written once and then compared."""

import dataclasses
import pathlib
import platform
import sys
from importlib import metadata
from typing import Any

from t2t_repro import errors, hparam, registry
from t2t_repro.data import manifest
from t2t_repro.io import fields, files, storage
from t2t_repro.problem import Problem, registered
from t2t_repro.runs import checkpoint_files
from t2t_repro.text.vocabulary_pair import Vocabularies

RUN = "run.json"
# Settings that must not change when a run continues, beside problem_arguments
# and the data.
_IDENTITY = (
    "problem",
    "hparams",
    "random_seed",
    "vocabulary_sha256",
    "rows_per_batch",
)
_TRAINED_ON = ("train_sha256", "validation_sha256")  # of manifest.checksums()
# The entries of run.json that commands read.
SHAPE = {
    "problem": str,
    "problem_arguments": dict,
    "hparams_set": str,
    "hparams": {"model": str},
    "random_seed": int,
    "data_dir": str,
    "vocabulary_sha256": str,
    "manifest_sha256": str,
    "versions": {str: str},
    "command_lines": [str],
}
_CHANGE = "{}: {!r} -> {!r}"  # a setting, the run's value and the given one
_PACKAGES = ("tensorflow", "keras", "tensorflow-text", "sentencepiece", "numpy")


def settings(
    problem: Problem,
    hparams_set: str,
    hparams: hparam.HParams,
    random_seed: int,
    data_folder: pathlib.Path | None,
    vocabularies: Vocabularies,
    rows_per_batch: int | dict[str, int],
) -> dict[str, Any]:
    """Return the settings of a run, as run.json has them.

    An imported model, whose data nobody has, has no `data_folder`.
    """
    settings = {
        "problem": problem.requested_name,
        "problem_arguments": problem.arguments,
        "hparams_set": hparams_set,
        "hparams": dataclasses.asdict(hparams),
        "random_seed": random_seed,
        "rows_per_batch": rows_per_batch,
        "data_dir": data_folder and storage.name_of(data_folder.parent) or "",
        "vocabulary_sha256": vocabularies.sha256,
        "manifest_sha256": data_folder and manifest.sha256(data_folder) or "",
        "data": data_folder and manifest.checksums(data_folder) or {},
    }
    if usr_dir := registry.stored_definitions():
        settings["usr_dir"] = usr_dir
    if vocabularies.is_shared:
        return settings
    return settings | {
        "vocabulary_files_sha256": {
            name: vocabulary.sha256
            for name, vocabulary in vocabularies.files.items()
        }
    }


def start(
    output_dir: pathlib.Path,
    settings: dict,
    vocabularies: Vocabularies,
    hardware: str,
) -> None:
    """Write run.json and the vocabularies; refuse another run's folder.

    With its vocabularies, a run translates without its data. `hardware`
    describes that of this session.

    Raises:
        UserError: the folder holds another run; lists the differences.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    path = output_dir / RUN
    known = settings
    if path.exists():
        known = files.read_json(path, {"command_lines": [str]})
    if _is_resumable(output_dir):
        refuse_differences(
            output_dir,
            known,
            _identity(known, settings),
            "Give the run's values to resume it, or name another "
            "--output_dir. (To train longer, say --train_steps.)",
        )
        hparams = settings["hparams"]
        if unknown := sorted(known["hparams"].keys() - hparams.keys()):
            raise errors.UserError(
                f"{path} has hparams that the model {hparams['model']!r} lacks "
                f"now: {', '.join(unknown)}. Resume with the version that "
                "began the run, or name another --output_dir."
            )
        _note_changed_definitions(known, settings)
        # Later fields stay unknown, or the next session would compare them.
        settings = settings | {
            "hparams": {name: hparams[name] for name in known["hparams"]}
        }
    command_line = " ".join(sys.argv)
    vocabularies.write(output_dir)
    files.write_json(
        path,
        settings
        | {
            "versions": versions(),
            # An entry for each session.
            "command_lines": [*known.get("command_lines", []), command_line],
            "hardware": [*known.get("hardware", []), hardware],
        },
        with_checksum=True,
    )
    registry.remember()


def _identity(known, settings):
    """Return the settings that must not change when a run continues.

    A set of hparams may have the values of another one: its name is among them
    if the values differ. Of a given vocabulary, the content counts.
    """
    given = {key: settings[key] for key in _IDENTITY}
    arguments = settings["problem_arguments"]
    given["problem_arguments"] = {
        name: arguments[name] for name in arguments if name != "vocabulary"
    }
    if "data" in known:
        given["data"] = {
            name: settings["data"].get(name) for name in _TRAINED_ON
        }
    else:  # a run of an earlier version
        given["manifest_sha256"] = settings["manifest_sha256"]
    hparams = {"hparams": settings["hparams"]}
    if any(fields.differences(with_defaults(known), hparams)):
        return {"hparams_set": settings["hparams_set"]} | given
    return given


def _note_changed_definitions(known, settings):
    """Print which modules of --usr_dir have changed since the last session."""
    before, now = (
        registry.definition_checksums(each.get("usr_dir", []))
        for each in (known, settings)
    )
    changed = registry.changed_definitions(before, now)
    if before and now and changed:
        print(
            f"Modules of --usr_dir have changed since the last session: "
            f"{', '.join(changed)}.",
            file=sys.stderr,
        )


def fingerprint(output_dir: pathlib.Path) -> int:
    """Return a hash of run.json; 0 if there is none."""
    path = output_dir / RUN
    return int(files.sha256(path)[:15], 16) if path.exists() else 0


def compare_with_chief(
    output_dir: pathlib.Path, settings: dict, chief_fingerprint: int
) -> None:
    """Compare this worker's settings with the run.json of the chief.

    `chief_fingerprint` is that of the file that the chief has just written.

    Raises:
        UserError: the file is not visible here, or its settings differ.
    """
    if not files.wait_until(
        lambda: fingerprint(output_dir) == chief_fingerprint
    ):
        raise errors.UserError(
            f"{output_dir / RUN} is not visible here as the first worker has "
            "just written it. All workers must see the same --output_dir."
        )
    known = files.read_json(output_dir / RUN, dict)
    refuse_differences(
        output_dir,
        known,
        _identity(known, settings),
        "Start all workers with the same flags and data.",
    )
    registry.remember()


def versions() -> dict[str, str]:
    """Return versions of Python, this project and its main packages."""
    return {
        "python": platform.python_version(),
        "t2t_repro": errors.version(),
    } | {name: metadata.version(name) for name in _PACKAGES}


def of_checkpoint(path: pathlib.Path) -> dict[str, Any]:
    """Return the settings of the run that a checkpoint lies in; {}: of none."""
    file = checkpoint_files.run_of(path) / RUN
    return files.read_json(file, {"hparams": dict}) if file.exists() else {}


def read_resumable(output_dir: pathlib.Path) -> dict[str, Any] | None:
    """Return the settings of a run that can resume; None: it is a new one."""
    if not _is_resumable(output_dir):
        return None
    return files.read_json(output_dir / RUN, {"hparams": dict})


def _is_resumable(output_dir):
    """Return whether a run has checkpoints, so that its settings are fixed."""
    return (output_dir / RUN).exists() and any(
        checkpoint_files.list_checkpoints(output_dir / folder)
        for folder in (checkpoint_files.CHECKPOINTS, checkpoint_files.AVERAGED)
    )


def refuse_differences(
    output_dir: pathlib.Path, known: dict, given: dict, remedy: str
) -> None:
    """Raise a UserError if `given` settings differ from those of a run.

    `known` are all of the run's. `remedy` tells the user what to do.
    """
    known = with_defaults(known)
    if differences := list(fields.differences(known, given, _CHANGE)):
        raise errors.UserError(
            f"{'; '.join(differences)}. {output_dir} holds another run, with "
            f"the values before the arrows. {remedy}",
            see="it-does-not-resume",
        )


def with_defaults(stored: dict) -> dict:
    """Return a run.json's settings with the defaults of later fields."""
    settings = dict(stored)
    arguments, hparams = stored.get("problem_arguments"), stored.get("hparams")
    if isinstance(arguments, dict):
        name, _ = registered(str(stored.get("problem")))
        if name in registry.problems:
            settings["problem_arguments"] = fields.with_defaults(
                registry.problems[name].value, arguments
            )
    if isinstance(hparams, dict):
        model = str(hparams.get("model"))
        if model in registry.models:
            settings["hparams"] = fields.with_defaults(
                registry.models[model].hparams, hparams
            )
    return settings


def hparams_of(stored: dict[str, Any]) -> hparam.HParams:
    """Build the settings of a run.json by the dataclass of its model."""
    cls = registry.models[str(stored.get("model"))].hparams
    return fields.from_dict(cls, stored)
