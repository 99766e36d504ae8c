"""A run as its folder has it, read without TensorFlow."""

import pathlib
import sys
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from t2t_repro import errors, fields, hparam, user_definitions
from t2t_repro.io import files, json_files, storage
from t2t_repro.problem import Problem, build_problem
from t2t_repro.runs import checkpoint_files, run_json

# Checkpoints of a model or of an ensemble: comma-separated paths as commands
# take them, or paths, which may contain commas. None: those of the run.
Checkpoints: TypeAlias = str | Sequence[pathlib.Path] | None


class StoredRun(NamedTuple):
    """Settings of a run."""

    output_dir: pathlib.Path
    settings: dict  # run.json
    problem: Problem
    hparams: hparam.HParams


def read(
    output_dir: str | pathlib.Path, expected: dict | None = None
) -> StoredRun:
    """Read run.json, and load the definitions that it names.

    Args:
        output_dir: folder of the run, which is copied if it has a URL.
        expected: values that run.json must have; hparams as
            "key=value,key=value".

    Raises:
        UserError: the folder has no run, or its settings differ from
            `expected`.
    """
    output_dir = checkpoint_files.open_folder(output_dir)
    path = output_dir / run_json.RUN
    if not path.exists():
        raise errors.UserError(
            f"There is no run in {storage.name_of(output_dir)} "
            f"({run_json.RUN} is missing). Train one with the trainer, or name "
            "the right --output_dir."
        )
    settings = json_files.read(path, run_json.SHAPE)
    # Runs of earlier versions lack it.
    json_files.require_shape(path, settings.get("data", {}), {str: str})
    if "usr_dir" in settings:
        json_files.require_shape(
            path, settings["usr_dir"], user_definitions.SHAPE
        )
        user_definitions.load_stored(settings["usr_dir"], output_dir)
    try:
        problem = build_problem(
            settings["problem"], settings["problem_arguments"]
        )
        hparams = run_json.hparams_of(settings["hparams"])
    except errors.UserError as error:
        raise errors.UserError(f"Cannot use {path}. {error}") from error
    expected = dict(expected or {})
    if "hparams" in expected:
        expected["hparams"] = fields.parse(type(hparams), expected["hparams"])
    run_json.refuse_differences(
        output_dir,
        settings,
        expected,
        "Omit these flags, or name another --output_dir.",
    )
    return StoredRun(output_dir, settings, problem, hparams)


def find_checkpoint(output_dir: pathlib.Path) -> pathlib.Path:
    """Return the averaged checkpoint if there is one, else the latest.

    It prints a note if the run was trained on after the average.

    Raises:
        UserError: there is no checkpoint.
    """
    averaged, saved = (
        checkpoint_files.list_checkpoints(output_dir / folder)[-1:]
        for folder in (run_json.AVERAGED, run_json.CHECKPOINTS)
    )
    steps = [checkpoint_files.step_of(path) for path in (*averaged, *saved)]
    if len(steps) == 2 and steps[0] < steps[1]:
        print(
            f"Note: {saved[0].name} is newer than the average "
            f"{averaged[0].name}, which is used. Run avg_checkpoints again, or "
            "name another by --checkpoint_path.",
            file=sys.stderr,
        )
    if paths := averaged or saved:
        return paths[0]
    raise errors.UserError(
        f"There is no checkpoint in {output_dir / run_json.CHECKPOINTS}. Run "
        "the trainer first."
    )


def find_checkpoints(
    output_dir: pathlib.Path, names: Checkpoints = None
) -> list[pathlib.Path]:
    """Return the checkpoints of a model, or of each model of an ensemble.

    Args:
        output_dir: folder of the run.
        names: the checkpoints; None: find_checkpoint().

    Raises:
        UserError: there is no such checkpoint.
    """
    if not names:
        return [find_checkpoint(output_dir)]
    paths = files.split_paths(names) if isinstance(names, str) else names
    return list(map(checkpoint_files.require, paths))


def checkpoint_names(paths: list[pathlib.Path]) -> list[str]:
    """Return the names of checkpoints in results: "averaged/ckpt-600"."""
    return ["/".join(path.parts[-2:]) for path in paths]


def checkpoint_checksums(paths: list[pathlib.Path]) -> list[str]:
    """Return the sha256 of each index, which has a checksum of every tensor."""
    return [files.sha256(pathlib.Path(f"{path}.index")) for path in paths]
