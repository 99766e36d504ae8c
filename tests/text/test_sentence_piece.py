"""SentencePiece's vocabularies: special ids, byte fallback, learning."""

import random

import hypothesis
import numpy as np
import pytest
import sentence_pieces
import sentencepiece
import tensorflow as tf
import vocabulary_graphs
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.data.subword_sampling import (
    BpeDropout,
    SubwordSampler,
    UnigramSampling,
)
from t2t_repro.serving.graph_vocabularies import SentencePieceGraph
from t2t_repro.text import sentence_piece
from t2t_repro.text.sentence_piece import Bpe, Characters, Unigram
from t2t_repro.text.vocabulary import EOS, PAD

LETTERS = "abcdefghij klmno"


def words(count, seed=0):
    draw = random.Random(seed).choices
    return ["".join(draw(LETTERS, k=30)).strip() for _ in range(count)]


@pytest.fixture(scope="module", params=[Bpe, Unigram, Characters])
def vocabulary(request):
    return request.param.learn(words(300), 400)


@pytest.fixture(scope="module")
def graph(vocabulary):
    return SentencePieceGraph(vocabulary)


def test_special_ids_are_pad_eos_and_unknown(vocabulary):
    assert (PAD, EOS) == (0, 1)
    assert vocabulary.pieces([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    # Characters: 256 bytes, 3 special ids, 15 letters and the space.
    expected = 275 if isinstance(vocabulary, Characters) else 400
    assert vocabulary.size == expected


def test_encoded_line_ends_in_its_only_eos(vocabulary):
    lines = ["abc de", "", "   ", "日本語 \u2028 x"]
    for row in vocabulary.encode(lines):
        assert row[-1] == EOS
        assert not {PAD, EOS} & set(row[:-1])
    assert vocabulary.encode(["", "  "]) == [[1], [1]]
    assert vocabulary.encode([]) == vocabulary.decode([]) == []


@hypothesis.settings(max_examples=30)
@hypothesis.given(st.lists(st.text(), min_size=1, max_size=4))
@hypothesis.example(["</s> <pad> <unk> <0x41>", "  a   b  ", "日本語 🙂 ў"])
@hypothesis.example(
    ["Übung 日本語\u2028🙂", "", " a  b\u00a0c ", "a\0b", "\x85"]
)
def test_any_unicode_text_is_decoded_as_normalized_also_in_a_graph(
    vocabulary, graph, lines
):
    model = vocabulary.model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = vocabulary.encode(lines)
    assert all(2 not in row for row in ids)  # nothing is unknown
    normalized = processor.Normalize(lines)
    expected = [x.replace("▁", " ").removeprefix(" ") for x in normalized]
    assert vocabulary.decode(ids) == expected
    vocabulary_graphs.assert_same_ids(vocabulary, graph, lines)


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.lists(st.integers(3, 274), max_size=9))
def test_decoded_ids_are_one_line_even_with_bytes_of_line_ends(vocabulary, row):
    (zero,) = (i for i in range(275) if vocabulary.pieces([i]) == ["<0x00>"])
    marks = [zero + 9, zero + 10, zero + 13]
    assert vocabulary.pieces(marks) == ["<0x09>", "<0x0A>", "<0x0D>"]
    (line,) = vocabulary.decode([[*row, *marks, 5, 1]])
    assert not set(line) & set("\t\n\r")
    assert vocabulary.decode([[marks[1], *row, marks[2]]])[0][0] == " "


def test_learning_is_deterministic(vocabulary):
    again = type(vocabulary).learn(iter(words(300)), 400)
    assert again.model == vocabulary.model
    other = type(vocabulary).learn(words(300, seed=1), 400)
    assert other.sha256 != vocabulary.sha256


def test_model_of_another_algorithm_is_user_error():
    learned = Unigram.learn(words(300), 400)
    message = "has the type unigram and not bpe.*vocabulary_type=unigram"
    with pytest.raises(errors.UserError, match=message):
        Bpe(learned.model)


SPECIAL = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "PAD 0 and EOS 1; got -1 and 2.*--pad_id=0"),
        (SPECIAL, "pieces for bytes.*none of these 100 .*--byte_fallback=true"),
    ],
)
def test_model_without_our_ids_or_bytes_is_error(tmp_path, settings, message):
    settings = {"model_type": "bpe", "vocab_size": 100} | settings
    path = tmp_path / "vocab.model"
    path.write_bytes(sentence_pieces.learn(words(300), **settings))
    with pytest.raises(errors.UserError, match=f"{path}.*{message}"):
        Bpe.load(path)


@pytest.mark.parametrize(
    ("lines", "size", "reason"),
    [
        (["a b"], 5000, "Please set it to a value <= "),
        (words(300), 100, r"required_chars. 100 vs 2\d\d. \(Of"),
        ([], 300, "It is empty"),
        *((words(300), size, "") for size in (0, -1, 10**12)),
    ],
)
def test_vocab_size_that_does_not_fit_text_is_user_error(lines, size, reason):
    message = f"vocabulary of {size} subwords.*{reason}.*256 are bytes"
    with pytest.raises(errors.UserError, match=message):
        Bpe.learn(lines, size)


def test_characters_are_learned_by_frequency():
    learned = Characters.learn(["aab", "ab ", "c"] * 9, 262)
    (ids,) = learned.encode(["ab c"])
    *_, space, letter, end = learned.pieces(ids)
    assert learned.pieces(ids)[:2] == ["\u2581", "a"]
    assert (space, letter, end) == ("\u2581", "<0x63>", "</s>")
    assert learned.size == 262


@pytest.mark.parametrize(
    ("split", "size", "pieces"),
    [(True, 267, ["▁(", "NP", "▁)", "NP"]), (False, 269, ["▁(NP", "▁)NP"])],
)
def test_split_by_script_separates_letters_and_signs(split, size, pieces):
    learned = Bpe.learn(["(NP )NP"] * 50, size, split)
    (ids,) = learned.encode(["(NP )NP"])
    assert learned.pieces(ids) == [*pieces, "</s>"]


@pytest.fixture(scope="module", params=[Bpe, Unigram, Characters])
def tagged(request):
    return request.param.learn(words(300), 400, tags=["<2de>", "<2en>"])


@hypothesis.given(st.text(max_size=20).map(lambda text: f"{text} <2en>"))
def test_tag_is_the_first_subword_and_never_split(tagged, text):
    text = f"x {text}".replace("\0", "")
    (tag, *rest, eos), (*alone, _) = tagged.encode([f"<2de> {text}", text])
    assert tagged.pieces([tag]) == ["▁<2de>"] and eos == EOS
    assert rest == alone  # the text is segmented as without the tag
    assert tagged.pieces(rest).count("▁<2en>") >= 1


def test_tags_of_a_vocabulary_are_those_it_was_learned_with(tagged):
    assert tagged.tags == {"<2de>", "<2en>"}
    assert type(tagged)(tagged.model).tags == tagged.tags
    assert type(tagged).learn(words(300), 400).tags == frozenset()
    (ids,) = tagged.encode(["<2fr> a"])
    assert len(ids) > 5  # an unknown tag is spelled
    lines = ["<2de> abc de", "<2en> ", "abc <2de> x"]
    vocabulary_graphs.assert_same_ids(tagged, SentencePieceGraph(tagged), lines)


def test_sampled_segmentations_keep_tags():
    for cls, method in ((Bpe, BpeDropout), (Unigram, UnigramSampling)):
        tagged = cls.learn(words(300), 400, tags=["<2de>"])
        sampler = SubwordSampler(
            {"inputs": method(tagged.scored_pieces(), tagged.size, 0.9)}, 0
        )
        (row,) = tagged.encode(["<2de> abcdefg hij klm"])
        for step in range(5):
            ids, _ = sampler.sample(
                "inputs", step, np.array(row), np.array([len(row)])
            )
            assert ids[0] == row[0] and ids[-1] == EOS
            assert row[0] not in ids[1:]
            assert tagged.decode([ids]) == tagged.decode([row])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("nmt_nfkc", "a,b 10 2 c 1⁄2"),
        ("nfkc", "a,b 10\u200c2 c 1⁄2"),
        ("identity", "a，b 10\u200c2\u00a0c ½"),
    ],
)
def test_normalization_replaces_what_its_rule_says(rule, expected):
    learned = Bpe.learn(words(300), 400, normalization=rule)
    line = "a，b 10\u200c2\u00a0c ½"
    assert learned.decode(learned.encode([line])) == [expected]
    graph = SentencePieceGraph(learned)
    text = graph.decode(graph.encode(tf.constant([line])))
    assert text.numpy()[0].decode() == expected


@pytest.fixture(scope="module")
def verbatim():
    code = [
        f"{' ' * 4 * (i % 3)}{line}\t# x" for i, line in enumerate(words(99))
    ]
    return Bpe.learn(code, 400, normalization="verbatim")


# U+2581 is SentencePiece's own sign of a space.
KEPT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\u2581"))


@hypothesis.settings(max_examples=30)
@hypothesis.given(KEPT)
@hypothesis.example("\t    ½  a，b \u200c\u00a0 ")
def test_verbatim_vocabulary_keeps_any_text(verbatim, line):
    assert verbatim.decode(verbatim.encode([line])) == [line]


def test_verbatim_graph_and_samples_keep_text(verbatim):
    line = "        ab\tcd  ½ \t"
    graph = SentencePieceGraph(verbatim)
    lines = [line, "", "  ", ".", " . a"]
    vocabulary_graphs.assert_same_ids(verbatim, graph, lines)
    space, *text = verbatim.encode([" a"])[0][:-1]
    rows = [[space, space, *text], [verbatim.unknown, *text], text, []]
    vocabulary_graphs.assert_same_text(verbatim, graph, rows)
    proto = sentence_piece._Proto.FromString(verbatim.model)
    proto.normalizer_spec.add_dummy_prefix = False
    bare = Bpe(proto.SerializeToString())
    vocabulary_graphs.assert_same_text(bare, SentencePieceGraph(bare), rows)
    method = BpeDropout(verbatim.scored_pieces(), verbatim.size, 0.5)
    sampler = SubwordSampler({"inputs": method}, 0)
    (row,) = verbatim.encode([line])
    assert "\u2581" * 9 in verbatim.pieces(row)  # indentation is one piece
    ids, _ = sampler.sample("inputs", 1, np.array(row), np.array([len(row)]))
    assert ids.tolist() != row and verbatim.decode([ids]) == [line]
    assert verbatim.decode([[*row[:-1], *verbatim.encode(["\n"])[0]]]) != [line]
