"""Translations of sentences, and of lines of several parts."""

from collections.abc import Sequence
from typing import NamedTuple

from t2t_repro.decoding import word_alignment
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.decoding.word_alignment import Alignment
from t2t_repro.io import stop_signals


class Translation(NamedTuple):
    """A sentence's outputs, best first: one, or at most `beam_size`."""

    texts: list[str]
    scores: list[float]
    alignment: Alignment | None = None  # of the best output; None: not asked

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
    ) -> "Translation":
        """Drop the last beams if there are fewer outputs than beams.

        Such a beam has no output, and the score FORBIDDEN. A prefix of the
        maximum length, for example, leaves one output.
        """
        count = max(sum(score >= FORBIDDEN / 2 for score in scores), 1)
        return cls(texts[:count], scores[:count], alignment)

    def best(self, count: int) -> "Translation":
        """Return the best outputs, without the alignment."""
        return Translation(self.texts[:count], self.scores[:count])

    def distinct(self) -> "Translation":
        """Drop outputs that have the text of a better one."""
        best: dict[str, float] = {}
        for text, score in zip(self.texts, self.scores, strict=True):
            best.setdefault(text, score)
        return Translation([*best], [*best.values()], self.alignment)


class Stopped(stop_signals.Stopped):
    """End of a translation, before all lines were translated."""

    def __init__(self, translations: list[Translation | None]) -> None:
        """Store the translations that were not yielded; None: not finished."""
        super().__init__("The translation was stopped.")
        self.translations = translations


def join(
    parts: Sequence[Translation], num_outputs: int, is_aligned: bool
) -> Translation:
    """Join the translations of a line's parts, whose scores are summed.

    Args:
        parts: one or several; none of a blank line.
        num_outputs: outputs of a blank line.
        is_aligned: whether translations have alignments.
    """
    if len(parts) == 1:
        return parts[0]
    count = min((len(part.texts) for part in parts), default=num_outputs)
    alignment = None
    if is_aligned:
        alignment = word_alignment.join(
            part.alignment for part in parts if part.alignment is not None
        )
    return Translation(
        [" ".join(part.texts[k] for part in parts) for k in range(count)],
        [sum((part.scores[k] for part in parts), 0.0) for k in range(count)],
        alignment,
    )
