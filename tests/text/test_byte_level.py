"""Tests of byte-level byte pairs: any text, in Python and in a graph."""

import pytest
import vocabulary_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_repro.serving.graph_vocabularies import ByteLevelGraph
from t2t_repro.text import byte_pair_encoding
from t2t_repro.text.byte_pair_encoding import BYTE_LEVEL_SPECIAL, ByteLevel

MERGES = [("Ġ", "a"), ("a", "a"), ("Ġ", "Ġ"), ("aa", "aa"), ("'", "s")]
TEXTS = st.text() | st.text("aé1 \t\n\u3000\x1c'st!", max_size=20)


@pytest.fixture(scope="module")
def vocabulary():
    unions = ["".join(pair) for pair in MERGES]
    tokens = [
        *BYTE_LEVEL_SPECIAL,
        *byte_pair_encoding.byte_characters(),
        *unions,
    ]
    return ByteLevel(byte_pair_encoding.map_byte_level(tokens, MERGES, 1).model)


@pytest.fixture(scope="module")
def graph(vocabulary):
    return ByteLevelGraph(vocabulary)


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("", []),
        ("aaaaa", ["aaaa", "a"]),
        ("  a", ["Ġ", "Ġa"]),
        ("a  ", ["a", "ĠĠ"]),
        ("a \ta", ["a", "Ġ", "ĉ", "a"]),
        ("a's", ["a", "'s"]),
        ("a 's", ["a", "Ġ", "'", "s"]),
        ("<s>", ["<", "s", ">"]),
        ("\x1ca", ["Ĝ", "a"]),
    ],
)
def test_spaces_belong_to_the_word_after_them(vocabulary, line, pieces):
    (ids,) = vocabulary.encode([line])
    first = ["<s>"] if line else []
    assert vocabulary.pieces(ids) == [*first, *pieces, "</s>"]


@settings(max_examples=25)
@given(st.lists(TEXTS, max_size=9), st.lists(st.integers(2, 265)))
def test_any_text_survives_and_graph_has_the_same_ids_and_texts(
    vocabulary, graph, lines, ids
):
    assert vocabulary.join(vocabulary.encode(lines)) == lines
    vocabulary_graphs.assert_same_ids(vocabulary, graph, lines)
    vocabulary_graphs.assert_same_text(vocabulary, graph, [ids])
