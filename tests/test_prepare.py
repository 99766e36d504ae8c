"""Preparation of a problem's data: once, and checks of existing data."""

import dataclasses
import gzip
import os
import pathlib
import shutil
from concurrent import futures

import pytest
import raw_text
from small_corpora import draw_pairs

from t2t_repro import errors, prepare
from t2t_repro.data import manifest
from t2t_repro.evaluation import evaluation
from t2t_repro.io import files, storage
from t2t_repro.problem import SPLITS, build_problem
from t2t_repro.runs.run import Run
from t2t_repro.text.sentence_piece import Bpe

ARGUMENTS = "name=mine,languages=en-xx,vocab_size=300"
FOLDER = "parallel_text_mine_enxx"
SIZES = {"train": 60, "validation": 5, "test": 7}
PAIRS = {split: draw_pairs(size, split) for split, size in SIZES.items()}


def build(more="", name="parallel_text"):
    return build_problem(name, ARGUMENTS + more)


def write_raw(folder):
    """Write the text of ARGUMENTS; return its folder."""
    return raw_text.write(folder, PAIRS, ("en", "xx"))


@pytest.fixture
def raw(tmp_path):
    return write_raw(tmp_path / "raw")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return the data_dir and the manifest of a small parallel text."""
    tmp_path = tmp_path_factory.mktemp("prepared")
    raw = write_raw(tmp_path / "raw")
    folder = prepare.prepare(build(), tmp_path / "data", raw)
    assert folder == tmp_path / "data" / FOLDER
    return tmp_path / "data", files.read_json(folder / "manifest.json")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        # SentencePiece reads "½" as "1/2" before it looks for the tag.
        (
            ",vocab_size=300,tags=<½>:<X>:<X>",
            r"splits the tags <½> into several subwords\. Choose",
        ),
        (
            ",vocab_size=9000,filters=max_words",
            "Cannot learn a vocabulary.*Filters dropped 0 of 60 training",
        ),
    ],
)
def test_unlearnable_vocabulary_is_user_error(tmp_path, raw, more, message):
    arguments = ARGUMENTS.removesuffix(",vocab_size=300")
    built = build_problem("parallel_text", f"{arguments}{more}")
    with pytest.raises(errors.UserError, match=message):
        prepare.prepare(built, tmp_path / "data", raw)


def test_manifest_has_problem_arguments_and_origin_of_text(prepared):
    data_dir, contents = prepared
    assert contents["problem"] == "parallel_text"
    assert contents["arguments"] == build().arguments
    assert contents["languages"] == ["en", "xx"]
    assert contents["vocabulary"] == {
        "size": 300,
        "sha256": files.sha256(data_dir / FOLDER / "vocab.model"),
    }
    assert set(contents["versions"]) == {"sentencepiece", "pyarrow"}
    (source,) = contents["sources"]["validation"]
    assert source["raw_dir"].endswith("raw")


def test_manifest_without_later_arguments_has_defaults(prepared, tmp_path):
    """The manifest is not rewritten."""
    data_dir, contents = prepared
    shutil.copytree(data_dir / FOLDER, tmp_path / FOLDER)
    path = tmp_path / FOLDER / "manifest.json"
    later = ("vocabulary_type", "normalization", "source_vocab_size")
    before = contents | {"arguments": dict(contents["arguments"])}
    for name in later:
        del before["arguments"][name]
    del before["vocabulary_type"]
    files.write_json(path, before, with_checksum=True)
    sha256 = manifest.sha256(tmp_path / FOLDER)
    prepare.prepare(build(), tmp_path, verify=True)
    vocabularies = manifest.open_vocabularies(tmp_path / FOLDER)
    assert vocabularies.sha256 == contents["vocabulary"]["sha256"]
    assert manifest.sha256(tmp_path / FOLDER) == sha256
    message = "vocabulary_type is 'bpe' there and 'unigram' here"
    with pytest.raises(errors.UserError, match=message):
        prepare.prepare(build(",vocabulary_type=unigram"), tmp_path)


@pytest.mark.parametrize(
    "more", [",normalization=identity", ",separate_vocabularies=true"]
)
def test_data_made_of_an_archive_is_the_same(tmp_path, raw, more):
    arguments = f"{ARGUMENTS}{more}".replace("300", "280")
    built = build_problem("parallel_text", arguments)
    folders = tmp_path / "first", tmp_path / "a:b"  # a colon joins vocabularies
    archive = tmp_path / "mine.zip"
    prepare.prepare(built, folders[0], raw)
    prepare.archive(built, folders[0], raw, archive)
    prepare.prepare(built, folders[1], archive)
    first, second = (manifest.require(folder / FOLDER) for folder in folders)
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"sources", "raw_bytes"}


def test_existing_data_is_not_written_again(prepared, capsys):
    """Nor for another search, which is no part of the data."""
    data_dir, _ = prepared
    times = {p: p.stat().st_mtime_ns for p in data_dir.rglob("*")}
    for search in ("", ",decode_hparams=beam_size=6"):
        raw = data_dir.parent / "raw"
        folder = prepare.prepare(build(search), data_dir, raw)
        assert folder == data_dir / FOLDER
        assert f"The data is there: {folder}" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in data_dir.rglob("*")} == times


def test_changed_problem_definition_is_noted(tmp_path, raw, registries, capsys):
    """Bases of its class are part of it, and filters; other modules are not."""
    usr_dir = tmp_path / "usr"
    usr_dir.mkdir()
    base = "from problems.parallel_text import ParallelText\n"
    (usr_dir / "base.py").write_text(f"{base}class Base(ParallelText): pass\n")
    (usr_dir / "other.py").write_text("")
    (usr_dir / "sieve.py").write_text(
        "from t2t_repro.text import pair_filters\n"
        "from t2t_repro import registry\n"
        "@registry.pair_filters.register('sieve')\n"
        "class Sieve(pair_filters.PairFilter):\n"
        "    def keep(self, pair): return True\n"
    )
    (usr_dir / "mine.py").write_text(
        "from t2t_repro import registry\n"
        "from .base import Base\n"
        "@registry.problems.register('mine')\n"
        "class Mine(Base): pass\n"
    )

    def make():
        registries.load_definitions(usr_dir)
        problem = build(",filters=sieve", name="mine")
        prepare.prepare(problem, tmp_path / "data", raw)
        registries.load_definitions()
        return capsys.readouterr().err

    make()
    (usr_dir / "other.py").write_text("OTHER = 1\n")
    assert make() == ""
    for name in ("base.py", "sieve.py"):
        with (usr_dir / name).open("a") as file:
            file.write("# changed\n")
    note = "Note: base.py, sieve.py of --usr_dir changed after the data in"
    assert note in make()


def test_second_process_waits_for_the_first(prepared, tmp_path, raw, capsys):
    arguments = build(), tmp_path / "data", raw
    with futures.ThreadPoolExecutor(2) as pool:
        both = [pool.submit(prepare.prepare, *arguments) for _ in range(2)]
    assert both[0].result() == both[1].result()
    printed = capsys.readouterr().out
    assert printed.count("Generating data in") == 1
    assert printed.count("The data is there") == 1
    stored = files.read_json(both[0].result() / "manifest.json")
    assert stored["splits"] == prepared[1]["splits"]


def test_each_direction_needs_the_tags_in_its_vocabulary(tmp_path, raw):
    tagged = prepare.prepare(build(",tags=<BT>"), tmp_path / "tagged", raw)
    plain = prepare.prepare(build(), tmp_path / "plain", raw)
    of_both = f"{tagged}/vocab.model:{plain}/vocab.model"
    more = f",tags=<BT>,separate_vocabularies=true,vocabulary={of_both}"
    forward, backward = build(more), build(more, "parallel_text_rev")
    prepare.prepare(forward, tmp_path / "new", raw)
    for data_dir in "new", "other":  # that of the other direction, and none
        with pytest.raises(errors.UserError, match="it lacks <BT>"):
            prepare.prepare(backward, tmp_path / data_dir, raw)
    of_both = f"{plain}/vocab.model:{tagged}/vocab.model"
    forward, backward = (
        dataclasses.replace(each, vocabulary=of_both).named("parallel_text", i)
        for i, each in enumerate((forward, backward))
    )
    prepare.prepare(backward, tmp_path / "reversed", raw)
    with pytest.raises(errors.UserError, match="it lacks <BT>"):
        prepare.prepare(forward, tmp_path / "reversed", raw)


def test_reversed_problem_reads_the_same_data_swapped(prepared):
    data_dir, _ = prepared
    backward = build(name="parallel_text_rev")
    folder = prepare.prepare(backward, data_dir)
    assert folder == data_dir / FOLDER
    corpus = manifest.open_corpus(folder, "test", backward.reverse)
    assert corpus.text("inputs") == [pair[1] for pair in PAIRS["test"]]
    assert corpus.text("targets") == [pair[0] for pair in PAIRS["test"]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("300", "320", "vocab_size is 300 there and 320 here"),
        ("300", "300,separate_vocabularies=true", "is False there and True he"),
        # Both have the folder enxx.
        ("en-xx", "e-nxx", "'en-xx'.* there and .*'e-nxx"),
    ],
)
def test_data_of_other_settings_is_user_error(prepared, old, new, message):
    data_dir, _ = prepared
    other = build_problem("parallel_text", ARGUMENTS.replace(old, new))
    message = f"(?s){data_dir / FOLDER}.*{message}.*--data_dir"
    with pytest.raises(errors.UserError, match=message):
        prepare.prepare(other, data_dir)


def test_changed_vocabulary_file_is_user_error_with_name(prepared, tmp_path):
    data_dir, contents = prepared
    (tmp_path / "raw").symlink_to(contents["sources"]["test"][0]["raw_dir"])
    vocabulary = tmp_path / "mine.model"
    given = build(f",vocabulary={vocabulary}")
    vocabulary.write_bytes((data_dir / FOLDER / "vocab.model").read_bytes())
    mine = tmp_path / "data"
    for _ in range(2):
        prepare.prepare(given, mine, tmp_path / "raw")
    lines = [line for pair in PAIRS["train"] for line in pair]
    vocabulary.write_bytes(Bpe.learn(lines, 290).model)
    with pytest.raises(errors.UserError, match="vocab.model sha256 is .*there"):
        prepare.prepare(given, mine)
    # The data has a copy of it.
    vocabulary.unlink()
    prepare.prepare(given, mine)
    moved = tmp_path / "moved.model"
    moved.write_bytes((mine / FOLDER / "vocab.model").read_bytes())
    prepare.prepare(build(f",vocabulary={moved}"), mine)
    with pytest.raises(errors.UserError, match="Cannot read the vocabulary"):
        prepare.prepare(build(",vocabulary=gone"), mine)
    with pytest.raises(errors.UserError, match="vocabulary is .*there and ''"):
        prepare.prepare(build(), mine)


def test_waiting_worker_without_the_data_is_user_error(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "wait_until", lambda condition: condition())
    message = f"no data in {tmp_path}.*the same --data_dir"
    with pytest.raises(errors.UserError, match=message):
        prepare.wait_for_data(build(), tmp_path)


def test_filters_are_reported_and_part_of_the_settings(tmp_path, raw, capsys):
    for language in ("en", "xx"):
        with open(raw / f"train.{language}", "a") as file:
            file.write("an an\n")
    filtered = build(",filters=different:max_words")
    prepare.prepare(filtered, tmp_path, raw, verify=True)
    printed = capsys.readouterr().out
    assert printed.lower().count("filters dropped 1 of 61") == 1
    assert "train: filters dropped 1 of 61 pairs\n" in printed
    assert "  different: 1\n    an an | an an\n  max_words: 0\n" in printed
    message = "filters is 'different:max_words' there and '' here"
    with pytest.raises(errors.UserError, match=message):
        prepare.prepare(build(), tmp_path)


def test_data_at_a_url_is_stored_when_it_is_complete(
    prepared, machine, memory, raw, monkeypatch, capsys
):
    _, local = prepared
    for path in raw.iterdir():
        memory.pipe(f"/bucket/raw/{path.name}", path.read_bytes())
    settings = "memory://bucket/data", "memory://bucket/raw"
    machine("killed")
    with monkeypatch.context() as patch:

        def put(path, url):
            raise KeyboardInterrupt

        patch.setattr(storage, "put_object", put)
        with pytest.raises(KeyboardInterrupt):
            prepare.prepare(build(), *settings)
    assert memory.find("/bucket/data") == []
    folder = prepare.prepare(build(), *settings)  # again on that machine
    contents = files.read_json(folder / "manifest.json")
    assert contents["splits"] == local["splits"]
    assert contents["sources"]["test"] == [{"raw_dir": "memory://bucket/raw"}]
    machine("other")
    capsys.readouterr()
    folder = prepare.data_folder(settings[0], build(), "test")
    assert [path.name[:4] for path in folder.glob("*.arrow")] == ["test"]
    machine("worker")
    assert prepare.wait_for_data(build(), settings[0]).is_dir()
    capsys.readouterr()
    folder = prepare.prepare(build(), settings[0], verify=True)
    printed = capsys.readouterr().out
    assert f"The data is there: {settings[0]}/{FOLDER}." in printed
    assert len(manifest.open_corpus(folder, "train")) == SIZES["train"]


@pytest.mark.parametrize("spelling", ["other", "relative", "compressed"])
def test_data_made_again_of_the_same_text_is_that_of_the_run(
    prepared, tmp_path, monkeypatch, spelling
):
    data_dir, contents = prepared
    write_raw(tmp_path / "mine")
    given = tmp_path / "x" / ".." / "mine"
    (tmp_path / "x").mkdir()
    if spelling == "relative":
        monkeypatch.chdir(tmp_path)
        given = "mine"
    if spelling == "compressed":
        for path in (tmp_path / "mine").iterdir():
            with gzip.open(f"{path}.gz", "wb") as file:
                file.write(path.read_bytes())
            path.unlink()
    again = prepare.prepare(build(), tmp_path / "data", given)
    settings = {"manifest_sha256": "", "data": manifest.checksums(again)}
    run = Run(tmp_path, settings, None, None)
    assert manifest.sha256(again) != manifest.sha256(data_dir / FOLDER)
    for split in SPLITS:
        assert run.has_split(data_dir / FOLDER, split)
    stored = manifest.read(again)["sources"]["test"][0]["raw_dir"]
    assert pathlib.Path(stored).is_absolute()
    # The existing data has the text of each such folder.
    prepare.prepare(build(), data_dir, given)


@pytest.mark.parametrize("filters", ["", ",filters=max_words=9"])
@pytest.mark.parametrize("split", SPLITS)
def test_existing_data_of_other_text_is_refused(tmp_path, split, filters):
    write_raw(tmp_path / "mine")
    write_raw(tmp_path / "other")
    path = tmp_path / "other" / f"{split}.xx"
    path.write_text(path.read_text().replace("e", "f"))  # of the same size
    problem = build(filters)
    prepare.prepare(problem, tmp_path / "data", tmp_path / "mine")
    made = manifest.sha256(tmp_path / "data" / FOLDER)
    message = rf"other is not that of .*: {split} differs\. .*omit --raw_dir"
    with pytest.raises(errors.UserError, match=message):
        prepare.prepare(problem, tmp_path / "data", tmp_path / "other")
    with pytest.raises(errors.UserError, match="gone is missing.*omit --raw_d"):
        prepare.prepare(problem, tmp_path / "data", tmp_path / "gone")
    # A file of the known folder that was written since is read again.
    path = tmp_path / "mine" / path.name
    path.write_text(path.read_text().replace("e", "f"))
    os.utime(path, (0, 0))  # as a copy has that keeps times
    with pytest.raises(errors.UserError, match=f"mine is not .* {split} diff"):
        prepare.prepare(problem, tmp_path / "data", tmp_path / "mine")
    shutil.rmtree(tmp_path / "mine")  # the text is not needed any more
    prepare.prepare(problem, tmp_path / "data", tmp_path / "mine")
    assert manifest.sha256(tmp_path / "data" / FOLDER) == made


def test_empty_split_is_noted_or_refused(tmp_path, raw, capsys):
    for language in ("en", "xx"):
        (raw / f"test.{language}").write_text("")
    prepare.prepare(build(), tmp_path / "data", raw)
    assert "  it is empty: there is nothing to score" in capsys.readouterr().out
    message = f"the test split in {tmp_path}.* is empty"
    with pytest.raises(errors.UserError, match=message):
        evaluation.open_test_set(None, build(), "test", tmp_path / "data")
    for language in ("en", "xx"):
        (raw / f"validation.{language}").write_text("")
    with pytest.raises(errors.UserError, match="nothing to validate on"):
        prepare.prepare(build(), tmp_path / "other", raw)


@pytest.mark.parametrize("corpora", ["", ",corpora=train:more*"])
def test_raw_text_that_changed_after_the_data_was_made_is_noted(
    tmp_path, raw, capsys, corpora
):
    data = tmp_path / "data"
    for language in ("en", "xx"):
        (raw / f"more1.{language}").write_text("an\n")
        (raw / f"other.{language}").write_text("an\n")
    problem = build(corpora)
    prepare.prepare(problem, data, raw)
    for path in (raw / "more1.en", raw / "other.en", raw / "train.en"):
        path.write_text(path.read_text() + "bed\n")
    (raw / "test.xx").unlink()  # not needed any more
    for language in ("en", "xx"):
        (raw / f"more2.{language}").write_text("an\n")
    capsys.readouterr()
    prepare.prepare(problem, data)
    changed = (
        "train.en, more1.en, more2.en, more2.xx" if corpora else "train.en"
    )
    note = f"Note: {changed} in {raw} changed after the data in {data / FOLDER}"
    assert note in capsys.readouterr().err
    shutil.rmtree(raw)
    prepare.prepare(problem, data)
    assert "Note" not in capsys.readouterr().err


def test_data_of_one_file_needs_no_folder_and_notes_its_change(
    tmp_path, monkeypatch, capsys
):
    lines = [f"{a}\t{b}\n" for a, b in PAIRS["train"]]
    (tmp_path / "mine.tsv").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    arguments = "file=mine.tsv,languages=en-xx,vocab_size=300,held_out=5"
    built = build_problem("parallel_text", arguments)
    folder = prepare.prepare(built, tmp_path / "data")
    contents = manifest.require(folder)
    assert folder.name == FOLDER
    assert contents["raw_bytes"].keys() == {"mine.tsv"}
    assert contents["splits"]["test"]["read"] == 5
    prepare.archive(built, tmp_path / "data", None, tmp_path / "a.zip")
    (tmp_path / "mine.tsv").write_text("".join(lines[1:]))
    prepare.prepare(built, tmp_path / "data")
    assert "Note: mine.tsv in" in capsys.readouterr().err
    with pytest.raises(errors.UserError, match="text has changed .*train"):
        prepare.archive(built, tmp_path / "data", None, tmp_path / "b.zip")
    held_out = tmp_path / "data" / "downloads" / FOLDER / "test.xx.zst"
    before = held_out.read_bytes()
    (tmp_path / "other").mkdir()  # a project with a file of the same name
    (tmp_path / "other" / "mine.tsv").write_text("".join(lines[::-1]))
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(errors.UserError, match="The text in the file of .*oth"):
        prepare.prepare(built, tmp_path / "data")
    assert held_out.read_bytes() == before
    again = prepare.prepare(built, tmp_path / "b", tmp_path / "a.zip")
    assert manifest.require(again)["splits"] == contents["splits"]
