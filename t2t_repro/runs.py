"""Runs: what a training is (run.json), and opening one that has been made."""

import dataclasses
import pathlib
import platform
import sys
from importlib import metadata
from typing import NamedTuple

from t2t_repro import __version__, errors, files, hparam, json_files
from t2t_repro import problem as problems
from t2t_repro.data import manifest
from t2t_repro.models import transformer
from t2t_repro.text.subwords import Subwords
from t2t_repro.training import checkpoints

RUN = "run.json"
AVERAGED = "averaged"
CHECKPOINTS = "checkpoints"
TRANSLATIONS = "translations"
# What may not change when a training goes on.
_IDENTITY = (
    "problem",
    "problem_arguments",
    "hparams",
    "random_seed",
    "vocabulary_sha256",
    "manifest_sha256",
    "rows_per_batch",
)
# run.json: what is read of it by whoever opens a run.
_SHAPE = {
    "problem": str,
    "problem_arguments": dict,
    "hparams_set": str,
    "hparams": dict,
    "random_seed": int,
    "data_dir": str,
    "vocabulary_sha256": str,
    "manifest_sha256": str,
    "versions": {str: str},
    "command_lines": [str],
}
_PACKAGES = ("tensorflow", "keras", "tensorflow-text", "sentencepiece", "numpy")


class Run(NamedTuple):
    """A training, opened for what comes after it."""

    output_dir: pathlib.Path
    settings: dict  # run.json
    problem: problems.Problem
    hparams: hparam.HParams
    subwords: Subwords


def describe(
    problem: problems.Problem,
    hparams_set: str,
    hparams: hparam.HParams,
    random_seed: int,
    data_folder: pathlib.Path,
    subwords: Subwords,
    rows_per_batch,
) -> dict:
    """The settings of a training, as run.json has them."""
    return {
        "problem": problem.requested_name,
        "problem_arguments": problem.arguments,
        "hparams_set": hparams_set,
        "hparams": dataclasses.asdict(hparams),
        "random_seed": random_seed,
        "rows_per_batch": rows_per_batch,
        "data_dir": str(data_folder.parent.absolute()),
        "vocabulary_sha256": subwords.sha256,
        "manifest_sha256": manifest.sha256(data_folder),
    }


def start(
    output_dir: pathlib.Path, settings: dict, subwords: Subwords, hardware: str
):
    """Writes run.json and the vocabulary, or compares with what is there.

    Args:
        output_dir: created where it is missing.
        settings: of describe().
        subwords: kept in the run, which then needs no data to translate.
        hardware: what this session computes on, and in what.

    Raises:
        UserError: the folder holds another run; lists the differences.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    path = output_dir / RUN
    known = settings
    if path.exists():
        known = json_files.read(path, {"command_lines": [str]})
    # Before the first checkpoint there is nothing that could be spoiled.
    if any(
        checkpoints.list_checkpoints(output_dir / folder)
        for folder in (CHECKPOINTS, AVERAGED)
    ):
        _refuse_differences(
            output_dir,
            known,
            {key: settings[key] for key in _IDENTITY},
            "Name another --output_dir. (To train longer, say --train_steps.)",
        )
    command_line = " ".join(sys.argv)
    files.write_bytes(output_dir / manifest.VOCABULARY, subwords.model)
    json_files.write(
        path,
        settings
        | {
            "versions": versions(),
            # An entry a session.
            "command_lines": [*known.get("command_lines", []), command_line],
            "hardware": [*known.get("hardware", []), hardware],
        },
        sealed=True,
    )


def mark(output_dir: pathlib.Path) -> int:
    """A number that tells one run.json from another; 0: there is none."""
    path = output_dir / RUN
    return int(files.sha256(path)[:15], 16) if path.exists() else 0


def join(output_dir: pathlib.Path, settings: dict, chief_mark: int):
    """Compares with the run.json that another worker has just written.

    Args:
        output_dir: of the run, a folder that all workers share.
        settings: of describe(), as this worker's flags have them.
        chief_mark: of the file there.

    Raises:
        UserError: that file is not seen here, or it says something else.
    """
    if not files.appears(lambda: mark(output_dir) == chief_mark):
        raise errors.UserError(
            f"{output_dir / RUN} is not seen here as the first worker has just "
            "written it. All workers must see the same --output_dir."
        )
    _refuse_differences(
        output_dir,
        json_files.read(output_dir / RUN, dict),
        {key: settings[key] for key in _IDENTITY},
        "Start all workers with the same flags and data.",
    )


def versions() -> dict[str, str]:
    """Of Python, of this project and of the packages that matter."""
    return {
        "python": platform.python_version(),
        "t2t_repro": __version__,
    } | {name: metadata.version(name) for name in _PACKAGES}


def score_sheets(output_dir: pathlib.Path, of=None) -> dict[str, dict]:
    """{split: what `evaluate` found}, of those that it translated.

    Args:
        output_dir: of the run.
        of: checkpoints that it must be of; None: any.
    """
    folder = output_dir / TRANSLATIONS
    sheets = {
        str(path.relative_to(folder).with_suffix("")): json_files.read(
            path, dict
        )
        for path in sorted(folder.rglob("*.json"))
    }
    return {
        split: sheet
        for split, sheet in sheets.items()
        if of is None or _is_of(sheet, of)
    }


def _is_of(sheet, paths):
    """Whether scores are of these weights: an average may be made anew."""
    found = checksums(paths)
    return (
        sheet.get("checkpoints") == names(paths)
        and sheet.get("checkpoints_sha256", found) == found
    )


def _refuse_differences(output_dir, known, given, remedy):
    differences = [
        difference
        for key in given
        for difference in _differences(key, known.get(key), given[key])
    ]
    if differences:
        raise errors.UserError(
            f"{output_dir} holds another run: {'; '.join(differences)}. "
            f"{remedy}",
            see="it-does-not-resume",
        )


def _differences(key, known, given):
    if isinstance(known, dict) and isinstance(given, dict):
        for name in sorted(given):
            yield from _differences(name, known.get(name), given.get(name))
    elif known != given:
        yield f"{key} is {known!r} there and {given!r} here"


def open_run(output_dir: pathlib.Path, expected: dict | None = None) -> Run:
    """Reads run.json and the vocabulary.

    Args:
        output_dir: of the trainer.
        expected: values that run.json must have, where the user gave some.

    Raises:
        UserError: no run there, one that contradicts `expected`, or another
            vocabulary than it was trained on.
    """
    path = output_dir / RUN
    if not path.exists():
        raise errors.UserError(
            f"There is no run in {output_dir} ({RUN} is missing). Train one "
            "with the trainer, or name the right --output_dir."
        )
    settings = json_files.read(path, _SHAPE)
    _refuse_differences(
        output_dir,
        settings,
        expected or {},
        "Leave these flags out, or name another --output_dir.",
    )
    subwords = Subwords.load(output_dir / manifest.VOCABULARY)
    if subwords.sha256 != settings["vocabulary_sha256"]:
        raise errors.UserError(
            f"{output_dir / manifest.VOCABULARY} is not this run's vocabulary: "
            f"sha256 is {subwords.sha256} instead of "
            f"{settings['vocabulary_sha256']}. Restore the file."
        )
    try:
        problem = problems.build(
            settings["problem"], settings["problem_arguments"]
        )
        hparams = hparam.from_dict(hparam.HParams, settings["hparams"])
    except errors.UserError as error:
        raise errors.UserError(f"Cannot use {path}. {error}") from error
    return Run(output_dir, settings, problem, hparams, subwords)


def find_checkpoint(output_dir: pathlib.Path) -> pathlib.Path:
    """The averaged checkpoint where there is one, else the latest.

    Raises:
        UserError: there is none.
    """
    for folder in (AVERAGED, CHECKPOINTS):
        found = checkpoints.list_checkpoints(output_dir / folder)
        if found:
            return found[-1]
    raise errors.UserError(
        f"There is no checkpoint in {output_dir / CHECKPOINTS}. Run the "
        "trainer first."
    )


def load_models(run: Run, checkpoint_path: str | None = None):
    """Models with weights: one, or one for each path of an ensemble.

    A path may lie in another run with the same vocabulary, whose own hparams
    its model then has.

    Args:
        run: the training.
        checkpoint_path: comma-separated paths; None: find_checkpoint().

    Returns:
        Models and the paths they come from.
    """
    paths = [files.path(path) for path in (checkpoint_path or "").split(",")]
    if not checkpoint_path:
        paths = [find_checkpoint(run.output_dir)]
    models = []
    for path in paths:
        model = transformer.build(_hparams_of(path, run), run.subwords.size)
        checkpoints.restore_weights(model, path, run.subwords.sha256)
        models.append(model)
    print(f"Checkpoint: {', '.join(map(str, paths))}.", file=sys.stderr)
    return models, paths


def names(paths: list[pathlib.Path]) -> list[str]:
    """Checkpoints as results name them: "averaged/ckpt-600"."""
    return ["/".join(path.parts[-2:]) for path in paths]


def checksums(paths: list[pathlib.Path]) -> list[str]:
    """sha256 of each one's index, which has a checksum of every tensor."""
    return [files.sha256(pathlib.Path(f"{path}.index")) for path in paths]


def _hparams_of(path, run):
    """Of the run that a checkpoint lies in; of `run` where it lies in none."""
    file = path.parent.parent / RUN
    if not file.exists():
        return run.hparams
    settings = json_files.read(file, {"hparams": dict})
    return hparam.from_dict(hparam.HParams, settings["hparams"])
