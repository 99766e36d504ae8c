"""Reference trainings: their files, and the one to compare a run with."""

import datetime
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scripts.paper.table_rows import LENGTH_HPARAMS
from t2t_repro import errors, fields, hparam
from t2t_repro.io import files
from t2t_repro.runs import history, stored_run
from t2t_repro.runs.run import Run, open_run, stored_scores

FOLDER = pathlib.Path(__file__).parents[1] / "results" / "reference_curves"
_VALIDATIONS = [{"step": int, "perplexity": float}]
# Compared in addition to the headline metric of the problem.
_METRICS = ("bleu", "exact_match")
_SCORE_SETTINGS = ("signature", "checkpoints", "decode_hparams")


def load() -> dict[str, dict]:
    """Return {name: reference} of all recorded references."""
    return {path.stem: files.read_json(path) for path in FOLDER.glob("*.json")}


def read_training(run: Run) -> dict[str, Any]:
    """Return seed, validations and scores of a run.

    Raises:
        UserError: it has no validation.
    """
    path = run.output_dir / history.VALIDATION
    if not path.exists():
        raise errors.UserError(
            f"{run.output_dir} has no validation yet ({path.name} is missing). "
            "Continue the training."
        )
    metrics = run.problem.suite.headline, *_METRICS
    return {
        "random_seed": run.settings["random_seed"],
        "validations": [
            _select(entry, "step", "perplexity", *metrics)
            for entry in files.read_json(path, _VALIDATIONS)
        ],
        "scores": {
            split: _select(stored, *metrics, *_SCORE_SETTINGS)
            for split, stored in stored_scores(run.output_dir).items()
        },
    }


def _select(entry, *keys):
    return {key: entry[key] for key in keys if key in entry}


def precision(settings: Mapping[str, Any]) -> str:
    """Return the precision of a run's last session, or of a reference."""
    if "mixed_precision" in settings:
        return settings["mixed_precision"]
    session = (settings.get("hardware") or [""])[-1]
    known = "bfloat16", "float16"  # "bfloat16" has "float16" in it
    return next((name for name in known if name in session), "float32")


def differences(
    settings: Mapping[str, Any], reference: Mapping[str, Any]
) -> list[str]:
    """Describe the settings of a run that differ from the reference's.

    Settings without an effect on the run are left out: its length, and those of
    the other kind of batches.
    """
    settings = stored_run.with_defaults(settings)
    reference = stored_run.with_defaults(reference)
    differing, ignored = [], set(LENGTH_HPARAMS)
    packed = settings["hparams"].get("batching") == "packed"
    ignored.add("reshuffle_buckets" if packed else "proportional_rows")
    for group in ("hparams", "problem_arguments"):
        actual, wanted = settings[group], reference[group]
        differing += [
            f"{key} is {actual.get(key)!r}, not {wanted.get(key)!r}"
            for key in sorted(actual.keys() | wanted.keys())
            if actual.get(key) != wanted.get(key) and key not in ignored
        ]
    return differing


class Choice(NamedTuple):
    """A reference to compare a run with."""

    name: str
    reference: dict[str, Any]
    differing: list[str]  # the run's settings that the reference has not


def choose(
    settings: Mapping[str, Any], references: Mapping[str, dict]
) -> Choice | None:
    """Return the reference with the nearest settings, or None.

    Among equals it is one of the same precision. References of other problems
    are left out.

    Args:
        settings: run.json.
        references: {name: reference}.
    """
    choices = [
        Choice(name, reference, differences(settings, reference))
        for name, reference in sorted(references.items())
        if reference["problem"] == settings["problem"]
    ]
    wanted = precision(settings)
    return min(
        choices,
        key=lambda choice: (
            len(choice.differing),
            precision(choice.reference) != wanted,
        ),
        default=None,
    )


def comparable(
    settings: Mapping[str, Any], training: dict, reference: Mapping[str, Any]
) -> tuple[dict, list[str]]:
    """Drop scores that cannot be compared with the reference's.

    Comparable scores are of the same checkpoints and of the same search.

    Args:
        settings: run.json.
        training: of read_training().
        reference: of the same settings.

    Returns:
        The training, and a line for each split whose scores were dropped.
    """
    averaged = "num_averaged_checkpoints"
    count = reference["hparams"][averaged]
    kept, lines = {}, []
    for split, stored in training["scores"].items():
        wanted = reference["seeds"][0]["scores"].get(split)
        if not wanted:
            continue
        checkpoints = stored.get("checkpoints", ["?"])
        search, wanted_search = _search_differences(stored, wanted)
        if (
            settings["hparams"][averaged] != count
            or wanted["checkpoints"] != checkpoints
        ):
            lines.append(
                f"Scores of {split} are not compared: they are of "
                f"{', '.join(checkpoints)}, the reference's of "
                f"{', '.join(wanted['checkpoints'])}, an average of {count}."
            )
        elif search != wanted_search:
            lines.append(
                f"Scores of {split} are not compared: they are of {search}, "
                f"the reference's of {wanted_search}. Evaluate with "
                "--decode_hparams=…."
            )
        else:
            kept[split] = stored
    return training | {"scores": kept}, lines


def _search_differences(*scores):
    """Describe the searches of two scores by the settings that differ."""
    searches = [_decode_hparams(stored) for stored in scores]
    first, second = searches
    differing = [
        key
        for key in sorted(first.keys() | second.keys())
        if first.get(key) != second.get(key)
    ]
    return [
        ", ".join(f"{key}={search.get(key, '?')}" for key in differing)
        for search in searches
    ]


def _decode_hparams(scores):
    """Return the settings of a search, with defaults for newer settings."""
    stored = scores.get("decode_hparams")
    return stored and fields.with_defaults(hparam.DecodeHParams, stored) or {}


def record(
    name: str, folders: Sequence[pathlib.Path], command: str, machine: str
) -> pathlib.Path:
    """Write a reference.

    Args:
        name: of its file.
        folders: runs that differ in their seed only.
        command: of the trainings.
        machine: description.

    Returns:
        Path of the file.

    Raises:
        UserError: the runs differ in more than their seed.
    """
    opened = [open_run(folder) for folder in folders]
    first = opened[0].settings
    for run in opened[1:]:
        differing = differences(run.settings, first)
        if differing or run.settings["problem"] != first["problem"]:
            raise errors.UserError(
                f"{run.output_dir} is not {opened[0].output_dir} with another "
                f"seed: {'; '.join(differing) or run.settings['problem']}."
            )
    named = ("problem", "problem_arguments", "hparams_set", "hparams")
    path = FOLDER / f"{name}.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    reference = {
        **{key: first[key] for key in (*named, "vocabulary_sha256")},
        "mixed_precision": precision(first),
        "command": command,
        "machine": machine,
        "date": str(datetime.date.today()),
        "versions": first["versions"],
        "seeds": [read_training(run) for run in opened],
    }
    files.write_json(path, reference)
    return path
