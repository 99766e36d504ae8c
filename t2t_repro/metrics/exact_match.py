"""Exact match of whole lines."""

from collections.abc import Sequence

import numpy as np

from t2t_repro.metrics.metric import Metric


class ExactMatch(Metric):
    """% of lines that equal a reference, byte for byte."""

    check = (
        'awk \'NR == FNR {r[FNR] = $0; next} ($0 "") == r[FNR] '
        "{n++} END {print 100 * n / FNR}' REF OUT"
    )

    def statistics(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] | None = None,
    ) -> np.ndarray:
        lines = zip(hypotheses, *references, strict=True)
        matches = [line in candidates for line, *candidates in lines]
        return np.stack([matches, np.ones(len(matches))], axis=1)

    def aggregate(self, totals: np.ndarray) -> float:
        matches, lines = totals
        return float(100 * matches / lines)

    def signature(self, num_references: int) -> str:
        return f"nrefs:{num_references}|case:mixed|whole lines"
