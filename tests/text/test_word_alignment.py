"""Word alignments: words of subwords, and links of words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.decoding import translation
from t2t_repro.text import word_alignment
from t2t_repro.text.word_alignment import Alignment

PIECES = ["a", "b", " ", " c", "d ", "ef"]


def decode(rows):
    """Join PIECES; spaces at the beginning disappear, as in SentencePiece."""
    return ["".join(PIECES[i] for i in row).lstrip() for row in rows]


@given(ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=12))
def test_word_of_a_subword_is_that_of_its_last_letter(ids):
    text = "".join(PIECES[i] for i in ids)
    last_word = len(text.split()) - 1
    expected, end = [], 0
    for i in ids:
        start, end = end, end + len(PIECES[i])
        letters = [k for k in range(start, end) if text[k] != " "]
        if letters:
            expected.append(len(text[: letters[-1] + 1].split()) - 1)
        else:
            expected.append(min(len(text[:end].split()), last_word))
    assert word_alignment.word_indices(ids, decode) == expected


def test_words_are_aligned_if_any_of_their_subwords_are_linked():
    links = [(0, 0), (1, 1), (3, 2)]
    found = word_alignment.align_words(links, [0, 0, 1, 2], [0, 1, 1])
    assert found == Alignment(frozenset({(0, 0), (0, 1), (2, 1)}), 3, 2)
    assert word_alignment.align_words([], [], []).pharaoh() == ""


def test_pharaoh_is_sorted_by_number():
    links = frozenset({(10, 0), (9, 1), (9, 0)})
    assert Alignment(links, 11, 2).pharaoh() == "9-0 9-1 10-0"


def test_default_layer_is_the_last_but_one():
    indices = [translation.layer_index(None, n) for n in (1, 2, 3, 6)]
    assert indices == [0, 0, 1, 4]
    assert translation.layer_index(6, 6) == 5
    with pytest.raises(errors.UserError, match="from 1 to 6, .* got 7"):
        translation.layer_index(7, 6)


def test_pharaoh_lines_have_sure_and_possible_links():
    found = word_alignment.parse(" 0-0 10-2\t1?3 1p2 ")
    assert found == {(0, 0): True, (10, 2): True, (1, 3): False, (1, 2): False}
    assert word_alignment.parse("") == {}
    for line in ("0-0 0?0", "0?0 0-0"):  # of a list of sure links, and another
        assert word_alignment.parse(line) == {(0, 0): True}


@pytest.mark.parametrize("item", ["0", "1-", "a-b", "-1-0", "0-0-0", "9" * 10])
def test_other_lines_are_refused(item):
    with pytest.raises(errors.UserError, match="Pharaoh format, .* '0-0 "):
        word_alignment.parse(f"0-0 {item}")


@given(
    sides=st.tuples(*[st.lists(st.integers(0, 2), max_size=9)] * 2),
    links=st.frozensets(st.tuples(st.integers(0, 2), st.integers(0, 2))),
)
def test_subwords_of_linked_words_are_linked(sides, links):
    sides = [sorted(side) for side in sides]
    found = word_alignment.link_subwords(links, *sides)
    real = {(i, j) for i, j in links if i in sides[0] and j in sides[1]}
    assert word_alignment.align_words(found, *sides).links == real
    assert (
        len({*found})
        == len(found)
        == sum(sides[0].count(i) * sides[1].count(j) for i, j in links)
    )
