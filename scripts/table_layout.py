"""Tables in Markdown: figures with their spread over seeds."""

import statistics
from collections.abc import Iterable, Sequence


def spread(values: Sequence[float], digits: int) -> str:
    """A mean, and from where to where the values go: "25.3 (25.1–25.6)"."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def number(value: float | None, digits: int, sign: str = "") -> str:
    """A figure, or nothing where there is none."""
    return "" if value is None else f"{value:{sign}.{digits}f}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text, and the others figures."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)
    )
