"""Scores, samples and drawings of random text."""

import json
import math

import hypothesis
from file_strategies import LINES
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro.evaluation import evaluation
from t2t_repro.metrics.metric import TRANSLATION, Suite
from t2t_repro.reports import page, reporting
from t2t_repro.text import test_sets

FEW = hypothesis.settings(
    max_examples=max(20, hypothesis.settings().max_examples // 5)
)


@FEW
@given(
    st.lists(st.tuples(LINES, LINES, LINES), min_size=1, max_size=3),
    st.booleans(),
)
def test_any_translations_are_scored(rows, tokenized):
    sources, hypotheses, references = map(list, zip(*rows, strict=True))
    made = evaluation.score(
        hypotheses,
        test_sets.TestSet(sources, [references]),
        Suite(tokenized=tokenized),
        samples=10,
    )
    assert set(made.scores) == {*TRANSLATION, "signature"}
    for key in TRANSLATION:
        assert 0 <= made.scores[key] < math.inf
        assert key in ("ter", "length_ratio") or made.scores[key] < 100.1
    stored = json.loads(json.dumps(made.scores | made.details))
    assert set(page.read_scores(stored).numbers) == set(TRANSLATION)
    same = sum(a == b for a, b in zip(hypotheses, references, strict=True))
    assert made.scores["exact_match"] == 100 * same / len(rows)


@given(st.lists(st.integers(1, 40), max_size=9), st.integers(0, 10**9))
def test_chosen_sentences_are_distinct_and_short_enough(lengths, count):
    found = reporting.choose_by_length(lengths, count)
    assert len(set(found)) == len(found) <= count
    assert all(lengths[i] <= reporting.LONGEST for i in found)
    assert found or not count or min(lengths, default=99) > reporting.LONGEST
