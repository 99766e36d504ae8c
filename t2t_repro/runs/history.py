"""Stored results of a run: its validations, and scores of each checkpoint."""

import copy
import math
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from t2t_repro import errors, hparam, registry
from t2t_repro.io import fields, files, progress
from t2t_repro.metrics.metric import Suite

VALIDATION = "validation.json"
LOSS, HEADLINE = "loss", "headline"  # names as early-stopping metric
LOSS_NAME = "loss_name"  # key of validations by another loss than cross-entropy
# Measured by every validation -> (key of validation.json, higher is better).
# Cross-entropies are compared without label smoothing, as perplexities.
_ALWAYS_MEASURED = {LOSS: ("perplexity", False), "accuracy": ("accuracy", True)}
_SHAPE = [{"step": int, "perplexity": float}]
_REMEDY = (
    "Restore it from a copy. Checkpoints need it only to rank them: without "
    "the file, their training continues, too."
)


class History:
    """List of {"step": …, "loss": …, …}, written whole at each change."""

    def __init__(self, output_dir: pathlib.Path, last_step: int = sys.maxsize):
        """Read the entries up to `last_step`, from which a run resumes.

        Later entries belong to steps that will be repeated.
        """
        self._path = output_dir / VALIDATION
        stored = []
        if self._path.exists():
            stored = files.read_json(self._path, _SHAPE, _REMEDY)
        self.entries: list[dict] = [e for e in stored if e["step"] <= last_step]

    @property
    def steps(self) -> list[int]:
        """Steps of all validations, in order."""
        return [entry["step"] for entry in self.entries]

    def add(self, step: int, results: Mapping[str, Any]) -> None:
        """Append the results of a validation, and write the file."""
        self.entries.append({"step": step, **results})
        files.write_json(self._path, self.entries)

    def stopped_improving(
        self, patience: int | None, metric: str = LOSS
    ) -> bool:
        """Return whether the best validation is at least `patience` old."""
        costs = list(self._costs(metric).values())
        if not patience or len(costs) <= patience:
            return False
        return min(costs[-patience:]) >= min(costs[:-patience])

    def ranking_metric(self, suite: Suite) -> str:
        """Return the metric that ranks checkpoints.

        It is the headline metric of the suite, or what the last validation has
        in its place, of a session with other metrics. It is the loss if nothing
        was translated, or neither of the metric's directions is better.
        """
        last, name = self.entries[-1] if self.entries else {}, suite.headline
        if name not in last:
            signed = (key for key in last if key.endswith("_signature"))
            name = next(signed, LOSS).removesuffix("_signature")
        ranks = name in registry.metrics and _has_direction(name)
        return name if ranks else LOSS

    def ranking(self, suite: Suite) -> list[int]:
        """Return the steps of comparable validations, the best one first.

        Of two equal ones the earlier is first.
        """
        costs = self._costs(self.ranking_metric(suite))
        return sorted(costs, key=costs.__getitem__)

    def rankings(self, suite: Suite) -> list[list[int]]:
        """Return a ranking for each measure that sessions have ranked by.

        A session may have other metrics, and translate another number of
        sentences, or none. What the earlier validations ranked is ranked as it
        was when the measure changed.
        """
        last: dict[tuple, History] = {}  # until the last one with a measure
        for count, entry in enumerate(self.entries, 1):
            until = copy.copy(self)
            until.entries = self.entries[:count]
            metric = until.ranking_metric(suite)
            sentences = entry.get(f"{until.key(metric)}_sentences")
            last[metric, str(sentences)] = until
        return [until.ranking(suite) for until in last.values()]

    def key(self, metric: str) -> str:
        """Return the key of a metric in validation.json."""
        if metric == LOSS and self.entries and LOSS_NAME in self.entries[-1]:
            return LOSS
        return _key_and_direction(metric)[0]

    def values(self, metric: str) -> dict[int, float]:
        """Return {step: value} of comparable validations, in order.

        Validations of an earlier session do not count if they lack the metric
        or translated another number of sentences than the last one.
        """
        key = self.key(metric)
        entries = [entry for entry in self.entries if key in entry]
        sentences = f"{key}_sentences"
        return {
            entry["step"]: entry[key]
            for entry in entries
            if entry.get(sentences) == entries[-1].get(sentences)
        }

    def _costs(self, metric):
        """Return values() as costs, of which the lowest is the best."""
        _, higher_is_better = _key_and_direction(metric)
        sign = -1 if higher_is_better else 1
        return {
            step: math.inf if math.isnan(value) else sign * value
            for step, value in self.values(metric).items()
        }


def _key_and_direction(metric: str) -> tuple[str, bool | None]:
    """Return the key of a metric in validation.json, and higher_is_better."""
    if metric in _ALWAYS_MEASURED:
        return _ALWAYS_MEASURED[metric]
    return metric, registry.metrics[metric].value.higher_is_better


def _has_direction(metric):
    return _key_and_direction(metric)[1] is not None


def directed(suite: Suite) -> list[str]:
    """Return the metrics of which higher, or lower, values are better."""
    return [name for name in suite.names if _has_direction(name)]


def require_stopping_metric(
    metric: str, patience: int | None, suite: Suite, sentences: int
) -> None:
    """Require a metric that early stopping can use.

    After `patience` validations without improvement training stops; None:
    never. Each translates so many `sentences`.

    Raises:
        UserError: says what is missing.
    """
    if metric == LOSS:
        return
    got = f"got --early_stopping_metric={metric}"
    if metric == HEADLINE:
        metric = suite.headline
    known = directed(suite)
    if metric not in (*_ALWAYS_MEASURED, *known):
        raise errors.UserError(
            "--early_stopping_metric is loss, accuracy, headline, or a metric "
            "that the problem names and of which higher or lower values are "
            f"better, {', '.join(known)}; {got}."
        )
    if not patience:
        raise errors.UserError(
            "--early_stopping_evals says for how many validations a metric "
            f"may fail to improve; {got} without it. Name both."
        )
    if metric in suite.names and not sentences:
        raise errors.UserError(
            f"{metric} is measured on translated sentences; {got} with "
            "--eval_bleu_sentences=0. Name a number above 0."
        )


# Scores of each checkpoint of a run, a curve that `evaluate` extends.

SCORES_FOLDER = "checkpoint_scores"  # in the folder of a run
_SCORES_SHAPE = {
    "settings": dict,
    "checkpoints": [{"step": int, "sha256": str, "scores": {str: float}}],
}


class CheckpointScores:
    """The file of a test set, written whole at each change.

    Scores of removed checkpoints stay. Those with other settings move to a file
    TEST_SET.json.former, since they may be of checkpoints that are gone.
    """

    def __init__(
        self,
        output_dir: pathlib.Path,
        test_set: str,
        settings: Mapping[str, Any],
    ):
        """Read the scores of a test set that are stored in a run.

        All depend on `settings`; those with other settings are left out.
        """
        self._path = output_dir / SCORES_FOLDER / f"{test_set}.json"
        self._settings = dict(settings)
        self.entries: list[dict[str, Any]] = []
        self._has_others = False  # whether the file's settings differ
        if self._path.exists():
            stored = files.read_json(self._path, _SCORES_SHAPE)
            there, here = map(_complete, (stored["settings"], self._settings))
            self._has_others = there != here
            if not self._has_others:
                self.entries = stored["checkpoints"]

    def has(self, step: int, sha256: str) -> bool:
        """Return whether a checkpoint is scored."""
        return (step, sha256) in (
            (entry["step"], entry["sha256"]) for entry in self.entries
        )

    def add(self, step: int, sha256: str, results: Mapping[str, Any]) -> None:
        """Add {"scores": {metric: value}, …}, or replace those of the step.

        `sha256` is that of the checkpoint's index.
        """
        others = [entry for entry in self.entries if entry["step"] != step]
        added = {"step": step, "sha256": sha256, **results}
        self.entries = sorted([*others, added], key=lambda entry: entry["step"])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._has_others:
            former = self._path.with_name(f"{self._path.name}.former")
            os.replace(self._path, former)
            print(f"Scores with other settings are now in {former}.")
            self._has_others = False
        files.write_json(
            self._path,
            {"settings": self._settings, "checkpoints": self.entries},
        )

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """Return [(step, value)] of a metric."""
        return _score_curve(self.entries, metric)

    def table(self, suite: Suite) -> str:
        """Return a row for each checkpoint, with * at the best headline."""
        names = list(dict.fromkeys([suite.headline, *suite.names]))
        rows = [["     step  ", *(f"{name:>7}" for name in names)]]
        values = [value for _, value in self.curve(suite.headline)]
        higher = suite.build()[suite.headline].higher_is_better
        best = None
        if values and higher is not None:
            best = max(values) if higher else min(values)
        for entry in self.entries:
            scores = [entry["scores"].get(name, math.nan) for name in names]
            mark = "*" if scores[0] == best else ""
            cells = (f"{score:.2f}" for score in scores)
            rows.append([f"{entry['step']:>9,} {mark}", *cells])
        return "\n".join(progress.aligned(rows))


def _complete(settings):
    """Return settings with those of the search that came later."""
    search = settings.get("decode_hparams")
    if not isinstance(search, dict):  # of an edited file
        return settings
    search = fields.with_defaults(hparam.DecodeHParams, search)
    return settings | {"decode_hparams": search}


def score_curves(
    output_dir: pathlib.Path, metric: str
) -> dict[str, list[tuple[int, float]]]:
    """Return {test set: [(step, value)]} of all scores in a run."""
    stored = read_by_test_set(output_dir / SCORES_FOLDER, _SCORES_SHAPE)
    return {
        name: _score_curve(of_set["checkpoints"], metric)
        for name, of_set in stored.items()
    }


def read_by_test_set(folder: pathlib.Path, shape: Any) -> dict[str, Any]:
    """Return {test set: content} of the JSON files below a folder."""
    return {
        str(path.relative_to(folder).with_suffix("")): files.read_json(
            path, shape
        )
        for path in sorted(folder.rglob("*.json"))
    }


def _score_curve(entries, metric):
    return [
        (entry["step"], entry["scores"][metric])
        for entry in entries
        if metric in entry["scores"]
    ]
