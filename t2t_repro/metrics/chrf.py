"""chrF: character n-grams."""

from sacrebleu.metrics import CHRF

from t2t_repro.metrics.sacre import SacreBleuMetric


class Chrf(SacreBleuMetric):
    """chrF2: n-grams of 1 to 6 characters, recall counts twice."""

    check = "sacrebleu REF -i OUT -m chrf"

    def build(self) -> CHRF:
        return CHRF()
