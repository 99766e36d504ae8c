"""Translators and translations: parts, word alignments and output formats."""

import json
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from t2t_repro import errors
from t2t_repro.io import progress
from t2t_repro.text import languages, long_lines, parallel_files
from t2t_repro.text.word_alignment import Alignment, join_alignments

if TYPE_CHECKING:
    from t2t_repro.models.seq2seq import AttentionWeights

# Log-probability of forbidden subwords. Commands import this module without
# TensorFlow.
FORBIDDEN = -1e9


def layer_index(
    layer: int | None, num_layers: int, setting: str = "--alignment_layer"
) -> int:
    """Return the index of the layer whose attention aligns.

    Args:
        layer: number of a layer, from 1; None: the last but one.
        num_layers: number of the decoder's layers.
        setting: where the number is from, for the error.

    Raises:
        UserError: there is no such layer.
    """
    if layer is None:
        return max(num_layers - 2, 0)
    if not 1 <= layer <= num_layers:
        raise errors.UserError(
            f"{setting} must be from 1 to {num_layers}, the number of "
            f"the decoder's layers; got {layer}."
        )
    return layer - 1


class Subwords(NamedTuple):
    """Subwords of an output, EOS the last, and their log-probabilities."""

    pieces: list[str]
    log_probs: list[float]  # of the model, without what rules add
    words: list[int]  # word that each belongs to, from 0; -1 of EOS

    @property
    def word_log_probs(self) -> list[float]:
        """Log-probability of each word, text.split(): that of its subwords."""
        sums = [0.0] * (max(self.words, default=-1) + 1)
        for word, log_prob in zip(self.words, self.log_probs, strict=True):
            if word >= 0:
                sums[word] += log_prob
        return sums


class Translation(NamedTuple):
    """A sentence's outputs, best first: one, or at most `beam_size`."""

    texts: list[str]
    scores: list[float]
    alignment: Alignment | None = None  # of the best output; None: not asked
    # Length of a line that was truncated (in bytes, by an export) or refused
    # (in subwords, by a run); 0: it was not too long.
    too_long: int = 0
    subwords: list[Subwords] | None = None  # of each output; None: not asked

    @property
    def text(self) -> str:
        """The best output."""
        return self.texts[0]

    @classmethod
    def of_beams(
        cls,
        texts: list[str],
        scores: list[float],
        alignment: Alignment | None = None,
        too_long: int = 0,
    ) -> "Translation":
        """Drop the last beams if there are fewer outputs than beams.

        Such a beam has no output, and the score FORBIDDEN. A prefix of the
        maximum length, for example, leaves one output.
        """
        count = max(sum(score >= FORBIDDEN / 2 for score in scores), 1)
        return cls(texts[:count], scores[:count], alignment, too_long)

    def best(self, count: int) -> "Translation":
        """Return the best outputs, without the alignment."""
        return self._at(range(len(self.texts))[:count])._replace(alignment=None)

    def distinct(self) -> "Translation":
        """Drop outputs that have the text of a better one."""
        best: dict[str, int] = {}
        for number, text in enumerate(self.texts):
            best.setdefault(text, number)
        return self._at(best.values())

    def _at(self, numbers: Iterable[int]) -> "Translation":
        numbers, subwords = list(numbers), self.subwords
        return self._replace(
            texts=[self.texts[k] for k in numbers],
            scores=[self.scores[k] for k in numbers],
            subwords=subwords and [subwords[k] for k in numbers],
        )


class AttentionTrace(NamedTuple):
    """Attention weights of a sentence and its translation."""

    inputs: str
    outputs: str
    source: list[str]  # L pieces, EOS the last
    target: list[str]  # T pieces, EOS the last
    weights: "AttentionWeights"  # numpy arrays without the axis B


class Translator(Protocol):
    """Model that takes and returns text: of a run, an export or a server.

    They are api.Model and the models of serving.client. Beneath that of a run
    is translate.BatchTranslator: one search, and streams of normalized lines.
    """

    def translate(
        self,
        lines: Iterable[str],
        n_best: int = 1,
        target_language: str = "",
        *,
        prefixes: Iterable[str] | None = None,
        side: Iterable[str] | None = None,
        distinct: bool = False,
        **search: Any,
    ) -> list[Translation]:
        """Translate lines.

        Args:
            lines: one sentence each.
            n_best: translations of each line, at most the beams of the search.
            target_language: of a many-to-many model, "de", or "en-de" of one
                that reads the source's, too; "": each line begins with a tag
                such as <2de> or <en2de>.
            prefixes: start of the translation of each line, "" for any. None:
                any start.
            side: side input of each line, fields separated by tabs, which a
                search rule reads. None: there are none.
            distinct: whether to drop, before the n best are chosen, outputs
                with the text of a better one.
            **search: settings of the search. An export has beam_size and alpha.

        Returns:
            The translations of each line, best first.

        Raises:
            UserError: an argument or a line is refused.
        """

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        target_language: str = "",
    ) -> list[float]:
        """Return the log-probability of a given translation of each source."""

    def attention(self, line: str, target_language: str = "") -> AttentionTrace:
        """Translate a line, and return the attention weights.

        Raises:
            UserError: the line is refused, or the model has no attention.
        """


def require_beams(n_best: int, beam_size: int) -> None:
    """Require that a search has `n_best` outputs."""
    if not (isinstance(n_best, numbers.Integral) and 1 <= n_best <= beam_size):
        raise errors.UserError(
            f"n_best must be from 1 to beam_size={beam_size}; got {n_best!r}. "
            "Say beam_size=…, too, or export with more beams."
        )


def require_lines(lines: Iterable[str]) -> list[str]:
    """Return lines as a list; refuse one string, and what is no string."""
    if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
        raise errors.UserError(
            f"Expected a list of lines; got the {type(lines).__name__} "
            f"{lines!r:.80}. Write a single line as a list of one."
        )
    found = list(lines)
    parallel_files.require_text(found)
    return found


def require_beside(
    sources: Sequence[str], others: Iterable[str], noun: str
) -> list[str]:
    """Return texts as a list; refuse more or fewer than sources.

    The noun says what one is, such as "side input".
    """
    found = require_lines(others)
    if len(sources) != len(found):
        raise errors.UserError(
            f"Each source needs one {noun}; got {len(found):,} for "
            f"{len(sources):,} sources."
        )
    return found


def normalize_fields(
    lines: Iterable[str], normalize: Callable[[str], str]
) -> Iterator[str]:
    """Yield side inputs, of which each field between tabs is normalized."""
    for line in lines:
        yield "\t".join(map(normalize, line.split("\t")))


def too_long(
    translations: Iterable[Translation], first: int = 1
) -> dict[int, int]:
    """Return {number: length} of the lines, from `first`, that are too long."""
    return {
        number: found.too_long
        for number, found in enumerate(translations, first)
        if found.too_long
    }


def refused_message(
    lengths: Mapping[int, int], limit: int, are_others_kept: bool = True
) -> str:
    """Return a message about the lines of too_long(), which were refused.

    `limit` is the maximum number of subwords. `are_others_kept` says whether
    the other lines have translations.
    """
    lines = {f"line {n:,}": length for n, length in lengths.items()}
    return long_lines.message(lines, len(lines), limit, are_others_kept)


def is_missing(line: str, found: Translation) -> bool:
    """Return whether a line that has words was translated as nothing."""
    has_text = parallel_files.has_text(languages.without_tag(line))
    return has_text and not (found.text or found.too_long)


def missing_note(missing: Sequence[Translation], total: int) -> str:
    """Return a note about those of `total` translations with is_missing()."""
    count = len(missing)
    note = f"Note: {count:,} of {total:,} lines were translated as nothing"
    scores = (score for found in missing for score in found.scores[:1])
    if excluded := sum(not score > FORBIDDEN / 2 for score in scores):
        return (
            f"{note}, {excluded:,} of them because the search rules leave no "
            "output, or return NaN."
        )
    return (
        f"{note}, which some models prefer where they doubt. "
        "--decode_hparams=min_length=3 avoids it; where there are beams, so "
        "does beam_size=1 or a larger alpha."
    )


class Stopped(progress.Stopped):
    """End of a translation, before all lines were translated."""

    def __init__(self, translations: list[Translation | None]) -> None:
        """Store the translations that were not yielded; None: not finished."""
        super().__init__("The translation was stopped.")
        self.translations = translations


def join(
    parts: Sequence[Translation], num_outputs: int, is_aligned: bool
) -> Translation:
    """Join the translations of a line's parts, whose scores are summed.

    A blank line has no parts, and `num_outputs` outputs. If it `is_aligned`, so
    is the result.
    """
    if len(parts) == 1:
        return parts[0]
    count = min((len(part.texts) for part in parts), default=num_outputs)
    alignment = None
    if is_aligned:
        alignment = join_alignments(
            part.alignment for part in parts if part.alignment is not None
        )
    return Translation(
        [" ".join(part.texts[k] for part in parts) for k in range(count)],
        [sum((part.scores[k] for part in parts), 0.0) for k in range(count)],
        alignment,
    )


# Formats in which decoder writes translations.

_DIGITS = 6  # after the point of a score


def text(number: int, source: str, translation: Translation) -> str:
    """Return all outputs of a sentence on one line, as in tensor2tensor.

    Tabs are between them, so those of a text with its tabs become spaces.
    """
    texts = translation.texts
    return "\t".join(map(_without_tabs, texts) if len(texts) > 1 else texts)


def _without_tabs(text):
    return text.replace("\t", " ")


def tsv(number: int, source: str, translation: Translation) -> str:
    """Return a line for each output: sentence, rank, score, text."""
    pairs = zip(translation.texts, translation.scores, strict=True)
    return "\n".join(
        f"{number}\t{rank}\t{score:.{_DIGITS}f}\t{_without_tabs(output)}"
        for rank, (output, score) in enumerate(pairs, 1)
    )


def jsonl(number: int, source: str, translation: Translation) -> str:
    """Return a JSON object of the sentence and its outputs."""
    pairs = zip(translation.texts, translation.scores, strict=True)
    outputs = [
        {"text": output, "score": round(score, _DIGITS)}
        for output, score in pairs
    ]
    values = {"sentence": number, "source": source, "translations": outputs}
    return json.dumps(values, ensure_ascii=False)


# Functions of the number of a sentence, from 1, the line and its translation.
OUTPUT_FORMATS: dict[str, Callable[[int, str, Translation], str]] = {
    "text": text,
    "tsv": tsv,
    "jsonl": jsonl,
}
