"""Pictures of trees: what is drawn, and where."""

from xml.etree import ElementTree

import pytest

from t2t_repro.reports import drawing
from t2t_repro.text import linear

SVG = "{http://www.w3.org/2000/svg}"


def draw(line, sentence):
    """{text: (x, y)} of a picture, its lines as ((x, y), (x, y)), its size."""
    tree = linear.read(line, sentence.split()).tree
    root = ElementTree.fromstring(drawing.svg(tree))
    assert root.find(f"{SVG}title").text == (sentence or None)
    texts = {
        text.text: (float(text.get("x")), float(text.get("y")))
        for text in root.iter(f"{SVG}text")
    }
    lines = set()
    for line in root.iter(f"{SVG}line"):
        x1, y1, x2, y2 = (float(line.get(key)) for key in "x1 y1 x2 y2".split())
        lines.add(((x1, y1), (x2, y2)))
    return texts, lines, [float(n) for n in root.get("viewBox").split()]


def test_a_picture():
    texts, lines, (_, _, width, height) = draw(
        "(S (NP XX XX )NP (VP XX )VP . )S", "The cat sleeps ."
    )
    x = {text: place[0] for text, place in texts.items()}
    y = {text: place[1] for text, place in texts.items()}
    # 14 pixels to each side of a word, 8 for a character; a level is 36.
    assert [x[word] for word in "The cat sleeps .".split()] == [
        26,
        64,
        114,
        156,
    ]
    assert (x["NP"], x["VP"], x["S"]) == (45, 114, (45 + 156) / 2)
    assert {y[word] for word in "The cat sleeps .".split()} == {86}
    assert (y["NP"], y["VP"], y["S"]) == (50, 50, 14)
    assert (width, height) == (174, 93)
    edges = ["S NP", "S VP", "S .", "NP The", "NP cat", "VP sleeps"]
    assert lines == {
        ((x[above], y[above] + 4), (x[below], y[below] - 14))
        for above, below in map(str.split, edges)
    }


def test_a_constituent_is_above_the_highest_in_it():
    texts, _, _ = draw("(A (B (C XX )C XX )B (D XX )D )A", "c b d")
    levels = [(texts["c"][1] - texts[label][1]) / 36 for label in "ABCD"]
    assert levels == [3, 2, 1, 1]


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
