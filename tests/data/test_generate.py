"""From pairs to shards: what is dropped, counted, named and summed."""

import hashlib
import random

import pyarrow as pa
import pytest

from t2t_repro import errors, files
from t2t_repro.data import encode, generate, manifest
from t2t_repro.text.line_sample import LineSample
from t2t_repro.text.sentence_piece import Bpe, Unigram
from t2t_repro.text.vocabulary import EOS

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


def run(
    folder,
    train,
    test=TEST,
    max_length=30,
    num_workers=1,
    shard_pairs=generate.SHARD_PAIRS,
    vocab_size=300,
    **spec,
):
    return generate.generate(
        folder,
        splits(train, test),
        generate.Spec(vocab_size, max_length=max_length, **spec),
        FACTS,
        num_workers,
        shard_pairs,
    )


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 3)


def test_a_small_corpus_end_to_end(tmp_path):
    train = draw(50)
    made = run(tmp_path / "data", train)
    assert manifest.read(tmp_path / "data") == made
    assert made["problem"] == "toy"
    subwords = Bpe.load(tmp_path / "data" / "vocab.model")
    assert made["vocabulary"] == {"size": 300, "sha256": subwords.sha256}
    for split, pairs in (("train", train), ("test", TEST)):
        corpus = manifest.open_corpus(tmp_path / "data", split)
        for place, side in enumerate(("inputs", "targets")):
            lines = [pair[place] for pair in pairs]
            assert corpus.sentences(side) == subwords.encode(lines)
            counts = made["splits"][split]
            assert counts["tokens"][side] == corpus.lengths[side].sum()
            digest = hashlib.sha256()
            for line in lines:
                digest.update(f"{line}\n".encode())
            assert counts["text_sha256"][side] == digest.hexdigest()


def test_the_vocabulary_is_of_both_sides_of_the_training_text(tmp_path):
    train = draw(50)
    run(tmp_path, train)
    lines = [line for pair in train for line in pair]
    learned = Bpe.learn(lines, 300)
    assert (tmp_path / "vocab.model").read_bytes() == learned.model


def test_empty_and_long_pairs_are_dropped_from_training_only(tmp_path):
    good = draw(40)
    long = ("ab " * 40, "x")
    bad = [("", "x"), ("x", "  "), ("", ""), long, long[::-1]]
    train = good[:20] + bad + good[20:]
    made = run(tmp_path, train)
    assert made["splits"]["train"] | {"shards": 0} == {
        "read": 45,
        "kept": 40,
        "dropped": {
            "empty_side": 3,
            "longer_than_max_length": 2,
            "length_ratio": 0,
        },
        "tokens": made["splits"]["train"]["tokens"],
        "text_sha256": made["splits"]["train"]["text_sha256"],
        "shards": 0,
    }
    subwords = Bpe.load(tmp_path / "vocab.model")
    kept = manifest.open_corpus(tmp_path, "train")
    wanted = subwords.encode([inputs for inputs, _ in good])
    assert kept.sentences("inputs") == wanted
    counts = made["splits"]["test"]
    assert (counts["read"], counts["kept"]) == (3, 3)
    assert set(counts["dropped"].values()) == {0}
    test = manifest.open_corpus(tmp_path, "test")
    assert test.text("inputs") == [inputs for inputs, _ in TEST]
    assert test.text("targets") == [targets for _, targets in TEST]
    assert test.sentences("inputs")[0] == [EOS]


def test_max_length_counts_eos(tmp_path):
    train = draw(50)
    run(tmp_path, train, max_length=1000)
    lengths = manifest.open_corpus(tmp_path, "train").lengths
    longest = max(lengths["inputs"].max(), lengths["targets"].max())
    whole = run(tmp_path / "a", train, max_length=int(longest))
    assert whole["splits"]["train"]["kept"] == 50
    less = run(tmp_path / "b", train, max_length=int(longest) - 1)
    assert 0 < less["splits"]["train"]["kept"] < 50


def test_the_training_text_is_not_stored(tmp_path):
    run(tmp_path, draw(50))
    corpus = manifest.open_corpus(tmp_path, "train")
    with pytest.raises(errors.UserError, match="text of the training split"):
        corpus.text("inputs")


def test_shards_are_numbered_named_and_summed(tmp_path):
    train = [("", "x")] * 7 + draw(16)  # nothing of the first is kept
    made = run(tmp_path, train, shard_pairs=7)
    shards = made["splits"]["train"]["shards"]
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
    corpus = manifest.open_corpus(tmp_path, "train")
    subwords = Bpe.load(tmp_path / "vocab.model")
    lines = [targets for _, targets in draw(16)]
    assert corpus.sentences("targets") == subwords.encode(lines)
    manifest.verify(tmp_path)


def test_shards_threads_and_chunks_do_not_change_the_pairs(
    tmp_path, monkeypatch
):
    train = draw(50)
    run(tmp_path / "a", train)
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 4)
    run(tmp_path / "b", train, num_workers=3, shard_pairs=11)
    one, other = (
        manifest.open_corpus(tmp_path / name, "train") for name in "ab"
    )
    for side in ("inputs", "targets"):
        assert one.sentences(side) == other.sentences(side)


def test_the_same_pairs_give_the_same_files(tmp_path):
    """Whatever the number of threads; the manifest has every file's sum."""
    one, other = (
        run(tmp_path / str(workers), draw(50), num_workers=workers)
        for workers in (1, 5)
    )
    assert one == other


@pytest.mark.parametrize("train", [[], [("", "")] * 3], ids=["none", "empty"])
def test_no_training_text_is_explained(tmp_path, train):
    with pytest.raises(errors.UserError, match="training text is empty"):
        run(tmp_path, train)
    assert manifest.read(tmp_path) is None


def test_training_text_of_which_nothing_is_left_is_explained(tmp_path):
    message = "of 51 training pairs all were dropped: .*1, .*50"
    with pytest.raises(errors.UserError, match=message):
        run(tmp_path, [("", "x"), *draw(50)], max_length=2)
    assert manifest.read(tmp_path) is None


def test_an_empty_test_split_is_a_corpus_of_nothing(tmp_path):
    made = run(tmp_path, draw(50), test=[])
    assert made["splits"]["test"]["kept"] == 0
    corpus = manifest.open_corpus(tmp_path, "test")
    assert len(corpus) == 0
    assert corpus.text("inputs") == []


def test_data_that_was_cut_off_is_no_data(tmp_path):
    def broken():
        yield TEST[0]
        raise errors.UserError("The disk is full.")

    with pytest.raises(errors.UserError, match="disk is full"):
        generate.generate(
            tmp_path,
            {"train": lambda: iter(draw(50)), "test": broken},
            generate.Spec(300, max_length=30),
            FACTS,
        )
    with pytest.raises(errors.UserError) as raised:
        manifest.open_corpus(tmp_path, "train")
    assert f"There is no data in {tmp_path}" in str(raised.value)
    assert "manifest.json is missing" in str(raised.value)
    run(tmp_path, draw(50))
    assert len(manifest.open_corpus(tmp_path, "train")) == 50


def test_an_unknown_split_is_named(tmp_path):
    run(tmp_path, draw(50))
    with pytest.raises(errors.UserError, match="'dev' in .*: train, test"):
        manifest.open_corpus(tmp_path, "dev")


def test_verify_needs_a_manifest(tmp_path):
    with pytest.raises(errors.UserError, match="manifest.json"):
        manifest.verify(tmp_path)


def test_vocabulary_is_learned_from_a_sample(tmp_path, monkeypatch, capsys):
    """No more lines are held than asked for; both sides are drawn from."""
    monkeypatch.setattr(generate, "SAMPLE_LINES", 60)
    train = draw(50)
    run(tmp_path, train)
    sample = LineSample(60)
    sample.add([line for pair in train for line in pair])
    learned = Bpe.learn(sample.lines, 300)
    assert (tmp_path / "vocab.model").read_bytes() == learned.model
    assert "300 subwords from 60 of 100 lines" in capsys.readouterr().out


def test_uneven_pairs_are_dropped_where_that_is_asked_for(tmp_path):
    even, uneven = draw(40), [("an bed can", "x"), ("x", "an bed can")]
    whole = run(tmp_path / "a", even + uneven)
    assert whole["splits"]["train"]["kept"] == 42
    made = run(tmp_path / "b", even + uneven, max_length_ratio=1.5)
    counts = made["splits"]["train"]
    subwords = Bpe.load(tmp_path / "b" / "vocab.model")
    sides = [subwords.encode(side) for side in zip(*even, strict=True)]
    ratios = [
        max(map(len, pair)) / min(map(len, pair))
        for pair in zip(*sides, strict=True)
    ]
    expected = 2 + sum(ratio > 1.5 for ratio in ratios)
    assert counts["dropped"]["length_ratio"] == expected
    assert counts["kept"] == 42 - expected
    assert made["splits"]["test"]["kept"] == len(TEST)


def test_a_vocabulary_made_elsewhere_is_taken(tmp_path):
    other = Bpe.learn(
        [f"{a} {b} w{i}" for i, (a, b) in enumerate(draw(90))], 320
    )
    (tmp_path / "other.model").write_bytes(other.model)
    paths = [tmp_path / "other.model"]
    made = run(tmp_path / "data", draw(50), vocabulary_paths=paths)
    assert made["vocabulary"] == {"size": 320, "sha256": other.sha256}
    corpus = manifest.open_corpus(tmp_path / "data", "train")
    lines = [inputs for inputs, _ in draw(50)]
    assert corpus.sentences("inputs") == other.encode(lines)


def test_separate_vocabularies_are_of_their_side_alone(tmp_path):
    train = draw(50)
    made = run(
        tmp_path,
        train,
        vocab_size=275,
        separate_vocabularies=True,
        source_vocab_size=270,
    )
    sides = {"inputs": 270, "targets": 275}
    assert not (tmp_path / "vocab.model").exists()
    assert "vocabulary" not in made
    corpus = manifest.open_corpus(tmp_path, "train")
    for place, (side, size) in enumerate(sides.items()):
        lines = [pair[place] for pair in train]
        learned = Bpe.learn(lines, size)
        stored = (tmp_path / f"vocab.{side}.model").read_bytes()
        assert stored == learned.model
        assert corpus.sentences(side) == learned.encode(lines)
        assert made["vocabularies"][side] == {
            "size": size,
            "sha256": learned.sha256,
        }
    opened = manifest.open_vocabularies(tmp_path)
    backward = manifest.open_vocabularies(tmp_path, reverse=True)
    assert [one.size for one in opened] == [270, 275]
    assert [one.size for one in backward] == [275, 270]
    assert not opened.is_shared


def test_separate_vocabularies_made_elsewhere_are_taken(tmp_path):
    lines = [f"{a} w{i}" for i, (a, _) in enumerate(draw(90))]
    learned = [Bpe.learn(lines, size) for size in (310, 320)]
    paths = [tmp_path / "a.model", tmp_path / "b.model"]
    for path, one in zip(paths, learned, strict=True):
        path.write_bytes(one.model)
    folder = tmp_path / "data"
    made = run(
        folder, draw(50), separate_vocabularies=True, vocabulary_paths=paths
    )
    found = made["vocabularies"]
    assert [found[side]["size"] for side in found] == [310, 320]
    opened = manifest.open_vocabularies(folder)
    assert [one.model for one in opened] == [one.model for one in learned]


def test_a_flipped_byte_of_either_vocabulary_is_found(tmp_path):
    run(tmp_path, draw(50), vocab_size=275, separate_vocabularies=True)
    for side in ("inputs", "targets"):
        path = tmp_path / f"vocab.{side}.model"
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        message = f"{path.name} is damaged"
        with pytest.raises(errors.UserError, match=message):
            manifest.open_vocabularies(tmp_path)
        with pytest.raises(errors.UserError, match=message):
            manifest.verify(tmp_path)
        path.write_bytes(whole)
    manifest.verify(tmp_path)


def test_a_unigram_vocabulary_is_learned_and_opened_as_one(tmp_path):
    train = draw(50)
    made = run(tmp_path, train, vocab_size=275, vocabulary_type="unigram")
    lines = [line for pair in train for line in pair]
    learned = Unigram.learn(lines, 275)
    assert (tmp_path / "vocab.model").read_bytes() == learned.model
    assert learned.model != Bpe.learn(lines, 275).model
    assert made["vocabulary_type"] == "unigram"
    assert isinstance(manifest.open_vocabularies(tmp_path).source, Unigram)


def test_ids_above_65535_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(Bpe, "size", 70_000)
    run(tmp_path, draw(50))
    shard = tmp_path / "train-00000-of-00001.arrow"
    with pa.OSFile(str(shard)) as file:
        schema = pa.ipc.open_file(file).schema
    assert schema.field("inputs").type == pa.large_list(pa.int32())


def test_text_that_changed_between_readings_is_refused(tmp_path):
    texts = [draw(50), draw(50, seed=1)]
    train = iter(texts)
    changing = splits([]) | {"train": lambda: iter(next(train))}
    with pytest.raises(errors.UserError, match="raw text of 'train' has chang"):
        generate.generate(tmp_path, changing, generate.Spec(300), FACTS)
    assert manifest.read(tmp_path) is None
    # Nothing of the other text is left, when the first one comes back.
    again = run(tmp_path, texts[0])
    assert again == run(tmp_path / "fresh", texts[0])


def test_a_shard_that_a_killed_run_made_of_other_text_is_removed(
    tmp_path, monkeypatch
):
    train, real = iter([draw(50), draw(50, seed=1)]), encode._write
    changing = splits([]) | {"train": lambda: iter(next(train))}

    def killed(path, *arguments):
        real(path, *arguments)
        if path.name.startswith("train"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encode, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            generate.generate(tmp_path, changing, generate.Spec(300), FACTS)
    with pytest.raises(errors.UserError, match="train-.* were of other text"):
        run(tmp_path, draw(50))
    assert run(tmp_path, draw(50)) == run(tmp_path / "fresh", draw(50))


@pytest.mark.parametrize("rest", [draw(49), draw(51)], ids=["less", "more"])
def test_text_of_another_size_is_refused(tmp_path, rest):
    train = iter([draw(51)[:50], rest])
    changing = splits([]) | {"train": lambda: iter(next(train))}
    with pytest.raises(errors.UserError, match="has changed"):
        generate.generate(tmp_path, changing, generate.Spec(300), FACTS)


def test_shards_without_their_manifest_are_made_again(tmp_path):
    """Nobody knows of which text and vocabulary they are."""
    run(tmp_path, draw(50, seed=1))
    (tmp_path / "manifest.json").unlink()
    made = run(tmp_path, draw(50))
    assert made == run(tmp_path / "fresh", draw(50))


def test_lines_with_every_byte_that_python_would_split_at(tmp_path):
    odd = "an\x00bed\x0bcan\x0c\x1c\x1d\x1e\x85dan\u2028ebb\u2029fad\ufeff"
    made = run(tmp_path, [*draw(49), (odd, odd[::-1])], test=[(odd, odd)])
    assert made["splits"]["train"]["kept"] == 50
    corpus = manifest.open_corpus(tmp_path, "test")
    assert corpus.text("inputs") == [odd]
    subwords = Bpe.load(tmp_path / "vocab.model")
    assert corpus.sentences("inputs") == subwords.encode([odd])


def test_a_line_of_a_megabyte_is_dropped_and_counted(tmp_path):
    long = ("an bed can " * 100_000, "x")
    made = run(tmp_path, [*draw(50), long])
    assert made["splits"]["train"]["kept"] == 50
    assert made["splits"]["train"]["dropped"]["longer_than_max_length"] == 1
