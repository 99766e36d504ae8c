"""Stored results of a run: its validations, and scores of each checkpoint."""

import copy
import hashlib
import math
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_repro import errors, hparam, registry
from t2t_repro.io import fields, files, progress, storage
from t2t_repro.metrics.metric import Suite, is_model_metric
from t2t_repro.text import parallel_files

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
            "--eval_bleu_sentences=0. Name a number above 0, or "
            "--early_stopping_metric=loss."
        )


# Translations of test sets, and their scores: NAME.txt and NAME.json.

TRANSLATIONS_FOLDER = "translations"  # in the folder of a run
# Of NAME.txt, of the models that are scored, and of sources and references.
_TRANSLATIONS_SHA256 = "translations_sha256"
CHECKPOINTS_SHA256 = "checkpoints_sha256"
TEXT_SHA256 = "text_sha256"
_BY_METRIC = "signatures", "plus_minus"  # {metric: what is known of its score}
# {direction: {metric: …}}
_BY_DIRECTION = "directions", "directions_plus_minus"


class StoredScores:
    """Translations of a test set by a run, and scores of them and of models."""

    def __init__(self, folder: pathlib.Path, name: str):
        """Name the files of a test set in a folder, and read nothing."""
        self.translations = folder / f"{name}.txt"
        self._path, self._name = self.translations.with_suffix(".json"), name
        self._before: dict[str, Any] = {}  # scores before write_translations()
        self._sha256: str | None = None  # of what it has written

    def read(self) -> dict[str, Any]:
        """Return the scores with their details; {} if there are none."""
        return files.read_json(self._path, dict) if self._path.exists() else {}

    def read_translations(self, scores: dict) -> list[str]:
        """Return the translations that have these stored scores.

        Raises:
            UserError: the file has changed since.
        """
        path = self.translations
        expected = scores.get(_TRANSLATIONS_SHA256)  # not of old versions
        if expected and files.sha256(path) != expected:
            raise errors.UserError(
                f"{path} has changed since its lines were scored. Restore it, "
                f"or run evaluate --split={self._name} again."
            )
        return list(parallel_files.read_lines(path))

    def write_translations(self, translations: Sequence[str]) -> None:
        """Write translations, in place of earlier ones and all scores.

        If they cannot be written, both remain as they were.
        """
        text = "".join(f"{line}\n" for line in translations)
        try:
            before = self.read()
        except errors.UserError:  # a damaged file, which is replaced
            before = {}
        self.translations.parent.mkdir(parents=True, exist_ok=True)
        with files.atomic_path(self.translations) as temporary:
            files.write_text(temporary, text)
            self._path.unlink(missing_ok=True)
        self._before = before
        # Another process may replace the file before its lines are scored.
        self._sha256 = hashlib.sha256(text.encode()).hexdigest()

    def write_scores(self, scores: dict[str, Any]) -> None:
        """Write scores with their details.

        They are those of the translations that this object has written, and of
        models. They join earlier ones of the same checkpoints and text that are
        not of other translations. Earlier ones of others are replaced, with
        their translations.
        """
        if self._sha256:
            scores = scores | {_TRANSLATIONS_SHA256: self._sha256}
            before, known = self._before, _of_models(self._before)
        else:
            before = known = self.read()
        text = scores.get(TEXT_SHA256)
        if before.get(TEXT_SHA256, text) != text:
            print(
                f"Note: the stored scores of {self._name} were of other text, "
                "and are replaced.",
                file=sys.stderr,
            )
        if (
            known.get(CHECKPOINTS_SHA256) == scores.get(CHECKPOINTS_SHA256)
            and known.get(TEXT_SHA256, text) == text
        ):
            scores = _joined(known, scores)
        elif not self._sha256:
            self.translations.unlink(missing_ok=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(self._path, scores, with_checksum=True)
        storage.upload_results(self._path.parent)


def _of_models(scores):
    """Return those scores that do not depend on translations."""
    names = {
        name
        for name, value in scores.items()
        if isinstance(value, float)
        and name in registry.metrics
        and is_model_metric(name)
    }
    if not names:
        return {}

    def chosen(values):
        return {name: values[name] for name in values if name in names}

    kept = {key: chosen(scores.get(key, {})) for key in _BY_METRIC}
    for key in _BY_DIRECTION:
        if key in scores:
            kept[key] = {n: chosen(of) for n, of in scores[key].items()}
    sums = (CHECKPOINTS_SHA256, TEXT_SHA256)
    kept |= {key: scores[key] for key in sums if key in scores}
    return kept | chosen(scores)


def _joined(known, scores):
    """Return known scores with those of more metrics."""
    joined = dict(known)
    for key, value in scores.items():
        before = known.get(key, {})
        if isinstance(value, float):
            joined[key] = value
        elif key in _BY_METRIC:
            joined[key] = before | value
        elif key in _BY_DIRECTION:
            joined[key] = {n: before.get(n, {}) | value[n] for n in value}
        else:
            joined.setdefault(key, value)
    return joined


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
