"""Scores of short and of long sentences."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from t2t_repro.reports import bleu

LONGEST = (10, 20, 30, 40, 50, 60)  # words of a bucket; the last has no end


class Bucket(NamedTuple):
    """Sentences of like length, and how they are translated."""

    shortest: int  # words
    longest: int | None  # words; None: no end
    sentences: int
    convention: str  # a key of bleu.CONVENTIONS
    score: float
    length_ratio: float  # tokens of the system / of the reference

    def row(self) -> dict:
        """For JSON: the score has its convention's name."""
        values = self._asdict()
        score = {values.pop("convention"): values.pop("score")}
        ratio = {"length_ratio": values.pop("length_ratio")}
        return values | score | ratio


def buckets(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    measured: Sequence[str],
    tokenized: bool = False,
) -> list[Bucket]:
    """BLEU by the length of sentences; buckets without any are left out.

    Args:
        hypotheses: [lines].
        references: one or more lists of [lines].
        measured: [lines] whose words are counted: the source's, or where it is
            not known, the reference's.
        tokenized: as in bleu.scores(); bleu.main_metric() goes by it.
    """
    convention, metric = bleu.main_metric(tokenized)
    members: list[list[int]] = [[] for _ in range(len(LONGEST) + 1)]
    for i, line in enumerate(measured):
        members[bisect.bisect_left(LONGEST, len(line.split()))].append(i)
    found = []
    for shortest, longest, lines in zip(
        (0, *(most + 1 for most in LONGEST)),
        (*LONGEST, None),
        members,
        strict=True,
    ):
        if lines:
            result = metric().corpus_score(
                [hypotheses[i] for i in lines],
                [[reference[i] for i in lines] for reference in references],
            )
            ratio = result.sys_len / max(result.ref_len, 1)
            found.append(
                Bucket(
                    shortest,
                    longest,
                    len(lines),
                    convention,
                    result.score,
                    ratio,
                )
            )
    return found


def describe(found: Sequence[Bucket], of: str) -> str:
    """The buckets for people; `of` says whose words were counted."""
    lines = [f"{found[0].convention} by words of the {of}:"]
    for shortest, longest, sentences, _, score, ratio in found:
        words = f"{shortest}-{longest}" if longest else f"{shortest}-"
        lines.append(
            f"{score:8.2f}  {words:>6} words, {sentences:,} sentences, "
            f"length ratio {ratio:.2f}"
        )
    return "\n".join(lines)
