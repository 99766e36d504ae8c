"""Trees: bracketed text, their normal form, lines and pictures."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.text import trees
from t2t_repro.text.trees import Span, Tree

# The treebank's format: an empty root, functions, a trace, two layouts.
ONE_LINE = (
    "( (S (NP-SBJ-1 (DT The) (NN cat)) (VP (VBZ seems) (S (NP-SBJ (-NONE- *-1))"
    " (VP (TO to) (VP (VB sleep))))) (. .)) )"
)
INDENTED = """
( (S
    (NP-SBJ-1 (DT The) (NN cat))
    (VP (VBZ seems)
      (S
        (NP-SBJ (-NONE- *-1))
        (VP (TO to)
          (VP (VB sleep)))))
    (. .)))
"""


def spans(text):
    items = (item.split(" ") for item in text.split(", "))
    return tuple(Span(label, int(a), int(b)) for label, a, b in items)


CAT = Tree(
    ("The", "cat", "seems", "*-1", "to", "sleep", "."),
    ("DT", "NN", "VBZ", "-NONE-", "TO", "VB", "."),
    spans(
        " 0 7, S 0 7, NP-SBJ-1 0 2, VP 2 6, S 3 6, NP-SBJ 3 4, VP 4 6, VP 5 6"
    ),
)


def read(text):
    return list(trees.read(text.split("\n"), "a.mrg"))


def test_read_yields_trees_in_order():
    text = f"{ONE_LINE}\n\n{INDENTED}\n(NP (NN tea)) (UH Yes)\n"
    tea = Tree(("tea",), ("NN",), (Span("NP", 0, 1),))
    assert read(text) == [CAT, CAT, tea, Tree(("Yes",), ("UH",), ())]
    assert read("") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(NP (NN a))\n(S (X (NN b))\n(NP (NN c))", "line 2: .* before line 3"),
        ("\n(S\n  (NP (NN b))\n", "line 2: .* before the end of the file"),
        ("(S (NP (NN b))))", r"line 1: '\)' closes what was not opened"),
        ("(NP (NN b))\n)", r"line 2: '\)' closes"),
        ("(NP\n  the (NN cat))", "line 2: 'the' is not in brackets"),
        ("(NP the black cat)", "line 1: 'the' is not in brackets"),
        ("(S\n  (NP )\n  (VP (VB go)))", "line 2: the constituent 'NP' has no"),
        ("()", "line 1: the constituent '' has no words"),
        ("plain text", "line 1: 'plain' is not in brackets"),
    ],
)
def test_malformed_tree_is_user_error_with_file_and_line(text, message):
    with pytest.raises(errors.UserError, match=f"^a.mrg, {message}"):
        read(text)


def test_normal_form_has_no_traces_functions_roots_and_tags():
    assert trees.normalize(CAT) == Tree(
        ("The", "cat", "seems", "to", "sleep", "."),
        ("XX", "XX", "XX", "XX", "XX", "."),
        spans("S 0 6, NP 0 2, VP 2 5, S 3 5, VP 3 5, VP 4 5"),
    )


@pytest.mark.parametrize(
    ("text", "labels", "tags"),
    [
        ("(TOP (NP=2 (NN a)))", ["NP"], ["XX"]),
        ("(ROOT (S-TPC=1-2 (NN a)))", ["S"], ["XX"]),
        ("(S1 (ADVP|PRT (RP up)))", ["ADVP|PRT"], ["XX"]),
        ("(PRN (-LRB- -LRB-) (CD 1) (-RRB- -RRB-))", ["PRN"], ["XX"] * 3),
        ("(X (, ,) (: --) (`` ``) ('' '') (. ?) ($ $))", ["X"])
        + ([",", ":", "``", "''", ".", "XX"],),
        ("(S (NP (-NONE- *)) (VP (S (-NONE- *T*-1))))", [], []),
    ],
)
def test_normal_form_has_these_labels_and_tags(text, labels, tags):
    (tree,) = read(text)
    normal = trees.normalize(tree)
    assert [span.label for span in normal.spans] == labels
    assert list(normal.tags) == tags
    assert trees.normalize(normal) == normal


WORDS = "John has a dog .".split()
TREE = trees.Tree(
    tuple(WORDS),
    ("XX", "XX", "XX", "XX", "."),
    (Span("S", 0, 5), Span("NP", 0, 1), Span("VP", 1, 4), Span("NP", 2, 4)),
)
LINE = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"


def test_tree_is_written_as_line_and_read_back():
    assert trees.write_line(TREE) == LINE
    assert trees.read_line(LINE, WORDS) == trees.LineReading(TREE)
    assert trees.read_line(LINE, WORDS).is_well_formed


@pytest.mark.parametrize(
    ("text", "words", "line", "counts"),
    [
        # A closing bracket closes inner constituents.
        ("(S (X XX (VP XX )S", "a b", "(S (X XX (VP XX )VP )X )S", (2, 0, 0)),
        ("(S XX )VP )S", "a", "(S XX )S", (1, 0, 0)),
        ("(S XX ) ( )S", "a", "(S XX )S", (2, 0, 0)),
        ("(S XX (NP XX", "a b", "(S XX (NP XX )NP )S", (2, 0, 0)),
        # Without words.
        ("(S (NP )NP XX )S", "a", "(S XX )S", (1, 0, 0)),
        ("(S (VP (NP )NP )VP XX )S", "a", "(S XX )S", (2, 0, 0)),
        # More or fewer tags than words.
        ("(S (NP XX XX )NP )S", "a", "(S (NP XX )NP )S", (0, 0, 1)),
        ("(S (NP XX )NP )S", "a b", "(S (NP XX )NP XX )S", (0, 1, 0)),
        ("(S (NP XX", "a b c", "(S (NP XX )NP XX XX )S", (2, 2, 0)),
        ("", "a b", "XX XX", (0, 2, 0)),
        (")S", "a", "XX", (1, 1, 0)),
        ("(S XX )S (NP XX )NP", "a", "(S XX )S", (1, 0, 1)),
        # Missing spaces.
        ("(S(NP XX)NP XX)S)S", "a b", "(S (NP XX )NP XX )S", (1, 0, 0)),
    ],
)
def test_malformed_line_is_repaired(text, words, line, counts):
    reading = trees.read_line(text, words.split())
    assert not reading.is_well_formed
    assert (trees.write_line(reading.tree), reading[1:]) == (line, counts)


TOKENS = st.lists(st.sampled_from("(S (NP )S )NP ( ) XX .".split()))


@given(TOKENS, st.integers(0, 5))
def test_any_line_is_read_as_tree_of_the_sentence(tokens, length):
    words = tuple("abcdef"[:length])
    tree = trees.read_line(" ".join(tokens), words).tree
    assert tree.words == words
    again = trees.read_line(trees.write_line(tree), words)
    assert again == trees.LineReading(tree)


def test_deep_trees_are_read_without_recursion_in_linear_time():
    """A search of all open constituents at each bracket would be quadratic."""
    depth = 20_000
    (tree,) = trees.read(["(S " * depth + "(NN a)" + ")" * depth], "a.mrg")
    assert len(trees.normalize(tree).spans) == depth
    reading = trees.read_line(trees.write_line(tree), ["a"])
    assert reading.is_well_formed and len(reading.tree.spans) == depth
    assert trees.read_line("(S " * depth + "XX", ["a"]).brackets == depth


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


@given(TOKENS, st.integers(1, 6))
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


def test_text_of_picture_is_escaped():
    texts, _, _ = draw("(S&<T> XX XX )S&<T>", 'R&D "<b>')
    assert set(texts) == {"S&<T>", "R&D", '"<b>'}
