"""Settings that all rows of a table share, from the flags."""

import os
import pathlib
import platform
import shlex
from typing import NamedTuple

from absl import flags

from t2t_repro import errors, prepare
from t2t_repro.cli import common_flags
from t2t_repro.io import storage
from t2t_repro.problem import Problem
from t2t_repro.runs import history

# Flags of the trainer that a row's file records -> the flags to use instead.
_RECORDED = {
    "hparams_set": "--rows=…",
    "hparams": "--hparams=…",
    "train_steps": "--hparams=train_steps=…",
    "save_checkpoints_steps": "--hparams=save_checkpoints_steps=…",
    "random_seed": "--seed=…",
    "mixed_precision": "--mixed_precision=…",
    "early_stopping_evals": "--early_stopping_evals=… of this command",
    "early_stopping_metric": "--early_stopping_metric=… of this command",
}


class Job(NamedTuple):
    """Settings that all rows share."""

    problem: Problem
    split: str  # scored split
    averaged: bool  # whether to average the last checkpoints
    data: pathlib.Path  # folder of the encoded data, made for the first row
    output_dir: pathlib.Path  # folder of the trainings
    results_dir: pathlib.Path  # folder of the JSON files
    problem_flags: tuple[str, ...]  # for all commands
    datagen_flags: tuple[str, ...]
    trainer_flags: tuple[str, ...]
    machine: str
    processes: int = 1  # trainings at a time
    # Validations without improvement; None: all steps.
    patience: int | None = None
    budget_minutes: float | None = None  # of each training; None: no limit
    patience_metric: str = history.HEADLINE


def job(split: str, averaged: bool) -> Job:
    """Return the Job that the flags describe.

    Raises:
        UserError: --trainer_flags has a setting that a row's file fixes.
    """
    values = flags.FLAGS
    output_dir = common_flags.output_dir().absolute()
    results_dir = pathlib.Path(values.results_dir or output_dir / "results")
    problem = common_flags.problem()
    try:
        trainer_flags = shlex.split(values.trainer_flags)
    except ValueError as error:  # a quote that is not closed
        raise errors.UserError(
            f"--trainer_flags is not valid shell syntax: {error}; got "
            f"{values.trainer_flags}"
        ) from error
    require_allowed(trainer_flags)
    return Job(
        problem=problem,
        split=split,
        averaged=averaged,
        data=prepare.data_folder(common_flags.data_dir(), problem),
        output_dir=output_dir,
        results_dir=results_dir.expanduser(),
        problem_flags=(
            *_given("problem", "problem_args"),
            *_given_folders("usr_dir", "data_dir"),
        ),
        datagen_flags=(
            *_given_folders("raw_dir"),
            f"--num_workers={values.num_workers}",
        ),
        trainer_flags=tuple(trainer_flags),
        machine=values.machine
        or f"{os.cpu_count()} cores, {platform.machine()}",
        processes=values.processes,
        patience=values.early_stopping_evals,
        budget_minutes=values.budget_minutes,
        patience_metric=values.early_stopping_metric,
    )


def _given(*names):
    """Return the flags of these names that have a value."""
    return [
        f"--{name}={flags.FLAGS[name].value}"
        for name in names
        if flags.FLAGS[name].value
    ]


def _given_folders(*names):
    """Return _given() with absolute paths: a command may run elsewhere."""
    return [
        f"{name}={storage.name_of(storage.local_path(value))}"
        for name, _, value in (flag.partition("=") for flag in _given(*names))
    ]


def require_allowed(trainer_flags):
    """Raise a UserError for a flag that is not allowed in --trainer_flags."""
    given = {flag.lstrip("-").partition("=")[0] for flag in trainer_flags}
    for name, instead in _RECORDED.items():
        if name in given:
            raise errors.UserError(
                f"A row's file records {name}. Use {instead}; "
                f"got --trainer_flags={shlex.join(trainer_flags)}."
            )
    if "warm_start_from" in given:
        raise errors.UserError(
            "A row starts from new weights; omit warm_start_from from "
            f"--trainer_flags={shlex.join(trainer_flags)}."
        )
