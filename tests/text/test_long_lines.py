"""Splitting of long text: fragments fit, and no character is lost."""

import hypothesis
import pytest
from hypothesis import strategies as st

from t2t_repro.text import long_lines


def at_most(length):
    """Return a function: whether a fragment has at most `length` characters."""
    return lambda fragment: len(fragment) <= length


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("It fits.", 8, ["It fits."]),
        ("One. Two. Three.", 9, ["One. Two.", "Three."]),
        ('He said "No." She left.', 16, ['He said "No."', "She left."]),
        ("Ends here?! Yes… Ok", 11, ["Ends here?!", "Yes… Ok"]),
        ("好。很好。不好。", 5, ["好。很好。", "不好。"]),
        # 3.5 does not end a sentence.
        ("It is 3.5 m. So.", 12, ["It is 3.5 m.", "So."]),
        # A sentence that is too long is split at clauses, then at words. Its
        # rest is not joined with the next sentence.
        ("a b, c d; e f. G.", 9, ["a b, c d;", "e f.", "G."]),
        ("aa bb cc dd", 5, ["aa bb", "cc dd"]),
        ("aaaabbbb cc", 4, ["aaaa", "bbbb", "cc"]),
        ("  ", 1, []),
    ],
)
def test_split_prefers_ends_of_sentences_then_clauses_then_words(
    text, length, expected
):
    assert long_lines.split(text, at_most(length)) == expected


@hypothesis.given(
    st.text(alphabet="ab .,!?;。\u00a0\u0085\x00é"), st.integers(1, 9)
)
def test_fragments_fit_and_keep_every_character(text, length):
    result = long_lines.split(text, at_most(length))
    assert all(len(fragment) <= length for fragment in result)
    assert all(fragment == fragment.strip() != "" for fragment in result)
    assert "".join("".join(result).split()) == "".join(text.split())


@hypothesis.settings(max_examples=30)
@hypothesis.given(st.text(min_size=1, max_size=30))
def test_text_that_never_fits_is_split_into_characters(text):
    result = long_lines.split(text, lambda fragment: False)
    assert all(len(fragment) == 1 for fragment in result)


@hypothesis.given(
    st.lists(
        st.sampled_from([".", "...", "。", "!?", '"', "a", " ", ",;", "—"]),
        max_size=30,
    ).map("".join),
    st.integers(1, 20),
)
def test_text_that_fits_is_one_fragment(text, most):
    result = long_lines.split(text, lambda fragment: len(fragment) <= most)
    assert "".join("".join(result).split()) == "".join(text.split())
    assert all(0 < len(fragment) <= most for fragment in result)
    if len(text.strip()) <= most:
        assert result == ([text.strip()] if text.strip() else [])


@pytest.mark.parametrize("mark", [".", ",", ".'", "…!", "—"])
def test_split_takes_linear_time_in_a_run_of_marks(mark):
    """A match from each mark to the end of the run would be quadratic."""
    text = mark * 50_000
    result = long_lines.split(text, lambda fragment: len(fragment) <= 1_000)
    assert "".join(result) == text and len(result) == len(text) // 1_000
