"""Word alignments: words of subwords, and links of words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.decoding import translation
from t2t_repro.decoding.translation import Alignment

PIECES = ["a", "b", " ", " c", "d ", "ef"]


def decode(rows):
    """Join PIECES; spaces at the beginning disappear, as in SentencePiece."""
    return ["".join(PIECES[i] for i in row).lstrip() for row in rows]


@given(ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=12))
def test_word_of_a_subword_is_that_of_its_last_letter(ids):
    text = "".join(PIECES[i] for i in ids)
    last_word = max(len(text.split()) - 1, 0)
    expected, end = [], 0
    for i in ids:
        start, end = end, end + len(PIECES[i])
        letters = [k for k in range(start, end) if text[k] != " "]
        if letters:
            expected.append(len(text[: letters[-1] + 1].split()) - 1)
        else:
            expected.append(min(len(text[:end].split()), last_word))
    assert translation.word_indices(ids, decode) == expected


def test_words_are_aligned_if_any_of_their_subwords_are_linked():
    links = [(0, 0), (1, 1), (3, 2)]
    found = translation.align_words(links, [0, 0, 1, 2], [0, 1, 1])
    assert found == Alignment(frozenset({(0, 0), (0, 1), (2, 1)}), 3, 2)
    assert found.pharaoh() == "0-0 0-1 2-1"
    assert translation.align_words([], [], []).pharaoh() == ""


def test_pharaoh_is_sorted_by_number():
    links = frozenset({(10, 0), (9, 1), (9, 0)})
    assert Alignment(links, 11, 2).pharaoh() == "9-0 9-1 10-0"


def test_parts_of_a_line_are_joined_with_offsets():
    first = Alignment(frozenset({(0, 1), (2, 0)}), 3, 2)
    second = Alignment(frozenset({(0, 0)}), 1, 4)
    found = translation.join_alignments([first, second, first])
    assert found.pharaoh() == "0-1 2-0 3-2 4-7 6-6"
    assert found[1:] == (7, 8)
    assert translation.join_alignments([]) == (frozenset(), 0, 0)


def test_default_layer_is_the_last_but_one():
    indices = [translation.layer_index(None, n) for n in (1, 2, 3, 6)]
    assert indices == [0, 0, 1, 4]
    assert translation.layer_index(6, 6) == 5
    with pytest.raises(errors.UserError, match="from 1 to 6, .* got 7"):
        translation.layer_index(7, 6)
