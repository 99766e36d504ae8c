"""Preparing a problem's data once, and knowing it again."""

import json
import random

import pytest

from t2t_repro import errors, files, prepare, problem, registry
from t2t_repro.data import generate

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
    return problem.build(name, arguments)


def write_raw(folder):
    folder.mkdir()
    for split in problem.SPLITS:
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
    return tmp_path / "data", files.read_json(folder / "manifest.json")


def test_the_manifest_says_what_was_made_of_what(prepared):
    data_dir, manifest = prepared
    assert manifest["problem"] == "parallel_text"
    assert manifest["arguments"] == {
        "name": "mine",
        "languages": "en-xx",
        "vocab_size": 300,
    }
    assert manifest["languages"] == ["en", "xx"]
    assert manifest["max_length"] == 256
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
    corpus = generate.open_corpus(data_dir / FOLDER, "test")
    pairs = list(sentences("test"))
    texts = [corpus.text(side) for side in ("inputs", "targets")]
    assert list(zip(*texts, strict=True)) == pairs
    tokens = manifest["splits"]["test"]["tokens"]
    assert corpus.lengths["inputs"].sum() == tokens["inputs"]
    assert corpus.lengths["targets"].sum() == tokens["targets"]


def test_a_second_time_nothing_is_done(prepared, tmp_path, capsys):
    data_dir, _ = prepared
    times = {p: p.stat().st_mtime_ns for p in data_dir.rglob("*")}
    folder = prepare.prepare(build(), data_dir, tmp_path / "absent")
    assert folder == data_dir / FOLDER
    assert {p: p.stat().st_mtime_ns for p in data_dir.rglob("*")} == times
    assert f"The data is there: {folder}" in capsys.readouterr().out


def test_the_reversal_shares_the_data_with_sides_swapped(prepared, tmp_path):
    data_dir, _ = prepared
    backward = build("parallel_text_rev")
    folder = prepare.prepare(backward, data_dir, tmp_path / "absent")
    assert folder == data_dir / FOLDER
    corpus = generate.open_corpus(folder, "test", backward.reverse)
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


def test_data_made_with_another_max_length_is_refused(prepared, monkeypatch):
    data_dir, _ = prepared
    other = build()
    monkeypatch.setattr(type(other), "max_length", 128)
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
    generate.verify(data_dir / FOLDER)
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
            generate.verify(data_dir / FOLDER)
        path.write_bytes(whole)
    generate.verify(data_dir / FOLDER)


def test_a_missing_file_is_found_by_name(prepared):
    data_dir, _ = prepared
    path = data_dir / FOLDER / "test-00000-of-00001.arrow"
    path.rename(data_dir / "aside")
    with pytest.raises(errors.UserError, match="test-00000.*no file"):
        generate.verify(data_dir / FOLDER)
    (data_dir / "aside").rename(path)


def test_what_was_cut_off_is_made_again(tmp_path):
    """A vocabulary and shards without a manifest are nobody's data."""
    raw = tmp_path / "raw"
    write_raw(raw)
    good = (raw / "test.xx").read_text()
    (raw / "test.xx").write_text("")
    with pytest.raises(errors.UserError, match="7 lines.* 0"):
        prepare.prepare(build(), tmp_path / "data", raw)
    folder = tmp_path / "data" / FOLDER
    assert (folder / "validation-00000-of-00001.arrow").exists()
    assert not (folder / "manifest.json").exists()
    (raw / "test.xx").write_text(good)
    prepare.prepare(build(), tmp_path / "data", raw)
    generate.verify(folder)


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
    assert prepare.describe(manifest) == (
        "Vocabulary: 10,000 subwords, sha256 0123456789ab…\n"
        "train: 28,990 of 29,000 pairs, 400,000 and 410,000 subwords "
        "(dropped: 9 empty side, 1 longer than max length)"
    )


def test_the_description_is_printed(tmp_path, capsys):
    write_raw(tmp_path / "raw")
    prepare.prepare(build(), tmp_path / "data", tmp_path / "raw")
    manifest = json.loads(
        (tmp_path / "data" / FOLDER / "manifest.json").read_text()
    )
    assert prepare.describe(manifest) in capsys.readouterr().out
