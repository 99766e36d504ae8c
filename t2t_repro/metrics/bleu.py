"""BLEU in every convention in use.

Numbers of different conventions cannot be compared: on one WMT14 en-de output
they differ by 1.5 BLEU.
"""

from importlib import metadata

from sacrebleu.metrics import BLEU

from t2t_repro.metrics.sacre import SacreBleuMetric
from t2t_repro.text import moses

_SPLIT_HYPHENS = r"perl -pe 's/(\S)-(\S)/$1 ##AT##-##AT## $2/g'"
_PUNCTUATION = "replace-unicode-punctuation.perl"


class Bleu(SacreBleuMetric):
    """sacreBLEU with the tokenizer 13a, cased: the one to publish."""

    settings: dict = {}  # of sacreBLEU's BLEU
    check = "sacrebleu REF -i OUT -m bleu"

    def build(self):
        # It warns where text looks tokenized, unless told that it may.
        return BLEU(force=self.tokenized, **self.settings)

    def sentence_score(self, statistics):
        """Return BLEU of the orders that a sentence has, smoothed."""
        orders = (len(statistics) - 2) // 2
        found = BLEU.compute_bleu(
            list(statistics[2 : 2 + orders]),
            list(statistics[2 + orders :]),
            int(statistics[0]),
            int(statistics[1]),
            smooth_method="exp",
            effective_order=True,
        )
        return float(found.score)


class BleuLc(Bleu):
    """The same, lowercased."""

    settings = {"lowercase": True}
    check = f"{Bleu.check} -lc"


class BleuIntl(Bleu):
    """sacreBLEU with international tokenization: tensor2tensor's t2t-bleu."""

    settings = {"tokenize": "intl"}
    check = f"{Bleu.check} -tok intl"


class BleuIntlLc(BleuIntl):
    """The same, lowercased."""

    settings = BleuIntl.settings | BleuLc.settings
    check = f"{BleuIntl.check} -lc"


class BleuTok(Bleu):
    """BLEU of Moses tokens: multi-bleu.perl."""

    settings = {"tokenize": "none", "smooth_method": "none"}

    def __init__(self, language="en", tokenized=False):
        super().__init__(language, tokenized)
        self.prepare, self.note = self._preparation()

    def build(self):
        return BLEU(force=True, **self.settings)

    @property
    def check(self):
        steps = " | ".join(self._commands())
        if not steps:
            return "multi-bleu.perl REF < OUT"
        return f"{steps}; multi-bleu.perl REF.tok < OUT.tok"

    def _commands(self):
        """Return the commands that make OUT.tok of OUT."""
        if self.tokenized:
            return []
        return [f"tokenizer.perl -l {self.language}"]

    def _preparation(self):
        """Return the function of a line, and its name in the signature."""
        if self.tokenized:
            return str, "|text:tokenized"
        return moses.tokenizer(self.language), _moses_note(self.language)


class BleuCompoundSplit(BleuTok):
    """BLEU as get_ende_bleu.sh has it: words are split at hyphens."""

    def _commands(self):
        steps = super()._commands()
        return [*([_PUNCTUATION] if steps else []), *steps, _SPLIT_HYPHENS]

    def _preparation(self):
        if self.tokenized:
            return moses.split_hyphens, "|text:tokenized|hyphens:split"
        note = _moses_note(self.language)
        return moses.compound_splitter(self.language), f"{note}|hyphens:split"


class LengthRatio(Bleu):
    """Tokens of the system by those of the reference."""

    higher_is_better = None
    check = f"{Bleu.check} -f text | grep -o 'ratio = [0-9.]*'"

    def aggregate(self, totals):
        return float(totals[0] / max(totals[1], 1))

    def sentence_score(self, statistics):
        return self.aggregate(statistics)


def _moses_note(language):
    version = metadata.version("sacremoses")
    return f"|text:moses-{language}|sacremoses:{version}"
