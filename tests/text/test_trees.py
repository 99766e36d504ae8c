"""Bracketed text: reading, errors, and the normal form."""

import pytest

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
CAT = Tree(
    ("The", "cat", "seems", "*-1", "to", "sleep", "."),
    ("DT", "NN", "VBZ", "-NONE-", "TO", "VB", "."),
    (
        Span("", 0, 7),
        Span("S", 0, 7),
        Span("NP-SBJ-1", 0, 2),
        Span("VP", 2, 6),
        Span("S", 3, 6),
        Span("NP-SBJ", 3, 4),
        Span("VP", 4, 6),
        Span("VP", 5, 6),
    ),
)


def read(text):
    return list(trees.read(text.split("\n"), "a.mrg"))


@pytest.mark.parametrize("text", [ONE_LINE, INDENTED])
def test_both_layouts_give_the_same_tree(text):
    assert read(text) == [CAT]


def test_read_yields_trees_in_order():
    text = f"{ONE_LINE}\n\n{INDENTED}\n(NP (NN tea)) (UH Yes)\n"
    tea = Tree(("tea",), ("NN",), (Span("NP", 0, 1),))
    assert read(text) == [CAT, CAT, tea, Tree(("Yes",), ("UH",), ())]
    assert read("") == []


def test_white_space_within_a_tree_is_ignored():
    (tree,) = read("( NP\t( DT  the ) (NN cat)\n )  ")
    assert tree == Tree(("the", "cat"), ("DT", "NN"), (Span("NP", 0, 2),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "(NP (NN a))\n(S (NP (NN b))\n(NP (NN c))",
            "line 2: .* before line 3",
        ),
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


def test_trees_before_a_malformed_one_are_read():
    result = trees.read(["(NN a)", "(S (NN b)", "(NN c)"], "a.mrg")
    assert next(result).words == ("a",)
    with pytest.raises(errors.UserError, match="line 2"):
        next(result)


def test_normal_form_has_no_traces_functions_roots_and_tags():
    assert trees.normalize(CAT) == Tree(
        ("The", "cat", "seems", "to", "sleep", "."),
        ("XX", "XX", "XX", "XX", "XX", "."),
        (
            Span("S", 0, 6),
            Span("NP", 0, 2),
            Span("VP", 2, 5),
            Span("S", 3, 5),
            Span("VP", 3, 5),
            Span("VP", 4, 5),
        ),
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


def test_deep_tree_is_read_without_recursion():
    text = "(S " * 2000 + "(NN a)" + ")" * 2000
    (tree,) = read(text)
    assert len(trees.normalize(tree).spans) == 2000
