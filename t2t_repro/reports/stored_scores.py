"""Stored scores of a split, as evaluate writes them, sorted for the page."""

from typing import NamedTuple


class StoredScores(NamedTuple):
    """The entries of a file, by kind."""

    numbers: dict[str, float]
    notes: dict[str, dict]  # name -> {number: remark}
    tables: dict[str, list[dict]]  # name -> rows
    facts: dict[str, str]  # signature, checkpoints, settings of the search

    def formatted(self, key: str) -> str:
        """Format a number, with its interval if there is one."""
        margin = self.notes.get("plus_minus", {}).get(key)
        value = self.numbers.get(key)
        if value is None:
            return "–"
        return f"{value:.2f}" + (f"\u00a0±\u00a0{margin:.2f}" if margin else "")

    def other_notes(self) -> list[dict]:
        """Return the notes other than intervals, a row for each number."""
        rows = [
            {"score": key}
            | {
                name: note[key]
                for name, note in self.notes.items()
                if name != "plus_minus" and note.get(key) is not None
            }
            for key in self.numbers
        ]
        return [row for row in rows if len(row) > 1]


def read(stored: dict) -> StoredScores:
    """Sort the entries of translations/SPLIT.json; skip empty ones."""
    numbers = {key: value for key, value in stored.items() if _is_number(value)}
    scores = StoredScores(numbers, {}, {}, {})
    for key, value in stored.items():
        if key in numbers or value in (None, [], {}):
            continue
        if isinstance(value, dict) and set(value) <= set(numbers):
            scores.notes[key] = value
        elif rows := _rows(value):
            scores.tables[key] = rows
        else:
            scores.facts[key] = _words(value)
    return scores


def columns(rows: list[dict]) -> list[str]:
    """Return the names in the rows, each once, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rows(value):
    """Convert a list or dict of dicts to rows; return [] for other values."""
    if isinstance(value, dict):
        named = value.items()
        if all(isinstance(row, dict) for row in value.values()):
            return [{"name": name} | row for name, row in named]
    if isinstance(value, list):
        if all(isinstance(row, dict) for row in value):
            return value
    return []


def _words(value):
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
