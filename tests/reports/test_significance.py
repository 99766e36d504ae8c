"""Paired tests on systems whose difference is known."""

import pytest

from t2t_repro import errors
from t2t_repro.reports import bleu, significance

REFERENCES = [[f"line {i} of the text is a good one" for i in range(50)]]


def test_both_scores_and_a_low_p():
    worse = [line.replace("good", "very bad") for line in REFERENCES[0]]
    sheet = bleu.score_sheet(worse, REFERENCES)
    found = significance.compare(REFERENCES[0], worse, REFERENCES)
    assert [one.metric for one in found] == ["bleu", "chrf"]
    for one, key in zip(found, ("bleu", "chrf"), strict=True):
        assert one.system == pytest.approx(100)
        assert one.baseline == pytest.approx(sheet[key])
        assert one.p_value < 0.01
    said = f"bleu 100.00 against {sheet['bleu']:.2f} of the baseline, p = 0.0"
    assert found[0].describe().startswith(said)
    back, _ = significance.compare(worse, REFERENCES[0], REFERENCES)
    assert (back.system, back.baseline) == (found[0].baseline, found[0].system)


def test_no_difference_between_like_systems():
    # Each is wrong in 10 other lines of 50.
    one, two = (
        [
            line.replace("good", "bad") if i % 5 == rest else line
            for i, line in enumerate(REFERENCES[0])
        ]
        for rest in (0, 1)
    )
    for found in significance.compare(one, two, REFERENCES):
        assert found.p_value > 0.05


def test_no_difference_between_a_system_and_itself():
    for found in significance.compare(*REFERENCES, *REFERENCES, REFERENCES):
        assert found.p_value == 1


def test_tokens_are_compared_as_they_are():
    # 13a would split at the full stop, and find more that matches.
    lines = [f"line {i} of this text" for i in range(10)]
    dotted = [f"{line} end." for line in lines]
    plain = [f"{line} end" for line in lines]
    of_text, _ = significance.compare(plain, dotted, [dotted])
    of_tokens, _ = significance.compare(plain, dotted, [dotted], tokenized=True)
    sheet = bleu.score_sheet(plain, [dotted], tokenized=True)
    assert of_text.system == pytest.approx(sheet["bleu"])
    assert of_tokens.system == pytest.approx(sheet["bleu_tok"])
    assert of_tokens.system != pytest.approx(of_text.system)


@pytest.mark.parametrize("lines", [49, 51])
def test_line_counts_that_differ_are_named(lines):
    with pytest.raises(errors.UserError, match=f"50.*{lines}"):
        significance.compare(REFERENCES[0], ["a good one"] * lines, REFERENCES)
