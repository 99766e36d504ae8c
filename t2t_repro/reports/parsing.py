"""The score sheet of parses: EVALB's bracketing, and what had to be repaired.

Words are the sentence's own, so no parse is an error to EVALB. Tags are the
reference's: they decide what is punctuation, and are not scored.
"""

from collections.abc import Sequence

from t2t_repro import errors
from t2t_repro.reports import evalb
from t2t_repro.text import linear, trees
from t2t_repro.text.test_sets import require_same_counts
from t2t_repro.text.trees import Span, Tree

# (key of the sheet, what it is)
CONVENTIONS = {
    "bracketing_f1": "labelled bracketing, EVALB with COLLINS.prm",
    "bracketing_precision": "its precision",
    "bracketing_recall": "its recall",
    "bracketing_exact_match": "% of trees without a difference",
    "unbalanced_trees": "% of trees whose brackets were repaired",
    "miscounted_trees": "% of trees with tags for more or fewer words",
}
SIGNATURE = "evalb:COLLINS.prm|tags:reference|repair:t2t_repro.text.linear"


def score_sheet(
    sentences: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
) -> dict:
    """Scores parses, all as lines of text.

    Returns:
        CONVENTIONS' keys in their order, then "bracketing_signature".

    Raises:
        UserError: a reference is not a tree of its sentence, the line counts
            differ, or there is no line.
    """
    require_same_counts(hypotheses, sentences, references)
    golds = _golds(sentences, references)
    found = [
        linear.read(line, gold.words)
        for line, gold in zip(hypotheses, golds, strict=True)
    ]
    counts = [
        evalb.compare(gold, one.tree._replace(tags=gold.tags))
        for gold, one in zip(golds, found, strict=True)
    ]
    summary = evalb.summary(counts)
    unbalanced = sum(one.brackets > 0 for one in found)
    miscounted = sum(one.missing + one.surplus > 0 for one in found)
    return {
        "bracketing_f1": summary["f1"],
        "bracketing_precision": summary["precision"],
        "bracketing_recall": summary["recall"],
        "bracketing_exact_match": summary["complete_match"],
        "unbalanced_trees": 100 * unbalanced / len(found),
        "miscounted_trees": 100 * miscounted / len(found),
        "bracketing_signature": SIGNATURE,
    }


def _golds(sentences, references):
    """The trees of reference lines."""
    golds = []
    pairs = zip(sentences, references, strict=True)
    for number, (sentence, line) in enumerate(pairs, 1):
        reading = linear.read(line, sentence.split())
        if not reading.whole:
            raise errors.UserError(
                f"Reference {number} is not a tree of its sentence: {line!r} "
                f"for {sentence!r}. Generate the data again."
            )
        golds.append(reading.tree)
    return golds


def describe(sheet: dict) -> str:
    """The sheet for people: a line a figure."""
    lines = [
        f"{sheet[key]:8.2f}  {key:22} {meaning}"
        for key, meaning in CONVENTIONS.items()
    ]
    return "\n".join([*lines, f"signature: {sheet['bracketing_signature']}"])


def right_branching(gold: Tree) -> Tree:
    """A trivial parse: every word but the last opens a constituent.

    The first is S and the others VP, since that is what reaches to the end of
    an English sentence. A punctuation mark at the end hangs on S.
    """
    length = len(gold.words)
    last = length - (
        gold.tags[-1:] != () and gold.tags[-1] in trees.PUNCTUATION
    )
    inner = (Span("VP", first, last) for first in range(1, last - 1))
    outer = [Span("S", 0, length)] if length else []
    return gold._replace(spans=(*outer, *inner))


def right_branching_sheet(
    sentences: Sequence[str], references: Sequence[str]
) -> dict:
    """score_sheet of the trivial parses."""
    parses = map(right_branching, _golds(sentences, references))
    return score_sheet(sentences, [*map(linear.write, parses)], references)
