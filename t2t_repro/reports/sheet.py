"""The whole score sheet of a system: scores, and what puts them in place."""

from collections.abc import Sequence
from typing import NamedTuple

from t2t_repro.reports import bleu, lengths, published, significance
from t2t_repro.text.test_sets import TestSet, require_same_counts


class Sheet(NamedTuple):
    """What is known of a system's output."""

    scores: dict  # bleu.flat()
    # Signatures, intervals, scores by length, published ones, and the
    # difference to a baseline; fit for JSON.
    details: dict
    text: str  # all of it, for people


def make(
    hypotheses: Sequence[str],
    test_set: TestSet,
    language: str,
    tokenized: bool = False,
    baseline: Sequence[str] | None = None,
    samples: int = 1_000,
) -> Sheet:
    """Scores a system's output.

    Args:
        hypotheses: [lines].
        test_set: of as many lines.
        language: of the text, for Moses tokenization.
        tokenized: the text is tokenized already.
        baseline: another system's [lines]; the difference to it is tested.
        samples: of the bootstrap that gives intervals; 1: none.

    Raises:
        UserError: the line counts differ, or there is no line.
    """
    sources, references = test_set
    require_same_counts(hypotheses, *test_set.texts)
    found = bleu.scores(hypotheses, references, language, tokenized, samples)
    of = "source" if sources else "reference"
    by_length = lengths.buckets(
        hypotheses, references, sources or references[0], tokenized
    )
    details = {
        "signatures": {key: one.signature for key, one in found.items()},
        "plus_minus": {key: one.plus_minus for key, one in found.items()},
        f"by_{of}_length": [bucket.row() for bucket in by_length],
    }
    parts = [
        bleu.describe(found, language, tokenized),
        lengths.describe(by_length, of),
    ]
    # Of one reference, as the published scores are.
    name = published.test_set(references[0]) if len(references) == 1 else None
    if name:
        rows = published.SCORES.get(name, ())
        details["test_set"] = name
        details["published"] = [row._asdict() for row in rows]
        parts.append(published.describe(name))
    if baseline is not None:
        differences = significance.compare(
            hypotheses, baseline, references, tokenized
        )
        details["baseline"] = [one._asdict() for one in differences]
        parts.append("\n".join(one.describe() for one in differences))
    return Sheet(bleu.flat(found), details, "\n\n".join(parts))
