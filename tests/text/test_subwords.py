"""Subwords: special ids, byte fallback, learning, sampling, TF Text."""

import collections
import io
import random

import hypothesis
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from hypothesis import strategies as st

from t2t_repro import errors, files
from t2t_repro.text import subwords as subword


def words(count, seed=0):
    choices = random.Random(seed)
    letters = "abcdefghij klmno"
    return [
        "".join(choices.choices(letters, k=30)).strip() for _ in range(count)
    ]


@pytest.fixture(scope="module")
def subwords():
    return subword.learn(words(300), 400)


@pytest.fixture(scope="module")
def processor(subwords):
    loaded = sentencepiece.SentencePieceProcessor()
    loaded.LoadFromSerializedProto(subwords.model)
    return loaded


def normalize(processor, line):
    """What SentencePiece makes of a line before it cuts it."""
    return processor.Normalize(line).replace("▁", " ").removeprefix(" ")


def pieces(subwords, ids):
    """The written form of each id."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=subwords.model)
    return [processor.IdToPiece(i) for i in ids]


def test_special_ids(subwords):
    assert (subword.PAD, subword.EOS) == (0, 1)
    assert pieces(subwords, [0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    assert subwords.size == 400


def test_bytes_are_in_the_vocabulary(subwords):
    written = set(pieces(subwords, range(400)))
    assert len(written) == 400
    assert {f"<0x{byte:02X}>" for byte in range(256)} <= written


def test_every_line_ends_in_eos_and_has_it_nowhere_else(subwords):
    lines = ["abc de", "", "   ", "日本語 \u2028 x"]
    for row in subwords.encode(lines):
        assert row[-1] == subword.EOS
        assert not {subword.PAD, subword.EOS} & set(row[:-1])
    assert subwords.encode(["", "  "]) == [[1], [1]]


@pytest.mark.parametrize(
    ("line", "decoded"),
    [
        ("abc de", "abc de"),
        ("Übung macht den Meister.", "Übung macht den Meister."),
        ("日本語 🙂 ў", "日本語 🙂 ў"),
        ("a\u00a0b\u2028c", "a b c"),  # NFKC's spaces
        ("ﬁ Ａ", "fi A"),
        ("  a   b  ", "a b"),
        ("</s> <pad> <unk> <0x41>", "</s> <pad> <unk> <0x41>"),
        ("", ""),
    ],
)
def test_text_comes_back(subwords, line, decoded):
    assert subwords.decode(subwords.encode([line])) == [decoded]


@hypothesis.settings(deadline=None, max_examples=200, derandomize=True)
@hypothesis.given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_unicode_comes_back_as_it_was_normalized(
    subwords, processor, lines
):
    ids = subwords.encode(lines)
    assert all(2 not in row for row in ids)  # nothing is unknown
    expected = [normalize(processor, line) for line in lines]
    assert subwords.decode(ids) == expected


def test_decoding_stops_at_eos_and_drops_padding(subwords):
    (row,) = subwords.encode(["abc de"])
    padded = [*row, 0, 0, 5, 6]
    arrays = np.asarray([padded, [0, *padded[:-1]]], np.int32)
    assert subwords.decode(arrays) == ["abc de", "abc de"]
    assert subwords.decode([row[:-1], [1], []]) == ["abc de", "", ""]


@hypothesis.given(st.lists(st.integers(3, 399), max_size=9))
def test_what_a_model_says_is_a_line(subwords, row):
    """Even where it spells line ends in bytes, as a poor one may."""
    (zero,) = (i for i in range(300) if subwords.pieces([i]) == ["<0x00>"])
    marks = [zero + 9, zero + 10, zero + 13]
    assert subwords.pieces(marks) == ["<0x09>", "<0x0A>", "<0x0D>"]
    (line,) = subwords.decode([[*row, *marks, 5, 1]])
    assert not set(line) & set("\t\n\r")
    assert subwords.decode([[marks[1], *row, marks[2]]])[0][0] == " "


def test_no_lines_are_no_lines(subwords):
    assert subwords.encode([]) == []
    assert subwords.decode([]) == []


def test_pieces_spell_a_line(subwords):
    (ids,) = subwords.encode(["a ca"])
    *pieces, end = subwords.pieces(ids)
    assert "".join(pieces).replace("\u2581", " ").strip() == "a ca"
    assert end == "</s>" and subwords.pieces([]) == []


def test_threads_change_nothing(subwords):
    lines = words(100, seed=1)
    assert subwords.encode(lines, 4) == subwords.encode(lines)
    ones = [subwords.encode([line])[0] for line in lines]
    assert subwords.encode(lines) == ones


def test_the_same_lines_give_the_same_vocabulary(subwords):
    again = subword.learn(iter(words(300)), 400)
    assert again.model == subwords.model
    assert again.sha256 == subwords.sha256
    other = subword.learn(words(300, seed=1), 400)
    assert other.sha256 != subwords.sha256


def test_a_vocabulary_is_loaded_from_its_file(subwords, tmp_path):
    path = tmp_path / "vocab.model"
    files.write_bytes(path, subwords.model)
    loaded = subword.Subwords.load(path)
    assert loaded.encode(["abc de"]) == subwords.encode(["abc de"])
    assert loaded.sha256 == subwords.sha256 == files.sha256(path)


def test_a_missing_vocabulary_is_named(tmp_path):
    path = tmp_path / "vocab.model"
    message = f"Cannot read the vocabulary {path}: No such file"
    with pytest.raises(errors.UserError, match=message):
        subword.Subwords.load(str(path))


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(50)])
def test_garbage_is_no_vocabulary(tmp_path, content):
    path = tmp_path / "vocab.model"
    path.write_bytes(content)
    message = f"{path}. This is not a SentencePiece.*{len(content)} bytes"
    with pytest.raises(errors.UserError, match=message):
        subword.Subwords.load(path)


SPECIAL = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "PAD 0 and EOS 1; got -1 and 2.*--pad_id=0"),
        (SPECIAL, "in bytes .* none of its 100 .*--byte_fallback=true"),
    ],
)
def test_a_vocabulary_of_others_that_does_not_fit_is_refused(
    tmp_path, settings, message
):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(words(300)),
        model_writer=model,
        model_type="bpe",
        vocab_size=100,
        minloglevel=2,
        **settings,
    )
    path = tmp_path / "vocab.model"
    path.write_bytes(model.getvalue())
    with pytest.raises(errors.UserError, match=f"{path}.*{message}"):
        subword.Subwords.load(path)


@pytest.mark.parametrize(
    ("lines", "size", "reason"),
    [
        (["a b"], 5000, "Please set it to a value <= "),
        (words(300), 100, "Increase vocab_size"),
        ([], 300, "It is empty"),
    ],
)
def test_too_little_text_is_explained(lines, size, reason):
    message = f"vocabulary of {size} subwords.*{reason}.*256 are bytes"
    with pytest.raises(errors.UserError, match=message):
        subword.learn(lines, size)


def draw(lines, size, seed, at_once=1000):
    """What a Sample keeps of lines that are offered `at_once` at a time."""
    sample = subword.Sample(size, seed)
    for first in range(0, len(lines), at_once):
        sample.offer(lines[first : first + at_once])
    return sample.lines


@hypothesis.settings(deadline=None, max_examples=50, derandomize=True)
@hypothesis.given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 9))
def test_a_sample_is_of_the_lines_and_of_its_size(total, size, seed):
    lines = [str(i) for i in range(total)]
    kept = draw(lines, size, seed)
    assert len(kept) == min(total, size)
    assert len(set(kept)) == len(kept) and set(kept) <= set(lines)
    assert kept == draw(lines, size, seed, at_once=3)
    if total <= size:
        assert kept == lines


def test_a_sample_takes_each_line_as_often_as_any_other():
    counts = collections.Counter()
    draws = 4000
    for seed in range(draws):
        counts.update(draw("abcdefghij", 3, seed))
    expected = draws * 3 / 10
    deviation = (draws * 0.3 * 0.7) ** 0.5
    for line in "abcdefghij":
        assert abs(counts[line] - expected) < 5 * deviation


def test_a_sample_passes_over_lines_that_are_not_learned_from():
    sample = subword.Sample(9)
    sample.offer(["a", "b" * 5_000, "c"])
    assert (sample.lines, sample.offered) == (["a", "c"], 2)


@pytest.fixture(scope="module")
def tokenizer(subwords):
    return tf_text.SentencepieceTokenizer(
        model=subwords.model, out_type=tf.int32, add_eos=True
    )


@hypothesis.settings(deadline=None, max_examples=200, derandomize=True)
@hypothesis.given(st.lists(st.text(), min_size=1, max_size=4))
@hypothesis.example(
    ["Übung 日本語\u2028🙂", "", " a  b\u00a0c ", "a\0b", "\x85"]
)
def test_tf_text_cuts_and_joins_as_we_do(subwords, tokenizer, lines):
    """The exported model encodes and decodes with TF Text's operations."""
    encoded = subwords.encode(lines)
    assert tokenizer.tokenize(lines).to_list() == encoded
    ids = tf.ragged.constant([row[:-1] for row in encoded], tf.int32)
    decoded = [line.decode() for line in tokenizer.detokenize(ids).numpy()]
    assert decoded == subwords.decode(encoded)


@pytest.mark.parametrize(
    ("split", "size", "pieces"),
    [
        (True, 267, ["▁(", "NP", "▁)", "NP"]),
        (False, 269, ["▁(NP", "▁)NP"]),
    ],
)
def test_letters_and_signs_may_share_a_subword(split, size, pieces):
    learned = subword.learn(["(NP )NP"] * 50, size, split)
    (ids,) = learned.encode(["(NP )NP"])
    assert learned.pieces(ids) == [*pieces, "</s>"]
