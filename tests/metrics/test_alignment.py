"""Alignment error rate."""

import pytest

from t2t_repro import errors
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import ALIGNMENT, Suite


def rate(hypotheses, *references):
    metrics = Suite(ALIGNMENT).build()
    statistics = scores.count(metrics, hypotheses, references)
    return scores.aggregate(metrics, statistics)["aer"].value


@pytest.mark.parametrize(
    ("hypotheses", "gold", "expected"),
    [
        (["0-0 1-1"], ["0-0 1-1"], 0),
        (["0-0 1-1"], ["0-1 1-0"], 100),
        ([""], [""], 0),
        # A has 3 links, of which 1 is sure, 2 are possible; S has 2.
        (["0-0 1-1 2-2"], ["0-0 3-3 1?1"], 100 * (1 - 3 / 5)),
        # Sums of the text, not a mean of sentences.
        (["0-0 1-1 2-2", "0-0"], ["0-0 3-3 1?1", "0-0"], 100 * (1 - 5 / 7)),
        (["0-0"], ["0?0"], 0),  # a possible link is not missed
        ([""], ["0?0 1-1"], 100),
    ],
)
def test_rate_is_that_of_och_and_ney(hypotheses, gold, expected):
    assert rate(hypotheses, gold) == pytest.approx(expected)


def test_second_reference_is_refused():
    with pytest.raises(errors.UserError, match="one reference; got 2"):
        rate(["0-0"], ["0-0"], ["0-0"])
