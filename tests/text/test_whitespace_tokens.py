"""Vocabulary of tokenized text, in Python and in a graph."""

import pytest
import vocabulary_graphs
from file_strategies import LINES, UNUSUAL
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.serving.graph_vocabularies import TokenTable
from t2t_repro.text.vocabulary import (
    EOS,
    SpecialTokens,
    WhitespaceTokens,
    map_ids,
    pad_name,
    split_tokens,
)

NAMES = SpecialTokens("</s>", "<unk>")
TEXT = ["b a a", "a\tc <unk> </s>", "", "  b  d\r"]


@pytest.fixture(scope="module")
def learned():
    return WhitespaceTokens.learn(TEXT, 6)


def test_most_frequent_tokens_are_learned(learned):
    tokens = ["<pad>", "</s>", "<unk>", "a", "b", "c"]
    assert learned.pieces(range(learned.size)) == tokens
    assert WhitespaceTokens.learn(TEXT, 100).size == 7
    assert WhitespaceTokens.learn(TEXT, 6).model == learned.model


def test_text_is_encoded_and_decoded(learned):
    ids = learned.encode(["a  x c\tb", "", "<pad> </s> <unk>"])
    assert ids == [[3, 2, 5, 4, EOS], [EOS], [2, 2, 2, EOS]]
    assert learned.decode(ids) == ["a <unk> c b", "", "<unk> <unk> <unk>"]
    assert learned.unknown == 2


def test_only_ascii_whitespace_separates_tokens():
    text = "a\xa0b\u3000c\x1cd\x85e"
    assert split_tokens(f"\f{text}\v {text}\n") == [text] * 2


@settings(max_examples=30)
@given(st.lists(LINES, max_size=4), st.text(UNUSUAL, max_size=30))
def test_graph_equals_the_vocabulary(lines, text):
    vocabulary = WhitespaceTokens.learn([*lines, text, "a"], 9)
    asked = [*lines, text, "a </s> <pad> b"]
    vocabulary_graphs.assert_same_ids(vocabulary, TokenTable(vocabulary), asked)


@pytest.mark.parametrize("pad", [None, "<blank>"])
def test_ids_of_another_list_become_ours(pad):
    tokens = ["<s>", "<blank>", "a", "</s>", "<unk>", "<pad>"]
    assert pad_name(tokens) == "<pad>"
    assert pad_name(tokens[:5]) == "<blank>"
    assert pad_name(["a"]) is None
    model, order = map_ids(tokens, NAMES._replace(pad=pad))
    vocabulary = WhitespaceTokens(model)
    pieces = vocabulary.pieces(range(vocabulary.size))
    if pad:
        assert order == [1, 3, 0, 2, 4, 5]
        assert pieces == [tokens[i] for i in order]
    else:  # the list has no PAD, and a token of that name
        assert order == [-1, 3, 0, 1, 2, 4, 5]
        assert pieces == ["<<pad>>", *(tokens[i] for i in order[1:])]
    assert pieces[vocabulary.unknown] == "<unk>"


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["</s>", "a"], "The vocabulary of 2 tokens lacks '<unk>'"),
        (["</s>", "<unk>", "a", "a"], "'a' occurs 2 times"),
        (["</s>", "<unk>", "\ud800"], "not a list of tokens .*surrogates"),
    ],
)
def test_unusable_list_of_tokens_is_refused(tokens, message):
    with pytest.raises(errors.UserError, match=message):
        map_ids(tokens, NAMES)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (b"\xff", "not a list of tokens .1 bytes"),
        (b"[]", "not a list of tokens"),
        (b'{"tokens": []}', "not a list of tokens .*unknown"),
        (b'{"tokens": [1, 2, 3], "unknown": "a"}', "must be a list of texts"),
        (
            b'{"tokens": ["a", "b", "c"], "unknown": "b"}',
            "unknown token, 'b', must be in the list, after",
        ),
    ],
)
def test_damaged_file_is_refused(model, message):
    with pytest.raises(errors.UserError, match=message):
        WhitespaceTokens(model)


@pytest.mark.parametrize(
    ("lines", "size", "message"),
    [(["a"], 3, "of 3 tokens: 3 are special"), (["", "</s>"], 9, "is empty")],
)
def test_vocabulary_without_tokens_is_not_learned(lines, size, message):
    with pytest.raises(errors.UserError, match=message):
        WhitespaceTokens.learn(lines, size)
