"""TER: translation edit rate."""

from sacrebleu.metrics import TER

from t2t_repro.metrics.sacre import SacreBleuMetric


class Ter(SacreBleuMetric):
    """Edits, including shifts, divided by words of the reference."""

    higher_is_better = False
    spaces_out = ("char",)

    def build(self) -> TER:
        return TER(normalized=self._asian, asian_support=self._asian)

    @property
    def options(self) -> str:
        asian = " --ter-normalized --ter-asian-support"
        return "-m ter" + asian * self._asian

    @property
    def _asian(self):
        """True if sacreBLEU splits text into characters."""
        return self.tokenizer in ("zh", "ja-mecab")
