"""What all rows of a table have in common, as the flags say it."""

import os
import pathlib
import platform
import shlex
from typing import NamedTuple

from absl import flags

from t2t_repro import common_flags, errors, prepare

# Flags of the trainer that a row's file tells -> how these are said here.
_OF_THE_FILE = {
    "hparams_set": "--rows=…",
    "hparams": "--hparams=…",
    "train_steps": "--hparams=train_steps=…",
    "save_checkpoints_steps": "--hparams=save_checkpoints_steps=…",
    "random_seed": "--seed=…",
    "mixed_precision": "--mixed_precision=…",
}
# A row would not be what its file tells: fewer steps, or not from nothing.
_NOT_OF_A_ROW = (
    "early_stopping_evals",
    "early_stopping_metric",
    "warm_start_from",
)


class Job(NamedTuple):
    """What all rows have in common."""

    problem: object  # problem.Problem
    split: str  # that is scored
    averaged: bool  # over the last checkpoints of a set, or the last alone
    data: pathlib.Path  # folder of the encoded data; made with the first row
    output_dir: pathlib.Path  # of the trainings
    results_dir: pathlib.Path  # of the JSON files
    to_commands: tuple[str, ...]  # flags that say what the problem is
    to_datagen: tuple[str, ...]
    mixed_precision: str
    to_trainer: tuple[str, ...]  # what is left of its own
    machine: str


def job(split: str, averaged: bool) -> Job:
    """The Job that the flags describe.

    Raises:
        UserError: a row's file could not tell what it is of.
    """
    values = flags.FLAGS
    output_dir = common_flags.output_dir()
    results_dir = pathlib.Path(values.results_dir or output_dir / "results")
    named = ("problem", "problem_args", "usr_dir", "data_dir")
    raw = [f"--raw_dir={values.raw_dir}"] if values.raw_dir else []
    problem = common_flags.problem()
    try:
        to_trainer = shlex.split(values.trainer_flags)
    except ValueError as error:  # a quote that is not closed
        raise errors.UserError(
            f"--trainer_flags is not a shell's line: {error}; got "
            f"{values.trainer_flags}"
        ) from error
    require(to_trainer)
    return Job(
        problem=problem,
        split=split,
        averaged=averaged,
        data=prepare.data_folder(common_flags.data_dir(), problem),
        output_dir=output_dir,
        results_dir=results_dir.expanduser(),
        to_commands=tuple(
            f"--{name}={values[name].value}"
            for name in named
            if values[name].value
        ),
        to_datagen=(*raw, f"--num_workers={values.num_workers}"),
        mixed_precision=values.mixed_precision,
        to_trainer=tuple(to_trainer),
        machine=values.machine
        or f"{os.cpu_count()} cores, {platform.machine()}",
    )


def require(to_trainer):
    """Raises a UserError now that would come after a row is trained."""
    given = {flag.lstrip("-").partition("=")[0] for flag in to_trainer}
    for name, instead in _OF_THE_FILE.items():
        if name in given:
            raise errors.UserError(
                f"{name} is a setting that a row's file tells. Say {instead}; "
                f"got --trainer_flags={shlex.join(to_trainer)}."
            )
    for name in _NOT_OF_A_ROW:
        if name in given:
            raise errors.UserError(
                f"A row takes all its steps, from new weights; leave {name} "
                f"out of --trainer_flags={shlex.join(to_trainer)}."
            )
