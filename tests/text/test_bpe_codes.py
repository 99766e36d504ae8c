"""Codes of subword-nmt and fastBPE; expected values are subword-nmt's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.text import byte_pair_encoding
from t2t_repro.text.byte_pair_encoding import BpeCodes, Segmenter

MERGES = "t h\nth e</w>\no o\noo o\nc a\nca t</w>\n"
TOKENS = ["<pad>", "</s>", "<unk>", "the", "cat", "s", "ca@@", "t@@", "."]


def vocabulary(tokenizer="none", tokens=TOKENS):
    model = byte_pair_encoding.serialize_codes(
        tokens, "<unk>", f"#version: 0.2\n{MERGES}", tokenizer, "en"
    )
    return BpeCodes(model)


@pytest.mark.parametrize(
    ("word", "subwords"),
    [
        ("the", "the"),
        ("then", "th@@ e@@ n"),
        ("cats", "ca@@ t@@ s"),
        ("ooooo", "oo@@ oo@@ o"),
        ("oooo", "ooo@@ o"),
        ("x", "x"),
        ("  the  cat\r", "the cat"),
        ("a\u00a0the", "a@@ @@ the"),
        ("", ""),
    ],
)
def test_first_merge_of_the_list_comes_first(word, subwords):
    segmenter = Segmenter(f"#version: 0.2\n{MERGES}")
    assert segmenter.segment(word) == subwords.split()


def merge_all(parts, merges):
    """Merge the occurrences of the first pair that occurs, again and again."""
    for pair in merges:
        if pair in zip(parts, parts[1:], strict=False):
            joined, rest = [], list(parts)
            while rest:
                size = 2 if tuple(rest[:2]) == pair else 1
                joined.append("".join(rest[:size]))
                rest = rest[size:]
            return merge_all(joined, merges)
    return parts


@given(
    st.lists(
        st.tuples(*[st.sampled_from(["a", "b", "ab", "ba", "aa", "aab"])] * 2),
        min_size=1,
        max_size=9,
        unique=True,
    ),
    st.text("ab", min_size=1, max_size=12),
)
def test_merges_are_those_of_a_search_in_all_parts(merges, word):
    """Also of codes that no text has: a later pair makes an earlier one."""
    codes = "".join(f"{left} {right}\n" for left, right in merges)
    expected = merge_all([*word[:-1], f"{word[-1]}</w>"], merges)
    expected[-1] = expected[-1].removesuffix("</w>")
    segmented = Segmenter(f"#version: 0.2\n{codes}").segment(word)
    assert [part.removesuffix("@@") for part in segmented] == expected


def test_version_1_ends_words_apart():
    merges = "t h\nth e\nthe </w>\nc a\n"
    assert Segmenter(merges).segment("the then") == ["the", "the@@", "n"]


def test_frequencies_are_fastbpes():
    lines = (f"{line} 9\n" for line in MERGES.splitlines())
    segmented = Segmenter("".join(lines)).segment("the cats")
    assert segmented == ["the", "ca@@", "t@@", "s"]


def test_unknown_subwords_and_names_of_special_tokens_are_unknown():
    (ids,) = vocabulary().encode(["the dog </s> <pad>"])
    assert ids[0] == 3 and ids[-1] == 1
    assert set(ids[1:-1]) == {2}


@pytest.mark.parametrize("tokenizer", byte_pair_encoding.TOKENIZERS)
def test_text_of_known_subwords_survives(tokenizer):
    found = vocabulary(tokenizer)
    text = "cats the cat ." if tokenizer == "none" else "cats the cat."
    (ids,) = found.encode([text])
    assert found.join([ids[:-1]]) == [text]


@given(st.text(alphabet="thecao \u00a0\t@."))
def test_any_text_has_ids(line):
    (ids,) = vocabulary().encode([line])
    assert ids[-1] == 1 and all(1 < i < len(TOKENS) for i in ids[:-1])
    (text,) = vocabulary().join([ids[:-1]])
    assert isinstance(text, str)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": None}, "'tokens'. is None, where list"),
        ({"codes": 1}, "'codes'. is 1, where str"),
        ({"codes": "#version: 0.3\n"}, "version 0.1 or 0.2; got 0.3"),
        ({"codes": "a b c\n"}, "two subwords on each line; got 'a b c'"),
        ({"tokenizer": "other"}, "tokenizer must be one of"),
    ],
)
def test_other_content_is_refused(changes, message):
    content = json.loads(vocabulary().model) | changes
    with pytest.raises(errors.UserError, match=message):
        BpeCodes(json.dumps(content).encode())
