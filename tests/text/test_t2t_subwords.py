"""tensor2tensor's subwords: segmentation, escapes, and their graph."""

import functools

import pytest
import tensor2tensor_models as models
import tensorflow as tf
import vocabulary_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.serving.graph_vocabularies import T2TSubwordsGraph
from t2t_repro.text.t2t_subwords import T2TSubwords, split_words
from t2t_repro.text.vocabulary import EOS

VOCABULARY = T2TSubwords(models.VOCABULARY)
LINES = st.text("the_cat \\;u0129.\u00e9\u65e5\u00bd\u00a0-\n\U0001f600")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the cat.", ["the", "cat", "."]),
        ("the  cat", ["the", "  ", "cat"]),
        ("a - 1", ["a", " - ", "1"]),
        ("x\u00bd\u65e5", ["x\u00bd\u65e5"]),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_or_of_others(text, words):
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        (" the cat\u00a0", ["the_", "cat_"]),
        ("that", ["t", "h", "at_"]),
        ("a_b", ["a", "_", "\\", "u", "_", "b", "_"]),
        ("\\", ["\\", "\\", "_"]),
        ("\u20ac", ["\\", "8", "3", "6", "4", ";", "_"]),
        ("", []),
    ],
)
def test_longest_subword_is_taken_first(line, pieces):
    ((*ids, end),) = VOCABULARY.encode([line])
    assert (VOCABULARY.pieces(ids), end) == (pieces, EOS)


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        (["the_", "cat_"], "the cat"),
        (["the_", ".", "_", "cat_"], "the.cat"),
        (["\\", "6", "5", ";", "_"], "A"),
        (["\\", "9", "9", "9", "9", "9", "9", "9", ";", "_"], "\u3013"),
        (["\\", *"55296", ";"], "\u3013"),
        (["\\", *"000000000065", ";"], "A"),
        (["\\", *"4294967361", ";"], "\u3013"),
        (["\\", "u", "\\", "\\", "u"], "_\\u"),
    ],
)
def test_pieces_become_text(pieces, line):
    table = VOCABULARY.pieces(range(VOCABULARY.size))
    ids = [table.index(piece) for piece in pieces]
    assert VOCABULARY.join([ids]) == [line]
    decoded = _graph().decode(tf.ragged.constant([ids], dtype=tf.int32))
    assert decoded.numpy()[0].decode() == line


@functools.cache
def _graph():
    return T2TSubwordsGraph(VOCABULARY)


@settings(max_examples=30)
@given(st.lists(LINES, max_size=4))
def test_text_survives_and_graph_gives_the_same_ids(lines):
    rows = [ids[:-1] for ids in VOCABULARY.encode(lines)]
    assert VOCABULARY.join(rows) == [line.strip() for line in lines]
    vocabulary_graphs.assert_same_ids(VOCABULARY, _graph(), lines)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(2, VOCABULARY.size - 1)), max_size=4))
def test_graph_gives_the_same_text(rows):
    vocabulary_graphs.assert_same_text(VOCABULARY, _graph(), rows)


def test_quotes_around_subwords_may_be_missing():
    bare = models.VOCABULARY.replace(b"'", b"")
    assert T2TSubwords(bare).pieces(range(9)) == VOCABULARY.pieces(range(9))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (b"", "Subword 0 .* is '<pad>'; got ''"),
        (b"'<pad>'\n", "Subword 1 .* is '<EOS>'; got None"),
        (b"'<pad>'\n'<EOS>'\n'a'\n", "this one lacks '0', '1', "),
        (b"\xff", "not a vocabulary of tensor2tensor"),
    ],
)
def test_other_file_is_refused(model, message):
    with pytest.raises(errors.UserError, match=message):
        T2TSubwords(model)
