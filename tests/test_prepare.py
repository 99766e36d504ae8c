"""Preparing a problem's data once, and knowing it again."""

import json
import random
import shutil
from concurrent import futures

import pytest

from t2t_repro import (
    errors,
    files,
    json_files,
    locks,
    prepare,
    registry,
)
from t2t_repro.data import encode
from t2t_repro.data import manifest as manifests
from t2t_repro.problem import SPLITS, build_problem
from t2t_repro.text.sentence_piece import Bpe

ARGUMENTS = "name=mine,languages=en-xx,vocab_size=300"
FOLDER = "parallel_text_mine_enxx"
SIZES = {"train": 60, "validation": 5, "test": 7}


def sentences(split):
    """Pairs of a language and its reversal, letter by letter."""
    choices = random.Random(split)
    for _ in range(SIZES[split]):
        words = choices.choices(["an", "bed", "can", "dan", "ebb"], k=4)
        line = " ".join(words)
        yield line, line[::-1]


def build(name="parallel_text", arguments=ARGUMENTS):
    registry.load_definitions()
    return build_problem(name, arguments)


def write_raw(folder):
    folder.mkdir()
    for split in SPLITS:
        for side, language in enumerate(("en", "xx")):
            lines = "".join(f"{pair[side]}\n" for pair in sentences(split))
            (folder / f"{split}.{language}").write_text(lines)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The data_dir and the manifest of a small parallel text."""
    tmp_path = tmp_path_factory.mktemp("prepared")
    write_raw(tmp_path / "raw")
    folder = prepare.prepare(build(), tmp_path / "data", tmp_path / "raw")
    assert folder == tmp_path / "data" / FOLDER
    return tmp_path / "data", json_files.read(folder / "manifest.json")


def test_the_manifest_says_what_was_made_of_what(prepared):
    data_dir, manifest = prepared
    assert manifest["problem"] == "parallel_text"
    assert manifest["arguments"] == {
        "name": "mine",
        "languages": "en-xx",
        "vocab_size": 300,
        "vocabulary": "",
        "vocabulary_type": "bpe",
        "separate_vocabularies": False,
        "source_vocab_size": 0,
        "max_length": 256,
        "max_length_ratio": 0.0,
    }
    assert manifest["languages"] == ["en", "xx"]
    assert manifest["vocabulary"] == {
        "size": 300,
        "sha256": files.sha256(data_dir / FOLDER / "vocab.model"),
    }
    assert set(manifest["versions"]) == {"sentencepiece", "pyarrow"}
    (source,) = manifest["sources"]["validation"]
    assert source["raw_dir"].endswith("raw")
    for split, size in SIZES.items():
        counts = manifest["splits"][split]
        assert (counts["read"], counts["kept"]) == (size, size)
        assert [shard["pairs"] for shard in counts["shards"]] == [size]


def test_what_was_prepared_reads_back(prepared):
    data_dir, manifest = prepared
    corpus = manifests.open_corpus(data_dir / FOLDER, "test")
    pairs = list(sentences("test"))
    texts = [corpus.text(side) for side in ("inputs", "targets")]
    assert list(zip(*texts, strict=True)) == pairs
    tokens = manifest["splits"]["test"]["tokens"]
    assert corpus.lengths["inputs"].sum() == tokens["inputs"]
    assert corpus.lengths["targets"].sum() == tokens["targets"]


def test_data_made_before_an_argument_was_added_is_opened(prepared, tmp_path):
    """And its manifest is not written again."""
    data_dir, manifest = prepared
    shutil.copytree(data_dir / FOLDER, tmp_path / FOLDER)
    path = tmp_path / FOLDER / "manifest.json"
    later = ("vocabulary_type", "separate_vocabularies", "source_vocab_size")
    before = manifest | {"arguments": dict(manifest["arguments"])}
    for name in later:
        del before["arguments"][name]
    del before["vocabulary_type"]
    json_files.write(path, before, with_checksum=True)
    sha256 = manifests.sha256(tmp_path / FOLDER)
    prepare.prepare(build(), tmp_path, verify=True)
    found = manifests.open_vocabularies(tmp_path / FOLDER)
    assert found.sha256 == manifest["vocabulary"]["sha256"]
    assert manifests.sha256(tmp_path / FOLDER) == sha256
    other = build(arguments=f"{ARGUMENTS},vocabulary_type=unigram")
    message = "vocabulary_type is 'bpe' there and 'unigram' here"
    with pytest.raises(errors.UserError, match=message):
        prepare.prepare(other, tmp_path)


def test_shared_data_is_not_taken_for_separate_vocabularies(prepared):
    data_dir, _ = prepared
    other = build(arguments=f"{ARGUMENTS},separate_vocabularies=true")
    message = "separate_vocabularies is False there and True here"
    with pytest.raises(errors.UserError, match=message):
        prepare.prepare(other, data_dir)


def test_a_second_time_nothing_is_done(prepared, tmp_path, capsys):
    data_dir, _ = prepared
    times = {p: p.stat().st_mtime_ns for p in data_dir.rglob("*")}
    folder = prepare.prepare(build(), data_dir, tmp_path / "absent")
    assert folder == data_dir / FOLDER
    assert {p: p.stat().st_mtime_ns for p in data_dir.rglob("*")} == times
    assert f"The data is there: {folder}" in capsys.readouterr().out


def test_of_two_at_once_one_makes_it_and_the_other_waits(
    prepared, tmp_path, capsys
):
    write_raw(tmp_path / "raw")

    def make():
        return prepare.prepare(build(), tmp_path / "data", tmp_path / "raw")

    with futures.ThreadPoolExecutor(2) as pool:
        both = [pool.submit(make) for _ in range(2)]
    assert both[0].result() == both[1].result()
    printed = capsys.readouterr().out
    assert printed.count("Generating data in") == 1
    assert printed.count("The data is there") == 1
    made = json_files.read(both[0].result() / "manifest.json")
    assert made["splits"] == prepared[1]["splits"]


def test_the_reversal_shares_the_data_with_sides_swapped(prepared, tmp_path):
    data_dir, _ = prepared
    backward = build("parallel_text_rev")
    folder = prepare.prepare(backward, data_dir, tmp_path / "absent")
    assert folder == data_dir / FOLDER
    corpus = manifests.open_corpus(folder, "test", backward.reverse)
    assert corpus.text("inputs") == [pair[1] for pair in sentences("test")]
    assert corpus.text("targets") == [pair[0] for pair in sentences("test")]


def test_data_made_with_another_vocab_size_is_refused(prepared):
    data_dir, _ = prepared
    other = build(arguments=ARGUMENTS.replace("300", "320"))
    with pytest.raises(errors.UserError) as raised:
        prepare.prepare(other, data_dir)
    message = str(raised.value)
    assert "vocab_size is 300 there and 320 here" in message
    assert str(data_dir / FOLDER) in message
    assert "--data_dir" in message


def test_data_made_with_another_max_length_is_refused(prepared):
    data_dir, _ = prepared
    other = build(arguments=f"{ARGUMENTS},max_length=128")
    with pytest.raises(errors.UserError) as raised:
        prepare.prepare(other, data_dir)
    assert "max_length is 256 there and 128 here" in str(raised.value)
    assert "vocab_size" not in str(raised.value)


def test_languages_that_share_a_folder_name_are_told_apart(prepared):
    """en-xx and e-nxx."""
    data_dir, _ = prepared
    other = build(arguments=ARGUMENTS.replace("en-xx", "e-nxx"))
    assert prepare.data_folder(data_dir, other) == data_dir / FOLDER
    with pytest.raises(errors.UserError, match="'en-xx'.* there and .*'e-nxx"):
        prepare.prepare(other, data_dir)


def test_whole_data_is_verified(prepared, capsys):
    data_dir, _ = prepared
    manifests.verify(data_dir / FOLDER)
    assert "verify: 4/4" in capsys.readouterr().err


def test_a_flipped_byte_of_any_file_is_found_by_name(prepared):
    data_dir, manifest = prepared
    names = [f"{split}-00000-of-00001.arrow" for split in SIZES]
    for name in ["vocab.model", *names]:
        path = data_dir / FOLDER / name
        whole = path.read_bytes()
        middle = len(whole) // 2
        damaged = bytearray(whole)
        damaged[middle] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(errors.UserError, match=f"{name} is damaged"):
            manifests.verify(data_dir / FOLDER)
        path.write_bytes(whole)
    manifests.verify(data_dir / FOLDER)


def test_a_missing_file_is_found_by_name(prepared):
    data_dir, _ = prepared
    path = data_dir / FOLDER / "test-00000-of-00001.arrow"
    path.rename(data_dir / "aside")
    with pytest.raises(errors.UserError, match="test-00000.*no file"):
        manifests.verify(data_dir / FOLDER)
    (data_dir / "aside").rename(path)


def test_raw_text_is_read_whole_before_anything_is_made(tmp_path):
    raw = tmp_path / "raw"
    write_raw(raw)
    good = (raw / "test.xx").read_text()
    (raw / "test.xx").write_text("")
    with pytest.raises(errors.UserError, match="7 lines.* 0"):
        prepare.prepare(build(), tmp_path / "data", raw)
    folder = tmp_path / "data" / FOLDER
    assert list(folder.iterdir()) == [folder / locks.LOCK]
    (raw / "test.xx").write_text(good)
    prepare.prepare(build(), tmp_path / "data", raw)
    manifests.verify(folder)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A data_dir in which datagen stopped after its first reading."""
    write_raw(tmp_path / "raw")

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encode, "encode_split", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare.prepare(build(), tmp_path / "data", tmp_path / "raw")
    return tmp_path / "data"


def test_what_was_begun_is_continued(begun, prepared, capsys):
    prepare.prepare(build(), begun, begun.parent / "raw")
    shown = capsys.readouterr()
    assert "Continuing what was begun" in shown.out
    assert "read train" not in shown.err
    made, whole = manifests.read(begun / FOLDER), prepared[1]
    assert made | {"sources": 0} == whole | {"sources": 0}


def test_what_was_begun_with_other_settings_is_refused(begun):
    other = build(arguments=ARGUMENTS.replace("300", "320"))
    with pytest.raises(errors.UserError, match="300 there and 320 here"):
        prepare.prepare(other, begun, begun.parent / "raw")
    assert manifests.read_unfinished(begun / FOLDER)


def test_a_vocabulary_that_changed_is_refused_by_name(prepared, tmp_path):
    data_dir, manifest = prepared
    (tmp_path / "raw").symlink_to(manifest["sources"]["test"][0]["raw_dir"])
    vocabulary = tmp_path / "mine.model"
    arguments = f"{ARGUMENTS},vocabulary={vocabulary}"
    vocabulary.write_bytes((data_dir / FOLDER / "vocab.model").read_bytes())
    mine = tmp_path / "data"
    prepare.prepare(build(arguments=arguments), mine, tmp_path / "raw")
    prepare.prepare(build(arguments=arguments), mine, tmp_path / "raw")
    lines = [line for pair in sentences("train") for line in pair]
    vocabulary.write_bytes(Bpe.learn(lines, 290).model)
    with pytest.raises(errors.UserError, match="vocab.model sha256 is .*there"):
        prepare.prepare(build(arguments=arguments), mine)


def test_description():
    manifest = {
        "vocabulary": {"size": 10_000, "sha256": "0123456789abcdef"},
        "splits": {
            "train": {
                "read": 29_000,
                "kept": 28_990,
                "dropped": {"empty_side": 9, "longer_than_max_length": 1},
                "tokens": {"inputs": 400_000, "targets": 410_000},
            }
        },
    }
    assert prepare.summary(manifest) == (
        "Vocabulary vocab.model: 10,000 subwords, sha256 0123456789ab…\n"
        "train: 28,990 of 29,000 pairs, 400,000 and 410,000 subwords "
        "(dropped: 9 empty side, 1 longer than max length)"
    )


def test_description_of_separate_vocabularies():
    sides = {
        side: {"size": size, "sha256": "0123456789abcdef"}
        for side, size in (("inputs", 9_000), ("targets", 8_000))
    }
    assert prepare.summary({"vocabularies": sides, "splits": {}}) == (
        "Vocabulary vocab.inputs.model: 9,000 subwords, sha256 0123456789ab…\n"
        "Vocabulary vocab.targets.model: 8,000 subwords, sha256 0123456789ab…"
    )


def test_another_worker_sees_the_data(prepared):
    data_dir, _ = prepared
    assert prepare.wait_for_data(build(), data_dir) == data_dir / FOLDER


def test_another_worker_does_not_see_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "wait_until", lambda condition: condition())
    with pytest.raises(
        errors.UserError, match=f"no data in {tmp_path}.*the same --data_dir"
    ):
        prepare.wait_for_data(build(), tmp_path)


def test_the_description_is_printed(tmp_path, capsys):
    write_raw(tmp_path / "raw")
    prepare.prepare(build(), tmp_path / "data", tmp_path / "raw")
    manifest = json.loads(
        (tmp_path / "data" / FOLDER / "manifest.json").read_text()
    )
    assert prepare.summary(manifest) in capsys.readouterr().out
