"""TER: translation edit rate."""

from sacrebleu.metrics import TER

from t2t_repro.metrics.sacre import SacreBleuMetric


class Ter(SacreBleuMetric):
    """Edits, including shifts, divided by words of the reference."""

    higher_is_better = False
    check = "sacrebleu REF -i OUT -m ter"

    def build(self) -> TER:
        return TER()
