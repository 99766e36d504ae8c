"""Files translated into a folder, and the models of its workers."""

import contextlib
import gzip
import os
import shutil
from typing import NamedTuple

import numpy as np
import pytest
from stored_run import RUN

from t2t_repro import errors
from t2t_repro.decoding import translation
from t2t_repro.decoding.translation import Translation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files
from t2t_repro.runs.run import Run
from t2t_repro.serving import bulk_decoding, client, translation_folder

LONG = 20  # characters of a line that is refused


class Upper(NamedTuple):
    """Model that translates to upper case."""

    name: str = "upper"
    limit: int = LONG

    @property
    def settings(self):
        return {"model": "run", "name": self.name}

    def load(self):
        return translate


def translate(lines):
    for line in lines:
        too_long = len(line) if len(line) > LONG else 0
        text = "" if too_long else line.upper()
        yield Translation([text], [-0.5], too_long=too_long)


@pytest.fixture
def texts(tmp_path):
    """Files of 23, 0 and 7 lines, of which the last is compressed."""
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [f"line {i}\u2028{i}" if i % 5 else "" for i in range(23)]
    (folder / "a.en").write_text("\n".join(lines), "utf-8")
    (folder / "b.en").write_text("")
    with gzip.open(folder / "c.en.gz", "wt") as file:
        file.writelines(f"x{i}\r\n" for i in range(7))
    return sorted(folder.iterdir())


@pytest.fixture
def run(tmp_path, texts):
    """A function that translates the files into a folder, 5 lines a shard."""

    def translate_files(model=None, sources=texts, folder="out", **settings):
        return bulk_decoding.translate_files(
            model or Upper(),
            sources,
            tmp_path / folder,
            **({"shard_lines": 5} | settings),
        )

    return translate_files


def contents(folder):
    """Return {path: bytes} of files, without the lock: it names a process."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != files.LOCK
    }


def test_each_line_is_translated_once_in_order(tmp_path, run):
    assert run() == ""
    found = contents(tmp_path / "out")
    assert set(found) == {"a.en", "b.en", "c.en", "manifest.json"}
    text = (tmp_path / "in" / "a.en").read_text("utf-8")
    assert found["a.en"].decode() == f"{text.upper()}\n"
    assert found["b.en"] == b""
    assert found["c.en"] == b"X0\nX1\nX2\nX3\nX4\nX5\nX6\n"


def test_job_that_stops_at_any_rename_continues(tmp_path, run, monkeypatch):
    rename, renamed, translated = os.replace, [], []

    def record(lines):
        translated.append(lines)
        return translate(lines)

    def replace(source, target):
        if len(renamed) == stop_at:
            raise KeyboardInterrupt
        renamed.append(target)
        rename(source, target)

    monkeypatch.setattr(bulk_decoding, "_load", lambda model: record)
    monkeypatch.setattr(os, "replace", replace)
    stop_at = None
    run()
    expected = contents(tmp_path / "out")
    # Of 7 shards, 3 files, and the manifest.
    total = len(renamed)
    assert total == 7 + 3 + 1
    for number in range(total):
        renamed.clear()
        translated.clear()
        stop_at = number
        with pytest.raises(KeyboardInterrupt):
            run(folder=f"{number}")
        stop_at = None
        run(folder=f"{number}")
        assert contents(tmp_path / f"{number}") == expected
        # Only the shard that was not renamed is translated again.
        assert len(translated) in (7, 8)
    translated.clear()
    run()
    assert not translated


def test_job_on_a_locked_folder_is_refused(tmp_path, run):
    with (
        files.locked(tmp_path / "out"),
        pytest.raises(errors.UserError, match="is taken: process"),
    ):
        run()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": Upper("other")}, "name is 'upper' there and 'other' here"),
        ({"shard_lines": 6}, "shard_lines is 5 there and 6 here"),
        ({"output_format": "tsv"}, "output_format is 'text' there"),
    ],
    ids=["model", "shard_lines", "output_format"],
)
def test_other_settings_are_refused(run, changes, message):
    run()
    with pytest.raises(errors.UserError, match=f"other settings: {message}"):
        run(**changes)


def test_changed_file_is_refused_and_a_copy_of_it_is_not(run, texts):
    run()
    os.utime(texts[0], (0, 0))  # as a copy has another time
    run()
    texts[0].write_text("another\n")
    with pytest.raises(errors.UserError, match="a.en is not what .*in/a.en"):
        run()


def test_other_file_of_the_same_name_size_and_time_is_refused(tmp_path, run):
    sources = []
    for name in "x", "y":
        sources.append(tmp_path / name / "a.en")
        sources[-1].parent.mkdir()
        sources[-1].write_text(name)
        os.utime(sources[-1], (0, 0))  # as in a reproducible archive
    run(sources=sources[:1])
    with pytest.raises(errors.UserError, match="y/a.en is not what .*x/a.en"):
        run(sources=sources[1:])


def test_file_that_grows_while_it_is_counted_may_be_translated_later(
    tmp_path, run, texts, monkeypatch
):
    real = files.sha256

    def grow(path):
        with open(path, "ab") as file:
            file.write(b"more\n")
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "sha256", grow)
        with pytest.raises(errors.UserError, match="a.en changes while it is"):
            run(sources=texts[:1])
    run(sources=texts[:1])
    assert (tmp_path / "out" / "a.en").read_text().endswith("MORE\n")


def test_error_in_a_line_names_the_file_and_the_shard(run, texts, monkeypatch):
    def refuse(lines):
        if "X6" in map(str.upper, lines):
            raise errors.UserError("No tag.")
        return translate(lines)

    monkeypatch.setattr(bulk_decoding, "_load", lambda model: refuse)
    with pytest.raises(errors.UserError, match="c.en.gz, lines 6 to 7: No tag"):
        run()
    with pytest.raises(errors.UserError, match="lines 1 to 7: No tag"):
        run(sources=texts[2:], shard_lines=7, folder="first")
    monkeypatch.setattr(bulk_decoding, "_load", lambda model: translate)
    run(Upper("corrected"), texts[2:], "first")  # nothing had been translated


def test_folder_of_shards_is_removed_after_a_stop(tmp_path, run, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            run()
    run()
    assert not (tmp_path / "out" / "shards").exists()


@pytest.mark.parametrize(
    "change",
    [lambda _: "other\n" * 9, lambda _: "other\n" * 999, str.swapcase, str],
    ids=["shorter", "longer", "other letters", "touched"],
)
def test_file_that_changes_while_it_is_translated_is_refused(
    tmp_path, run, texts, monkeypatch, change
):
    """A touched one has not changed."""
    write = translation_folder.TranslatedFile.write

    def write_and_change(*arguments):
        texts[0].write_text(changed)
        os.utime(texts[0], (0, 0))
        return write(*arguments)

    monkeypatch.setattr(
        translation_folder.TranslatedFile, "write", write_and_change
    )
    changed = change(texts[0].read_text())
    refused = pytest.raises(errors.UserError, match="while it was translated")
    with contextlib.nullcontext() if change is str else refused:
        run()
    assert not any((tmp_path / "out" / "shards").rglob("0*"))


def test_long_lines_are_reported_again_after_a_stop(tmp_path, run):
    lines = ["x" * (LONG + i) if i % 2 else "x" for i in range(24)]
    path = tmp_path / "long.en"
    path.write_text("\n".join(lines))
    message = run(sources=[path])
    shown = ", ".join(
        f"long.en line {i + 1} ({LONG + i} subwords)" for i in range(1, 20, 2)
    )
    assert f"(12 in all): {shown}, …. All other" in message
    assert run(sources=[path]) == message


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.en", "a.en.gz"], "have the same name, a.en"),
        (["manifest.json.zst"], "would have the name manifest.json"),
        (["lock"], "would have the name lock"),
    ],
    ids=["equal", "manifest", "lock"],
)
def test_names_that_clash_are_refused(tmp_path, names, message):
    paths = [tmp_path / name for name in names]
    with pytest.raises(errors.UserError, match=message):
        translation_folder.output_names(paths)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("c.en", "c.en exists, and is not a trans"),
        ("shards/c.en/00000000", "manifest.json is missing"),
    ],
)
def test_unknown_file_is_kept_and_refused(tmp_path, run, name, message):
    file = tmp_path / "out" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(errors.UserError, match=message):
        run()
    assert file.read_text() == "mine"


class UpperExport(client.SignatureTranslator):
    """Export that translates to upper case."""

    def __init__(self):
        super().__init__(bulk_decoding._similar_lengths)
        self.seen = []

    def add_tags(self, lines, target_language):
        return lines

    def run(self, signature, columns):
        assert signature == "serving_default"
        lines = columns["inputs"]
        self.seen.append(lines)
        return {
            "outputs": np.array([line.upper() for line in lines], object),
            "scores": np.array([-len(line) for line in lines]),
            "truncated": np.array([len(line) > 5_000 for line in lines]),
        }


def test_export_translates_batches_of_similar_length_in_order():
    model = UpperExport()
    lines = ["ä", "", "b" * 6_000, " ", *("c" * i for i in range(1, 300))]
    found = model.translate(lines)
    # Blank lines, too: an export with allow_empty_source translates them.
    assert [each.text for each in found] == [line.upper() for line in lines]
    assert [each.scores for each in found] == [[-len(x)] for x in lines]
    assert translation.too_long(found, first=0) == {2: 6_000}
    for batch in model.seen:
        longest = max(len(line.encode()) for line in batch)
        assert len(batch) * (longest + 200) <= 32_768
    assert len(model.seen) < 8


def test_worker_that_finds_another_checkpoint_refuses():
    model = bulk_decoding.of_run(Run.open(RUN))
    other = model._replace(checkpoint_checksums=("0",))
    with pytest.raises(errors.UserError, match="has found a different model"):
        other.load()


def test_export_is_the_same_beside_other_files(stored_export, tmp_path):
    export = shutil.copytree(stored_export, tmp_path / "export")
    before = bulk_decoding.of_export(export)
    # Notes of a copy from an object store.
    for name in (".t2t.objects", "variables/.t2t.objects"):
        (before.folder / name).write_text("{}")
    (before.folder / "README.md").write_text("Licence: of my choice")
    assert bulk_decoding.of_export(export) == before


def test_definitions_target_language_and_files_of_rules_are_settings(tmp_path):
    model = bulk_decoding.of_run(Run.open(RUN))
    assert "usr_dir" not in model.settings
    changes = [{"definitions": (("mine.py", sha256),)} for sha256 in "ab"]
    (words := tmp_path / "words").write_text("a")
    search = DecodeHParams(rules=f"forbid:file={words}:ignore_case=true")
    changes += [{"target_language": "de"}, {"decode_hparams": search}]
    for change in changes:
        changed = model._replace(**change)
        assert changed.settings != model.settings
        model = changed
    before = model.settings
    words.write_text("b")
    assert before["files_sha256"] != model.settings["files_sha256"]
