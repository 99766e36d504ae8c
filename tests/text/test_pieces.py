"""Long text falls into pieces that fit, and loses nothing but white space."""

import hypothesis
import pytest
from hypothesis import strategies as st

from t2t_repro.text import pieces


def at_most(length):
    """Whether a piece has at most so many characters."""
    return lambda piece: len(piece) <= length


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("It fits.", 8, ["It fits."]),
        ("One. Two. Three.", 9, ["One. Two.", "Three."]),
        ('He said "No." She left.', 16, ['He said "No."', "She left."]),
        ("Ends here?! Yes… Ok", 11, ["Ends here?!", "Yes… Ok"]),
        ("好。很好。不好。", 5, ["好。很好。", "不好。"]),
        # 3.5 is no end of a sentence.
        ("It is 3.5 m. So.", 12, ["It is 3.5 m.", "So."]),
        # A sentence too long by itself: at clauses, then at words.
        # Its rest does not borrow from the next one.
        ("a b, c d; e f. G.", 9, ["a b, c d;", "e f.", "G."]),
        ("aa bb cc dd", 5, ["aa bb", "cc dd"]),
        ("aaaabbbb cc", 4, ["aaaa", "bbbb", "cc"]),
        ("  ", 1, []),
    ],
)
def test_literals(text, length, expected):
    assert pieces.split(text, at_most(length)) == expected


@hypothesis.given(
    st.text(alphabet="ab .,!?;。\u00a0\u0085\x00é"), st.integers(1, 9)
)
def test_pieces_fit_and_nothing_is_lost(text, length):
    found = pieces.split(text, at_most(length))
    assert all(len(piece) <= length for piece in found)
    assert all(piece == piece.strip() != "" for piece in found)
    assert "".join("".join(found).split()) == "".join(text.split())


@hypothesis.given(st.text(min_size=1))
def test_what_never_fits_ends_in_characters(text):
    found = pieces.split(text, lambda piece: False)
    assert all(len(piece) == 1 for piece in found)


@hypothesis.given(
    st.lists(
        st.sampled_from([".", "...", "。", "!?", '"', "a", " ", ",;", "—"]),
        max_size=30,
    ).map("".join),
    st.integers(1, 20),
)
def test_pieces_are_as_long_as_can_be(text, most):
    """No two neighbours could have been one, unless a better end is there."""
    found = pieces.split(text, lambda piece: len(piece) <= most)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(0 < len(piece) <= most for piece in found)
    if len(text.strip()) <= most:
        assert found == ([text.strip()] if text.strip() else [])


@pytest.mark.parametrize("mark", [".", ",", ".'", "…!", "—"])
def test_a_long_run_of_marks_ends(mark):
    """Looking from each mark to the end of all is quadratic."""
    text = mark * 100_000
    found = pieces.split(text, lambda piece: len(piece) <= 1_000)
    assert "".join(found) == text and len(found) == len(text) // 1_000
