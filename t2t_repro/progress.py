"""Progress of long work: a bar on a terminal or in Jupyter, else lines."""

import io
import os
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

LINE_SECONDS = 10  # between two lines, if there is no terminal
DELAY_SECONDS = 3  # before the first state of work that may be short


class _Lines(io.TextIOBase):
    """Stream that gives each state of a bar a line of its own."""

    def write(self, text: str) -> int:
        line = text.strip("\r\n ")
        if line:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        return len(text)


def _has_width():
    """Return whether stderr is a terminal with a width; some report 0."""
    if not sys.stderr.isatty():
        return False
    return os.get_terminal_size(sys.stderr.fileno()).columns > 0


def bar(
    items: Iterable | None = None,
    desc: str | None = None,
    total: int | None = None,
    **settings: Any,
) -> tqdm:
    """Return a tqdm, with a line every ten seconds if nothing shows a bar.

    Args:
        items: items to iterate over; None: the caller calls update().
        desc: name of the work.
        total: number of items; with it, the bar shows the time left.
        **settings: other settings of tqdm.
    """
    where: dict[str, Any]
    if "ipykernel" in sys.modules:  # Jupyter
        from tqdm import auto

        return auto.tqdm(items, desc, total, **settings)
    if _has_width():
        where = {"dynamic_ncols": True}
    else:
        where = {
            "file": _Lines(),
            "mininterval": LINE_SECONDS,
            "maxinterval": LINE_SECONDS,
            "bar_format": "{desc}: {n_fmt}/{total_fmt} {percentage:.0f}% "
            "[{elapsed}<{remaining}, {rate_fmt}{postfix}]"
            if total or hasattr(items, "__len__")
            else "{desc}: {n_fmt} [{elapsed}, {rate_fmt}{postfix}]",
        }
    return tqdm(items, desc, total, **(where | settings))


def duration(seconds: float) -> str:
    """Format a duration: "45 s", "23 min 45 s", "1 h 23 min", "35 days 2 h"."""
    rounded = round(seconds)
    for unit, size, part, part_size in (
        ("days", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        # From two days on: "26 h" is clearer than "1 days 2 h".
        if rounded >= size * (2 if unit == "days" else 1):
            whole, rest = divmod(rounded, size)
            return f"{whole:,} {unit} {rest // part_size} {part}"
    return f"{rounded} s"
