"""The figures of every validation of a run, kept in a file of it."""

import math
import pathlib

from t2t_repro import json_files

VALIDATION = "validation.json"
_SHAPE = [{"step": int, "perplexity": float}]


class History:
    """A list of {"step": …, "loss": …, …}, written whole at each change."""

    def __init__(self, output_dir: pathlib.Path, last_step: int):
        """Reads what is there, up to the step that a training goes on from.

        What came later belongs to steps that will be done again.
        """
        self._path = output_dir / VALIDATION
        stored = []
        if self._path.exists():
            stored = json_files.read(self._path, _SHAPE)
        self._entries = [e for e in stored if e["step"] <= last_step]

    def add(self, step: int, figures: dict):
        """Appends what a validation found, and writes the file."""
        self._entries.append({"step": step} | figures)
        json_files.write(self._path, self._entries)

    def stopped_improving(self, patience: int | None) -> bool:
        """Whether the validation of least loss is at least `patience` old.

        Losses are compared without label smoothing, as perplexities.
        """
        if not patience or len(self._entries) <= patience:
            return False
        found = [entry["perplexity"] for entry in self._entries]
        found = [math.inf if math.isnan(value) else value for value in found]
        return min(found[-patience:]) >= min(found[:-patience])
