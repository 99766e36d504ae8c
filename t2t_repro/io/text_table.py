"""Tables as text, in columns of equal width."""

from collections.abc import Callable, Iterable, Sequence


def lines(
    rows: Iterable[Sequence[str]],
    justify: Callable[[str, int], str] = str.rjust,
) -> list[str]:
    """Return a line for each row of cells; all rows have as many.

    The first column is left-justified, the others by `justify`.
    """
    rows = list(rows)
    first, *others = (max(map(len, cells)) for cells in zip(*rows, strict=True))
    return [
        "  ".join([head.ljust(first), *map(justify, cells, others)])
        for head, *cells in rows
    ]
