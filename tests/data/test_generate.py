"""From pairs to shards: what is dropped, counted, named and summed."""

import hashlib
import random

import pytest

from t2t_repro import errors, files
from t2t_repro.data import generate
from t2t_repro.text import subwords as subword

FACTS = {"problem": "toy", "languages": ["en", "xx"]}
TEST = [("", "nothing"), ("ab " * 40, "long"), ("ab\u2028c", " d  e ")]


def draw(count, seed=0):
    choices = random.Random(seed)
    words = ["an", "bed", "can", "dan", "ebb", "fad"]
    sizes = choices.choices(range(2, 7), k=count)
    lines = [" ".join(choices.choices(words, k=size)) for size in sizes]
    return [(line, line[::-1]) for line in lines]


def splits(train, test=TEST):
    return {"train": lambda: iter(train), "test": lambda: iter(test)}


def run(folder, train, test=TEST, max_length=30, num_workers=1):
    return generate.generate(
        folder, splits(train, test), 300, max_length, FACTS, num_workers
    )


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(generate, "_ENCODED_AT_ONCE", 3)


def test_a_small_corpus_end_to_end(tmp_path):
    train = draw(50)
    manifest = run(tmp_path / "data", train)
    assert generate.read_manifest(tmp_path / "data") == manifest
    assert manifest["problem"] == "toy"
    subwords = subword.Subwords.load(tmp_path / "data" / "vocab.model")
    assert manifest["vocabulary"] == {"size": 300, "sha256": subwords.sha256}
    for split, pairs in (("train", train), ("test", TEST)):
        corpus = generate.open_corpus(tmp_path / "data", split)
        for place, side in enumerate(("inputs", "targets")):
            lines = [pair[place] for pair in pairs]
            assert corpus.sentences(side) == subwords.encode(lines)
            counts = manifest["splits"][split]
            assert counts["tokens"][side] == corpus.lengths[side].sum()
            digest = hashlib.sha256()
            for line in lines:
                digest.update(f"{line}\n".encode())
            assert counts["text_sha256"][side] == digest.hexdigest()


def test_the_vocabulary_is_of_both_sides_of_the_training_text(tmp_path):
    train = draw(50)
    run(tmp_path, train)
    lines = [line for pair in train for line in pair]
    learned = subword.learn(lines, 300)
    assert (tmp_path / "vocab.model").read_bytes() == learned.model


def test_empty_and_long_pairs_are_dropped_from_training_only(tmp_path):
    good = draw(40)
    long = ("ab " * 40, "x")
    bad = [("", "x"), ("x", "  "), ("", ""), long, long[::-1]]
    train = good[:20] + bad + good[20:]
    manifest = run(tmp_path, train)
    assert manifest["splits"]["train"] | {"shards": 0} == {
        "read": 45,
        "kept": 40,
        "dropped": {"empty_side": 3, "longer_than_max_length": 2},
        "tokens": manifest["splits"]["train"]["tokens"],
        "text_sha256": manifest["splits"]["train"]["text_sha256"],
        "shards": 0,
    }
    subwords = subword.Subwords.load(tmp_path / "vocab.model")
    kept = generate.open_corpus(tmp_path, "train")
    wanted = subwords.encode([inputs for inputs, _ in good])
    assert kept.sentences("inputs") == wanted
    counts = manifest["splits"]["test"]
    assert (counts["read"], counts["kept"]) == (3, 3)
    assert set(counts["dropped"].values()) == {0}
    test = generate.open_corpus(tmp_path, "test")
    assert test.text("inputs") == [inputs for inputs, _ in TEST]
    assert test.text("targets") == [targets for _, targets in TEST]
    assert test.sentences("inputs")[0] == [subword.EOS]


def test_max_length_counts_eos(tmp_path):
    train = draw(50)
    run(tmp_path, train, max_length=1000)
    lengths = generate.open_corpus(tmp_path, "train").lengths
    longest = max(lengths["inputs"].max(), lengths["targets"].max())
    whole = run(tmp_path / "a", train, max_length=int(longest))
    assert whole["splits"]["train"]["kept"] == 50
    less = run(tmp_path / "b", train, max_length=int(longest) - 1)
    assert 0 < less["splits"]["train"]["kept"] < 50


def test_the_training_text_is_not_stored(tmp_path):
    run(tmp_path, draw(50))
    corpus = generate.open_corpus(tmp_path, "train")
    with pytest.raises(errors.UserError, match="text of the training split"):
        corpus.text("inputs")


def test_shards_are_numbered_named_and_summed(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "SHARD_PAIRS", 7)
    train = [("", "x")] * 7 + draw(16)  # nothing of the first is kept
    manifest = run(tmp_path, train)
    shards = manifest["splits"]["train"]["shards"]
    assert [shard["file"] for shard in shards] == [
        f"train-0000{number}-of-00004.arrow" for number in range(4)
    ]
    assert [shard["pairs"] for shard in shards] == [0, 7, 7, 2]
    for shard in shards:
        assert shard["sha256"] == files.sha256(tmp_path / shard["file"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [shard["file"] for shard in shards]
        + ["manifest.json", "test-00000-of-00001.arrow", "vocab.model"]
    )
    corpus = generate.open_corpus(tmp_path, "train")
    subwords = subword.Subwords.load(tmp_path / "vocab.model")
    lines = [targets for _, targets in draw(16)]
    assert corpus.sentences("targets") == subwords.encode(lines)
    generate.verify(tmp_path)


def test_shards_threads_and_chunks_do_not_change_the_pairs(
    tmp_path, monkeypatch
):
    train = draw(50)
    run(tmp_path / "a", train)
    monkeypatch.setattr(generate, "SHARD_PAIRS", 11)
    monkeypatch.setattr(generate, "_ENCODED_AT_ONCE", 4)
    run(tmp_path / "b", train, num_workers=3)
    one, other = (
        generate.open_corpus(tmp_path / name, "train") for name in "ab"
    )
    for side in ("inputs", "targets"):
        assert one.sentences(side) == other.sentences(side)


def test_the_same_pairs_give_the_same_files(tmp_path):
    manifests = [run(tmp_path / name, draw(50)) for name in "ab"]
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("train", [[], [("", "")] * 3], ids=["none", "empty"])
def test_no_training_text_is_explained(tmp_path, train):
    with pytest.raises(errors.UserError, match="training text is empty"):
        run(tmp_path, train)
    assert generate.read_manifest(tmp_path) is None


def test_training_text_of_which_nothing_is_left_is_explained(tmp_path):
    message = "of 51 training pairs all were dropped: .*1, .*50"
    with pytest.raises(errors.UserError, match=message):
        run(tmp_path, [("", "x"), *draw(50)], max_length=2)
    assert generate.read_manifest(tmp_path) is None


def test_an_empty_test_split_is_a_corpus_of_nothing(tmp_path):
    manifest = run(tmp_path, draw(50), test=[])
    assert manifest["splits"]["test"]["kept"] == 0
    corpus = generate.open_corpus(tmp_path, "test")
    assert len(corpus) == 0
    assert corpus.text("inputs") == []


def test_the_manifest_is_written_last(tmp_path, monkeypatch):
    there = []

    def write_json(path, value):
        there.append((path.name, sorted(p.name for p in tmp_path.iterdir())))

    monkeypatch.setattr(files, "write_json", write_json)
    run(tmp_path, draw(50))
    names = [f"{split}-00000-of-00001.arrow" for split in ("test", "train")]
    assert there == [("manifest.json", [*names, "vocab.model"])]


def test_data_that_was_cut_off_is_no_data(tmp_path):
    def broken():
        yield TEST[0]
        raise errors.UserError("The disk is full.")

    with pytest.raises(errors.UserError, match="disk is full"):
        generate.generate(
            tmp_path,
            {"train": lambda: iter(draw(50)), "test": broken},
            300,
            30,
            FACTS,
        )
    with pytest.raises(errors.UserError) as raised:
        generate.open_corpus(tmp_path, "train")
    assert f"There is no data in {tmp_path}" in str(raised.value)
    assert "manifest.json is missing" in str(raised.value)
    run(tmp_path, draw(50))
    assert len(generate.open_corpus(tmp_path, "train")) == 50


def test_an_unknown_split_is_named(tmp_path):
    run(tmp_path, draw(50))
    with pytest.raises(errors.UserError, match="'dev' in .*: train, test"):
        generate.open_corpus(tmp_path, "dev")


def test_verify_needs_a_manifest(tmp_path):
    with pytest.raises(errors.UserError, match="manifest.json"):
        generate.verify(tmp_path)


def test_vocabulary_is_learned_from_a_sample(tmp_path, monkeypatch):
    """Both sides of the pairs are drawn from, and no more than asked for."""
    asked = []

    def sample(lines, size):
        asked.append((sorted(lines), size))
        return [f"w{i} x{i}" for i in range(200)]

    monkeypatch.setattr(generate.subword, "sample", sample)
    pairs = [("a b", "c d"), ("e", "f")]
    splits = {
        name: (lambda: iter(pairs)) for name in ("train", "validation", "test")
    }
    generate.generate(tmp_path, splits, 290, 64, {})
    assert asked == [(["a b", "c d", "e", "f"], generate.SAMPLE_LINES)]
