"""chrF: character n-grams."""

from sacrebleu.metrics import CHRF

from t2t_repro.metrics.sacre import SacreBleuMetric


class Chrf(SacreBleuMetric):
    """chrF2: n-grams of 1 to 6 characters, recall counts twice."""

    def build(self) -> CHRF:
        return CHRF()

    @property
    def options(self) -> str:
        return "-m chrf"
