"""BLEU in each of the conventions in use.

Scores of different conventions are not comparable: for one WMT14 en-de output
they differ by 1.5 BLEU.
"""

from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from t2t_repro.metrics.sacre import SacreBleuMetric
from t2t_repro.text import moses

_SPLIT_HYPHENS = r"perl -pe 's/(\S)-(\S)/$1 ##AT##-##AT## $2/g'"
_PUNCTUATION = "replace-unicode-punctuation.perl"


class Bleu(SacreBleuMetric):
    """sacreBLEU with the tokenizer 13a, cased: the one to publish."""

    settings: dict[str, Any] = {}  # arguments of sacreBLEU's BLEU
    check = "sacrebleu REF -i OUT -m bleu"

    def build(self) -> BLEU:
        # `force` stops the warning about text that looks tokenized.
        return BLEU(force=self.tokenized, **self.settings)

    def sentence_score(self, statistics: np.ndarray) -> float:
        """Return smoothed BLEU of the n-gram orders that a sentence has."""
        orders = (len(statistics) - 2) // 2
        score = BLEU.compute_bleu(
            list(statistics[2 : 2 + orders]),
            list(statistics[2 + orders :]),
            int(statistics[0]),
            int(statistics[1]),
            smooth_method="exp",
            effective_order=True,
        )
        return float(score.score)


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

    def __init__(self, language: str = "en", tokenized: bool = False):
        super().__init__(language, tokenized)
        self._prepare_line, self.note = self._preparation()
        self.check = self._check_command()

    def prepare(self, line: str) -> str:
        return self._prepare_line(line)

    def build(self) -> BLEU:
        return BLEU(force=True, **self.settings)

    def _check_command(self) -> str:
        steps = " | ".join(self._commands())
        if not steps:
            return "multi-bleu.perl REF < OUT"
        return f"{steps}; multi-bleu.perl REF.tok < OUT.tok"

    def _commands(self) -> list[str]:
        """Return the commands that turn OUT into OUT.tok."""
        if self.tokenized:
            return []
        return [f"tokenizer.perl -l {self.language}"]

    def _preparation(self) -> tuple[Callable[[str], str], str]:
        """Return a function of a line, and its note in the signature."""
        if self.tokenized:
            return str, "|text:tokenized"
        return moses.tokenizer(self.language), _moses_note(self.language)


class BleuCompoundSplit(BleuTok):
    """BLEU of get_ende_bleu.sh, which splits words at hyphens."""

    def _commands(self) -> list[str]:
        steps = super()._commands()
        return [*([_PUNCTUATION] if steps else []), *steps, _SPLIT_HYPHENS]

    def _preparation(self) -> tuple[Callable[[str], str], str]:
        if self.tokenized:
            return moses.split_hyphens, "|text:tokenized|hyphens:split"
        note = _moses_note(self.language)
        return moses.compound_splitter(self.language), f"{note}|hyphens:split"


class LengthRatio(Bleu):
    """Tokens of the system divided by tokens of the reference."""

    higher_is_better = None
    check = f"{Bleu.check} -f text | grep -o 'ratio = [0-9.]*'"

    def aggregate(self, totals: np.ndarray) -> float:
        return float(totals[0] / max(totals[1], 1))

    def sentence_score(self, statistics: np.ndarray) -> float:
        return self.aggregate(statistics)


def _moses_note(language: str) -> str:
    version = metadata.version("sacremoses")
    return f"|text:moses-{language}|sacremoses:{version}"
