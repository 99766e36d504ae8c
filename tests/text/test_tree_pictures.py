"""Pictures of trees, and estimated widths of their text."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro.text import trees

SVG = "{http://www.w3.org/2000/svg}"


def draw(line, sentence):
    """Draw a tree; return {text: (x, y)}, the lines and the view box."""
    tree = trees.read_line(line, sentence.split()).tree
    root = ElementTree.fromstring(trees.draw(tree))
    assert root.find(f"{SVG}title").text == (sentence or None)
    texts = {
        text.text: (float(text.get("x")), float(text.get("y")))
        for text in root.iter(f"{SVG}text")
    }
    lines = {path.get("d") for path in root.iter(f"{SVG}path")}
    return texts, lines, [float(n) for n in root.get("viewBox").split()]


def test_picture_has_words_in_a_row_and_constituents_above_their_children():
    texts, lines, (_, _, width, height) = draw(
        "(S (NP XX XX )NP (VP XX )VP . )S", "The cat sleeps ."
    )
    x = {text: place[0] for text, place in texts.items()}
    y = {text: place[1] for text, place in texts.items()}
    words = "The cat sleeps .".split()
    assert 0 < x["The"] < x["cat"] < x["sleeps"] < x["."] < width
    assert len({y[word] for word in words}) == 1
    assert y["S"] < y["NP"] == y["VP"] < y["cat"] < height
    assert x["NP"] == (x["The"] + x["cat"]) / 2
    assert x["VP"] == x["sleeps"]
    assert x["S"] == (x["NP"] + x["."]) / 2
    assert len(lines) == 6  # S to NP, VP and ".", NP to two words, VP to one


@given(
    st.lists(st.sampled_from("(S (NP )S )NP ( ) XX .".split())),
    st.integers(1, 6),
)
def test_no_two_lines_cross(tokens, length):
    """Lines of a level have the same order at both ends."""
    _, lines, _ = draw(" ".join(tokens), " ".join("abcdef"[:length]))
    levels = {}
    for line in lines:
        x1, y1, x2, y2, _ = map(float, re.findall(r"[\d.]+", line))
        levels.setdefault((y1, y2), []).append((x1, x2))
    for (y1, y2), edges in levels.items():
        assert y2 - y1 == 18  # from under a label to over the next
        edges.sort()
        assert [right for _, right in edges] == sorted(x for _, x in edges)


@pytest.mark.parametrize("line", ["XX XX", ""])
def test_picture_without_constituents_has_words_only(line):
    texts, lines, _ = draw(line, " ".join("ab"[: len(line.split())]))
    assert (len(texts), lines) == (len(line.split()), set())


def test_several_roots_are_side_by_side():
    texts, lines, _ = draw("(NP XX )NP XX (VP XX )VP", "a b c")
    assert texts["NP"][1] == texts["VP"][1] < texts["b"][1]
    assert len(lines) == 2


def test_text_of_picture_is_escaped():
    texts, _, _ = draw("(S&<T> XX XX )S&<T>", 'R&D "<b>')
    assert set(texts) == {"S&<T>", "R&D", '"<b>'}
