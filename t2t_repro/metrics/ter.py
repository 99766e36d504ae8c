"""TER: edits."""

from sacrebleu.metrics import TER

from t2t_repro.metrics.sacre import SacreBleuMetric


class Ter(SacreBleuMetric):
    """Edits, shifts among them, by words of the reference."""

    higher_is_better = False
    check = "sacrebleu REF -i OUT -m ter"

    def build(self):
        return TER()
