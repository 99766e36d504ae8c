"""Fit of a power law c · n^a · d^b to measurements."""

from collections.abc import Sequence

import numpy as np

from t2t_repro import errors


def fit_exponents(
    sizes: Sequence[tuple[float, float]], values: Sequence[float]
) -> tuple[float, float]:
    """Return a and b, by least squares of the logarithms.

    Args:
        sizes: (n, d) of each measurement.
        values: the measured values, above 0.

    Raises:
        UserError: there are too few different n or d.
    """
    logs = np.log(np.asarray(sizes, float).reshape(-1, 2))
    columns = np.column_stack([logs, np.ones(len(logs))])
    if len(columns) < 3 or np.linalg.matrix_rank(columns) < 3:
        raise errors.UserError(
            "Exponents of n and d need measurements at two n and two d or "
            f"more; got {sorted(set(sizes))}."
        )
    (a, b, _), *_ = np.linalg.lstsq(columns, np.log(values), rcond=None)
    return float(a), float(b)
