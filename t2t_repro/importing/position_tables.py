"""Tables of positions of other systems, as formulas or as learned ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_repro.layers import position

_FORMULAS = "sinusoids", "sines_then_cosines", "timing"
_FIRST_POSITIONS = 0, 1, 2
# Of an angle's rounding, which grows with the position.
_TOLERANCE = 1e-5
_MULTIPLE = 8  # which max_length must be of


def settings(
    tables: Sequence[np.ndarray],
) -> tuple[dict[str, Any], list[np.ndarray | None]]:
    """Return hparams of the tables of both sides, and learned positions.

    Args:
        tables: [positions, D] of the encoder, and of the decoder.

    Returns:
        hparams; None for each side where they name a formula, or its table
        [max_length, D], in which the last row is repeated: beyond its end, a
        learned table has its last row.
    """
    formulas = [formula(table) for table in tables]
    if formulas[0] and formulas[0] == formulas[1]:
        return formulas[0], [None, None]
    padded = pad([_without_copies(table) for table in tables])
    changes = {"pos": "emb", "first_position": 0, "max_length": len(padded[0])}
    return changes, [*padded]


def pad(tables: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return tables [N, D] with the same length, a valid max_length.

    The last row is repeated: that of all positions beyond a table.
    """
    longest = max(map(len, tables))
    length = -(-longest // _MULTIPLE) * _MULTIPLE
    return [
        np.pad(table, ((0, length - len(table)), (0, 0)), "edge")
        for table in tables
    ]


def formula(table: np.ndarray) -> dict[str, Any]:
    """Return the hparams of the formula that a table [N, D] has; {}: none."""
    if not table.any():
        return {"pos": "none", "first_position": 0}
    if table.shape[1] % 2:
        return {}
    zeros, numbers = np.zeros((1, *table.shape)), np.arange(len(table))
    tolerance = _TOLERANCE * max(1, len(table) / 100)
    for first in _FIRST_POSITIONS:
        for name in _FORMULAS:
            layer = position.build(name, 0, first, dtype="float32")
            encoded = np.asarray(layer(zeros, numbers[None]))[0]
            if np.abs(encoded - table).max() <= tolerance:
                return {"pos": name, "first_position": first}
    return {}


def _without_copies(table):
    """Return a table without the copies of its last row at its end."""
    differs = np.flatnonzero((table != table[-1]).any(axis=1))
    return table[: (differs[-1] if len(differs) else -1) + 2]
