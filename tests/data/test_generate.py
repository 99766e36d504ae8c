"""Generation: what is dropped and counted, the shards, and changed text."""

import collections
import hashlib

import hypothesis
import pytest
from file_strategies import LINES
from hypothesis import strategies as st
from small_corpora import draw_pairs, generate_corpus

from t2t_repro import errors, prepare
from t2t_repro.data import corpus, engines, manifest
from t2t_repro.data.corpus import Encoder
from t2t_repro.data.generate import LineSample
from t2t_repro.data.settings import CorpusSettings
from t2t_repro.io import files
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import EOS, WhitespaceTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

TEST = [("ab " * 40, "long"), ("ab\u2028c", " d  e ")]


def test_corpus_has_ids_counts_and_checksums_of_its_text(tmp_path):
    train = draw_pairs(50)
    contents = generate_corpus(tmp_path / "data", train, TEST)
    assert manifest.read(tmp_path / "data") == contents
    assert contents["problem"] == "toy"
    vocabulary = Bpe.load(tmp_path / "data" / "vocab.model")
    assert contents["vocabulary"] == {"size": 300, "sha256": vocabulary.sha256}
    for split, pairs in (("train", train), ("test", TEST)):
        corpus = manifest.open_corpus(tmp_path / "data", split)
        for i, side in enumerate(("inputs", "targets")):
            lines = [pair[i] for pair in pairs]
            assert corpus.sentences(side) == vocabulary.encode(lines)
            counts = contents["splits"][split]
            assert counts["tokens"][side] == corpus.lengths[side].sum()
            digest = hashlib.sha256("".join(f"{i}\n" for i in lines).encode())
            assert counts["text_sha256"][side] == digest.hexdigest()


def test_empty_and_long_pairs_are_dropped_from_training_only(tmp_path):
    good = draw_pairs(40)
    long = ("ab " * 40, "x")
    spaced = (f"ab{' ' * 99_999}cd", "x")  # "ab cd", if it were read whole
    bad = [("", "x"), ("x", "  "), ("", ""), long, long[::-1], spaced]
    train = good[:20] + bad + good[20:]
    counts = generate_corpus(tmp_path, train, TEST)["splits"]
    assert (counts["train"]["read"], counts["train"]["kept"]) == (46, 40)
    assert counts["train"]["dropped"] == {
        "empty_side": 3,
        "longer_than_max_length": 3,
        "length_ratio": 0,
    }
    vocabulary = Bpe.load(tmp_path / "vocab.model")
    kept = manifest.open_corpus(tmp_path, "train")
    expected = vocabulary.encode([inputs for inputs, _ in good])
    assert kept.sentences("inputs") == expected
    assert (counts["test"]["read"], counts["test"]["kept"]) == (2, 2)
    assert set(counts["test"]["dropped"].values()) == {0}
    test = manifest.open_corpus(tmp_path, "test")
    assert test.text("inputs") == [inputs for inputs, _ in TEST]
    assert test.text("targets") == [targets for _, targets in TEST]


def test_copies_and_remains_of_web_pages_are_counted(tmp_path, monkeypatch):
    copies = [("x", "aa"), ("a b", "<br/>"), ("a b", "bb"), ("y", "z")]
    train = [*draw_pairs(40), ("a b", "a&nbsp;b"), ("&#39;x", "aa")]
    splits = generate_corpus(tmp_path, train, copies)["splits"]
    assert splits["test"]["in_training"] == {"inputs": 2, "targets": 1}
    assert splits["test"]["web"] == {"pairs": 1, "example": [*copies[1]]}
    assert splits["train"]["web"] == {
        "pairs": 2,
        "example": ["a b", "a&nbsp;b"],
    }
    assert prepare.summary(manifest.read(tmp_path)).splitlines()[-3:] == [
        "  2 inputs and 1 targets are in the training text, too, so that "
        "scores are too good",
        "  1 have remains of web pages, as",
        "    a b | <br/>",
    ]
    # A tokenizer may have such escapes.
    monkeypatch.setattr(CorpusSettings, "tokenized", True)
    splits = generate_corpus(tmp_path / "tokens", train, copies)["splits"]
    assert "web" not in splits["test"] and "web" not in splits["train"]


@pytest.mark.parametrize("rows", [[[2]] * 2, [[0, 1]] * 2, [[9, 1]] * 2, [[1]]])
def test_ids_of_a_vocabulary_that_breaks_the_rules_are_refused(rows):
    class Own(WhitespaceTokens):
        def encode(self, lines):
            return rows

    own = Vocabularies.shared(Own.learn(["a b"], 9))
    with pytest.raises(errors.UserError, match=r"Own.encode.. of a vocabulary"):
        Encoder(own, 9).encode([("a b", "b a")] * 2)


def test_empty_side_of_a_held_out_pair_is_refused(tmp_path):
    message = "2 of 3 pairs of the split test .*first is pair 2: .'a', ' '"
    with pytest.raises(errors.UserError, match=message):
        pairs = [("a", "b"), ("a", " "), ("", "b")]
        generate_corpus(tmp_path, draw_pairs(20), pairs)
    assert not list(tmp_path.glob("*.json"))


def test_empty_sources_are_kept_where_the_problem_allows_them(tmp_path):
    pairs = [*draw_pairs(40), ("", "an bed can dan"), ("x", ""), ("", "")]
    contents = generate_corpus(
        tmp_path,
        pairs,
        allow_empty_source=True,
        max_length_ratio=4.0,
        filters="letters:character_ratio",
    )
    counts = contents["splits"]["train"]
    assert counts["dropped"] == {
        "empty_side": 0,
        "longer_than_max_length": 0,
        "length_ratio": 0,
    }
    assert counts["filters"]["dropped"] == {"letters": 2, "character_ratio": 0}
    kept = manifest.open_corpus(tmp_path, "train")
    assert kept.sentences("inputs")[-1] == [EOS] and len(kept) == 41


def test_uneven_pairs_are_dropped_above_max_length_ratio(tmp_path):
    pairs = [*draw_pairs(40), ("an bed can dan ebb fad", "x")]
    contents = generate_corpus(tmp_path, pairs, max_length_ratio=2.5)
    counts = contents["splits"]["train"]
    assert 0 < counts["dropped"]["length_ratio"] == 41 - counts["kept"]


PAIRS = st.lists(st.tuples(LINES, LINES), max_size=8)


@hypothesis.settings(max_examples=25)
@hypothesis.given(PAIRS, st.integers(-1, 9), st.sampled_from([0, 1, 1.5, 3]))
@hypothesis.example([("the0", "000000"), ("a", "a")], -1, 3)
def test_pairs_that_fit_are_kept_and_the_others_counted(
    vocabularies, pairs, rank, ratio
):
    """The ratio is of subwords without EOS."""
    encoded = [vocabularies.source.encode(pair) for pair in pairs]
    lengths = sorted({2, *(len(ids) for pair in encoded for ids in pair)})
    most = lengths[rank % len(lengths)]
    part = Encoder(vocabularies, most, ratio).encode(pairs)
    assert part.texts == {}
    kept = []
    for pair in encoded:
        shorter, longer = sorted(map(len, pair))
        limit = 1 + (ratio or 99) * (shorter - 1)
        if 1 < shorter and longer <= min(most, limit):
            kept.append(tuple(pair))
    sides = [part.ids[side].to_pylist() for side in ("inputs", "targets")]
    assert list(zip(*sides, strict=True)) == kept
    assert sum(part.dropped.values()) == len(pairs) - len(kept)


def test_shards_are_numbered_and_have_checksums(tmp_path):
    train = [("", "x")] * 7 + draw_pairs(16)  # the first shard keeps no pair
    contents = generate_corpus(tmp_path, train, shard_pairs=7)
    shards = contents["splits"]["train"]["shards"]
    assert [shard["file"] for shard in shards] == [
        f"train-0000{number}-of-00004.arrow" for number in range(4)
    ]
    assert [shard["pairs"] for shard in shards] == [0, 7, 7, 2]
    for shard in shards:
        assert shard["sha256"] == files.sha256(tmp_path / shard["file"])
    assert {path.name for path in tmp_path.iterdir()} == {
        *(shard["file"] for shard in shards),
        "manifest.json",
        "test-00000-of-00001.arrow",
        "vocab.model",
    }


def test_shards_threads_and_chunks_do_not_change_the_pairs(tmp_path):
    expected = generate_corpus(tmp_path / "a", draw_pairs(50))
    threads = engines.ThreadEngine(5)
    assert expected == generate_corpus(
        tmp_path / "same", draw_pairs(50), engine=threads
    )
    sizes = {"shard_pairs": 11, "chunk_pairs": 4}
    generate_corpus(tmp_path / "b", draw_pairs(50), engine=threads, **sizes)
    first, second = (
        manifest.open_corpus(tmp_path / name, "train") for name in "ab"
    )
    for side in ("inputs", "targets"):
        assert first.sentences(side) == second.sentences(side)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([], "training text is empty"),
        ([("", " ")] * 3, "training text is empty"),
        # 4,193 bytes, but 1,398 characters.
        (
            [("好" * 1_398, "好" * 1_399)],
            "lines of at most 4,192 bytes, and all 2 lines are longer",
        ),
        ([("", text) for _, text in draw_pairs(40)], "allow_empty_source=true"),
    ],
    ids=["none", "empty", "long lines", "empty sources"],
)
def test_text_with_nothing_to_train_on_is_user_error(tmp_path, train, message):
    with pytest.raises(errors.UserError, match=message):
        generate_corpus(tmp_path, train, vocab_size=285)
    assert manifest.read(tmp_path) is None


def test_empty_test_split_is_an_empty_corpus(tmp_path):
    contents = generate_corpus(tmp_path, draw_pairs(50), test=[])
    assert contents["splits"]["test"]["kept"] == 0
    corpus = manifest.open_corpus(tmp_path, "test")
    assert (len(corpus), corpus.text("inputs")) == (0, [])


def test_text_that_changes_between_readings_is_user_error(tmp_path):
    texts = [draw_pairs(50), draw_pairs(50, seed=1)]
    readings = iter(texts)
    message = "raw text of 'train' has changed"
    with pytest.raises(errors.UserError, match=message):
        generate_corpus(tmp_path, lambda: iter(next(readings)))
    assert manifest.read(tmp_path) is None
    # When the first text comes back, nothing of the second one is left.
    again = generate_corpus(tmp_path, texts[0])
    assert again == generate_corpus(tmp_path / "fresh", texts[0])


def test_shard_of_other_text_of_a_killed_run_is_removed(tmp_path, monkeypatch):
    readings = iter([draw_pairs(50), draw_pairs(50, seed=1)])
    write_shard = corpus._write_shard

    def write_and_stop(path, *arguments):
        write_shard(path, *arguments)
        if path.name.startswith("train"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_write_shard", write_and_stop)
        with pytest.raises(KeyboardInterrupt):
            generate_corpus(tmp_path, lambda: iter(next(readings)))
    with pytest.raises(errors.UserError, match="train-.* from different text"):
        generate_corpus(tmp_path, draw_pairs(50))
    again = generate_corpus(tmp_path, draw_pairs(50))
    assert again == generate_corpus(tmp_path / "fresh", draw_pairs(50))


def draw(lines, size, seed, at_once=1000):
    """Sample lines that are added `at_once` at a time."""
    sample = LineSample(size, seed=seed)
    for first in range(0, len(lines), at_once):
        sample.add(lines[first : first + at_once])
    return sample.lines


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 9))
def test_sample_has_its_size_and_distinct_lines(total, size, seed):
    lines = [str(i) for i in range(total)]
    kept = draw(lines, size, seed)
    assert len(kept) == min(total, size)
    assert len(set(kept)) == len(kept) and set(kept) <= set(lines)
    assert kept == draw(lines, size, seed, at_once=3)
    if total <= size:
        assert kept == lines


def test_every_line_is_sampled_equally_often():
    counts = collections.Counter()
    draws = 2000
    for seed in range(draws):
        counts.update(draw("abcdefghij", 3, seed))
    expected = draws * 3 / 10
    deviation = (draws * 0.3 * 0.7) ** 0.5
    for line in "abcdefghij":
        assert abs(counts[line] - expected) < 5 * deviation
