"""Pictures of trees: what is drawn, and where."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro.text import linear, tree_svg

SVG = "{http://www.w3.org/2000/svg}"


def draw(line, sentence):
    """{text: (x, y)} of a picture, its lines, its size."""
    tree = linear.read(line, sentence.split()).tree
    root = ElementTree.fromstring(tree_svg.svg(tree))
    assert root.find(f"{SVG}title").text == (sentence or None)
    texts = {
        text.text: (float(text.get("x")), float(text.get("y")))
        for text in root.iter(f"{SVG}text")
    }
    lines = {path.get("d") for path in root.iter(f"{SVG}path")}
    return texts, lines, [float(n) for n in root.get("viewBox").split()]


def test_a_picture():
    texts, lines, (_, _, width, height) = draw(
        "(S (NP XX XX )NP (VP XX )VP . )S", "The cat sleeps ."
    )
    x = {text: place[0] for text, place in texts.items()}
    y = {text: place[1] for text, place in texts.items()}
    # 14 pixels to each side of a word, 9 for a letter; a level is 36.
    assert [x[word] for word in "The cat sleeps .".split()] == [
        27.5,
        68.5,
        123,
        168.5,
    ]
    assert (x["NP"], x["VP"], x["S"]) == (48, 123, (48 + 168.5) / 2)
    assert {y[word] for word in "The cat sleeps .".split()} == {86}
    assert (y["NP"], y["VP"], y["S"]) == (50, 50, 14)
    assert (width, height) == (187, 93)
    assert lines == {
        "M108.25 18 L48 36 V36",  # S to NP
        "M108.25 18 L123 36 V36",  # S to VP
        "M108.25 18 L168.5 36 V72",  # S to the full stop: straight down from 36
        "M48 54 L27.5 72 V72",  # NP to The
        "M48 54 L68.5 72 V72",
        "M123 54 L123 72 V72",
    }


@given(
    st.lists(st.sampled_from("(S (NP )S )NP ( ) XX .".split())),
    st.integers(1, 6),
)
def test_no_two_lines_cross(tokens, length):
    """Of two on one level the left one is left at both ends."""
    _, lines, _ = draw(" ".join(tokens), " ".join("abcdef"[:length]))
    levels = {}
    for line in lines:
        x1, y1, x2, y2, _ = map(float, re.findall(r"[\d.]+", line))
        levels.setdefault((y1, y2), []).append((x1, x2))
    for (y1, y2), found in levels.items():
        assert y2 - y1 == 18  # from under a label to over the next
        found.sort()
        assert [right for _, right in found] == sorted(x for _, x in found)


@pytest.mark.parametrize("line", ["XX XX", ""])
def test_without_constituents(line):
    texts, lines, _ = draw(line, " ".join("ab"[: len(line.split())]))
    assert (len(texts), lines) == (len(line.split()), set())


def test_several_roots_stand_side_by_side():
    texts, lines, _ = draw("(NP XX )NP XX (VP XX )VP", "a b c")
    assert texts["NP"][1] == texts["VP"][1] < texts["b"][1]
    assert len(lines) == 2


def test_text_is_escaped():
    texts, _, _ = draw("(S&<T> XX XX )S&<T>", 'R&D "<b>')
    assert set(texts) == {"S&<T>", "R&D", '"<b>'}
