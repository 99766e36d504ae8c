"""Adapter of sacreBLEU's metrics to the project's interface."""

import abc
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.base import Metric as SacreMetric

from t2t_repro.metrics.metric import Metric
from t2t_repro.text import languages, sentences

DEFAULT_TOKENIZER = "13a"
# sacreBLEU's default tokenizer of a language, and characters for languages that
# have no spaces between words and for which it has none.
_TOKENIZERS = {
    "zh": "zh chi cmn lzh wuu yue zho",
    "ja-mecab": "ja jpn",
    "ko-mecab": "ko kor",
    "char": "bo bod bur dz dzo khm km lao lo my mya shn th tha tib",
}
UNSPACED = ("zh", "ja-mecab", "char")  # of languages without spaces


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
            self.tokenizer = tokenizer_of(language)
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
            command = sentences.SPACE_OUT_COMMAND
            return f"{command}; sacrebleu REF.tok -i OUT.tok {self.options}"
        return f"sacrebleu REF -i OUT {self.options}"

    def prepare(self, line: str) -> str:
        """Return the line that sacreBLEU scores."""
        return sentences.space_out(line) if self.of_characters else line

    def statistics(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] | None = None,
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


def tokenizer_of(language: str) -> str:
    """Return the name of sacreBLEU's tokenizer for a language."""
    code = languages.without_region(language)
    for tokenizer, codes in _TOKENIZERS.items():
        if code in codes.split():
            return tokenizer
    return DEFAULT_TOKENIZER
