"""Lines that equal a reference."""

import numpy as np

from t2t_repro.metrics.metric import Metric


class ExactMatch(Metric):
    """% of lines that equal a reference, byte for byte."""

    check = (
        'awk \'NR == FNR {r[FNR] = $0; next} ($0 "") == r[FNR] '
        "{n++} END {print 100 * n / FNR}' REF OUT"
    )

    def statistics(self, hypotheses, references, sources=None):
        lines = zip(hypotheses, *references, strict=True)
        matches = [line in candidates for line, *candidates in lines]
        return np.stack([matches, np.ones(len(matches))], axis=1)

    def aggregate(self, totals):
        matches, lines = totals
        return float(100 * matches / lines)

    def signature(self, num_references):
        return f"nrefs:{num_references}|case:mixed|whole lines"
