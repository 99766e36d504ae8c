"""Scores of each checkpoint of a run, a curve that `evaluate` extends."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_repro.io import json_files
from t2t_repro.metrics.suite import Suite

FOLDER = "checkpoint_scores"  # in the folder of a run
_SHAPE = {
    "settings": dict,
    "checkpoints": [{"step": int, "sha256": str, "scores": {str: float}}],
}


class CheckpointScores:
    """The file of a test set, written whole at each change.

    Scores of removed checkpoints stay.
    """

    def __init__(
        self,
        output_dir: pathlib.Path,
        test_set: str,
        settings: Mapping[str, Any],
    ):
        """Read the scores that are stored in a run.

        Args:
            output_dir: folder of the run.
            test_set: name of the test set.
            settings: what all scores depend on, serializable as JSON. Stored
                scores with other settings are discarded.
        """
        self._path = output_dir / FOLDER / f"{test_set}.json"
        self._settings = dict(settings)
        self.entries: list[dict[str, Any]] = []
        if self._path.exists():
            stored = json_files.read(self._path, _SHAPE)
            if stored["settings"] == self._settings:
                self.entries = stored["checkpoints"]

    def has(self, step: int, sha256: str) -> bool:
        """Return whether a checkpoint is scored."""
        return (step, sha256) in (
            (entry["step"], entry["sha256"]) for entry in self.entries
        )

    def add(self, step: int, sha256: str, results: Mapping[str, Any]) -> None:
        """Add the results of a checkpoint, or replace those of its step.

        Args:
            step: step of the checkpoint.
            sha256: of its index.
            results: {"scores": {metric: value}, …}.
        """
        others = [entry for entry in self.entries if entry["step"] != step]
        added = {"step": step, "sha256": sha256, **results}
        self.entries = sorted([*others, added], key=lambda entry: entry["step"])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        json_files.write(
            self._path,
            {"settings": self._settings, "checkpoints": self.entries},
        )

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """Return [(step, value)] of a metric."""
        return _curve(self.entries, metric)

    def table(self, suite: Suite) -> str:
        """Return a row for each checkpoint, with * at the best headline."""
        names = list(dict.fromkeys([suite.headline, *suite.names]))
        widths = [max(len(name), 7) for name in names]
        columns = zip(names, widths, strict=True)
        lines = ["     step   " + "  ".join(f"{n:>{w}}" for n, w in columns)]
        values = [value for _, value in self.curve(suite.headline)]
        higher = suite.build()[suite.headline].higher_is_better
        best = None
        if values and higher is not None:
            best = max(values) if higher else min(values)
        for entry in self.entries:
            scores = [entry["scores"].get(name, math.nan) for name in names]
            columns = zip(scores, widths, strict=True)
            cells = "  ".join(f"{score:{w}.2f}" for score, w in columns)
            mark = "*" if scores[0] == best else " "
            lines.append(f"{entry['step']:>9,} {mark} {cells}")
        return "\n".join(lines)


def curves(
    output_dir: pathlib.Path, metric: str
) -> dict[str, list[tuple[int, float]]]:
    """Return {test set: [(step, value)]} of all scores in a run."""
    folder = output_dir / FOLDER
    return {
        str(path.relative_to(folder).with_suffix("")): _curve(
            json_files.read(path, _SHAPE)["checkpoints"], metric
        )
        for path in sorted(folder.rglob("*.json"))
    }


def _curve(entries, metric):
    return [
        (entry["step"], entry["scores"][metric])
        for entry in entries
        if metric in entry["scores"]
    ]
