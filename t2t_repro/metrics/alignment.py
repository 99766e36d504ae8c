"""Alignment error rate of word alignments in Pharaoh format.

Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment
Models", section 5: people mark links that are sure, S, and others that are
possible; P has both. Of links A,

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|).
"""

from collections.abc import Sequence

import numpy as np

from t2t_repro import errors
from t2t_repro.metrics.metric import Metric
from t2t_repro.text import word_alignment


class AlignmentErrorRate(Metric):
    """AER: % of wrong and missing links of word alignments, as 0-0 1-2 2?1."""

    higher_is_better = False
    signature_key = "aer_signature"

    def statistics(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] | None = None,
    ) -> np.ndarray:
        if len(references) != 1:
            raise errors.UserError(
                "AER is measured with one reference; got "
                f"{len(references)}. Omit the others."
            )
        rows = []
        for hypothesis, line in zip(hypotheses, references[0], strict=True):
            links, gold = map(word_alignment.parse, (hypothesis, line))
            sure = {link for link, is_sure in gold.items() if is_sure}
            agreeing = len(sure & links.keys()) + len(gold.keys() & links)
            rows.append((agreeing, len(links) + len(sure)))
        return np.array(rows)

    def aggregate(self, totals: np.ndarray) -> float:
        agreeing, count = totals
        return 100 * (1 - agreeing / count) if count else 0.0
