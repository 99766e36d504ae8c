"""A score sheet for the page: whatever evaluate has written into it."""

from typing import NamedTuple


class Sheet(NamedTuple):
    """A sheet's entries by their kind."""

    numbers: dict[str, float]
    facts: dict[str, str]  # signature, checkpoints, settings of the search
    tables: dict[str, list[dict]]  # name -> rows with the same columns


def read(stored: dict) -> Sheet:
    """Sorts the entries of translations/SPLIT.json; each is somewhere."""
    sheet = Sheet({}, {}, {})
    for key, value in stored.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            sheet.numbers[key] = value
        elif rows := _rows(value):
            sheet.tables[key] = rows
        else:
            sheet.facts[key] = _words(value)
    return sheet


def _rows(value):
    """Rows of a list of dicts, or of a dict of dicts; [] of all else."""
    if isinstance(value, dict) and value:
        if all(isinstance(row, dict) for row in value.values()):
            return [{"": name} | row for name, row in value.items()]
    if isinstance(value, list):
        if all(isinstance(row, dict) for row in value):
            return value
    return []


def columns(rows: list[dict]) -> list[str]:
    """Names that rows have, each once, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _words(value):
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
