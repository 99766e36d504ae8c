"""Edited JSON files of data and runs: each has its shape, or is refused."""

import errno
import pathlib

import pytest
from file_strategies import JSON, edited_json, read_or_refuse
from hypothesis import example, given
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.data import corpus, generate, manifest
from t2t_repro.data.settings import CorpusSettings
from t2t_repro.io import files
from t2t_repro.runs import history
from t2t_repro.serving import translation_folder

MADE = CorpusSettings(vocab_size=270)
PAIRS = [("a b c", "c b a"), ("d e", "e d"), ("f g h i", "i h g f")] * 4
FACTS = {"problem": "mine", "arguments": {"vocab_size": 270}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a small corpus, as datagen makes it."""
    folder = tmp_path_factory.mktemp("data") / "corpus"
    splits = {name: lambda: PAIRS for name in ("train", "validation", "test")}
    generate.generate(folder, splits, MADE, FACTS)
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    """Return the manifest without its checksum, which reveals all edits."""
    return files.read_json(folder / manifest.MANIFEST)


@pytest.mark.parametrize("with_checksum", [False, True])
def test_manifest_is_read_with_and_without_checksum(
    folder, whole, with_checksum
):
    files.write_json(folder / manifest.MANIFEST, whole, with_checksum)
    assert manifest.read(folder) == whole
    manifest.verify(folder)


@given(data=st.data())
def test_edited_manifest_is_read_or_named(folder, whole, data):
    """Each file of a manifest that is read exists, or an error names it."""
    path = folder / manifest.MANIFEST
    content = data.draw(edited_json(whole))
    found = read_or_refuse(lambda path: manifest.read(folder), path, content)
    if found is None:
        return
    assert isinstance(found["vocabulary"]["size"], int)
    for split, counts in found["splits"].items():
        assert isinstance(counts["tokens"]["targets"], int)
        try:
            opened = manifest.open_corpus(folder, split)
        except errors.UserError as error:
            assert "is damaged" in str(error)
        else:
            assert isinstance(opened, corpus.Corpus)
    try:
        manifest.verify(folder)
    except errors.UserError as error:
        assert "is damaged" in str(error)


@given(data=st.data())
def test_edited_unfinished_manifest_is_read_or_named(folder, whole, data):
    path = folder / manifest.UNFINISHED
    content = data.draw(edited_json(whole))
    found = read_or_refuse(
        lambda path: manifest.read_unfinished(folder), path, content
    )
    path.unlink()
    for part in (found or {"splits": {}})["splits"].values():
        assert {type(sum) for sum in part["text_sha256"].values()} <= {str}


SEARCH = {"model": "run", "decode_hparams": {"beam_size": 4}, "shard_lines": 2}


@pytest.fixture(scope="module")
def translations(tmp_path_factory):
    """Return a folder of translations, its source and its manifest."""
    folder = tmp_path_factory.mktemp("translations")
    source = folder / "in" / "a.en"
    source.parent.mkdir()
    source.touch()
    made = translation_folder.TranslationFolder(folder, SEARCH, [source])
    made.join_complete(made.files[0])
    path = folder / translation_folder.MANIFEST
    return folder, source, files.read_json(path)


@given(data=st.data())
def test_edited_manifest_of_translations_is_read_or_named(translations, data):
    folder, source, whole = translations
    path = folder / translation_folder.MANIFEST
    path.write_bytes(data.draw(edited_json(whole)))
    try:
        found = translation_folder.TranslationFolder(folder, SEARCH, [source])
    except errors.UserError as error:
        assert str(folder) in str(error)
    else:
        count, first = found.long_lines()
        assert isinstance(count, int) and len(first) <= 10


ENTRIES = [
    {"step": 10, "perplexity": 8.5, "bleu": 1.5},
    {"step": 20, "perplexity": float("nan"), "bleu": 2},
    {"step": 30, "perplexity": 7, "bleu": 2.5},
]


@given(edited_json(ENTRIES), st.integers(1, 40), st.integers(1, 3))
@example(b"\xff", 20, 1)
@example(b"[" * 100_000, 20, 1)
@example(b'[{"step": 10, "perplexity": 0.5}]', 20, 1)
@example(b'[{"step": 1%s}]' % (b"0" * 5_000), 20, 1)
def test_edited_validations_are_read_or_named(
    tmp_path_factory, content, step, wait
):
    folder = tmp_path_factory.getbasetemp() / "history"
    folder.mkdir(exist_ok=True)
    path = folder / history.VALIDATION
    kept = read_or_refuse(
        lambda path: history.History(folder, step), path, content
    )
    if kept:
        assert kept.stopped_improving(wait) in (True, False)
        kept.add(step + 1, {"perplexity": 1.0})
        *others, last = files.read_json(path)
        assert last == {"step": step + 1, "perplexity": 1}
        as_good = any(other["perplexity"] <= 1 for other in others)
        assert kept.stopped_improving(1) == as_good


SHAPES = [
    (object, 5),
    (dict, {}),
    ([int], [1, 2]),
    ({str: float}, {"a": 1, "b": 1.5}),
    ({"a": str, "b": [{"c": int}]}, {"a": "x", "b": [{"c": 1}], "more": None}),
]


@pytest.mark.parametrize(("shape", "value"), SHAPES)
def test_value_of_its_shape_is_read(tmp_path, shape, value):
    files.write_json(tmp_path / "a.json", value)
    assert files.read_json(tmp_path / "a.json", shape) == value


@pytest.mark.parametrize(
    ("shape", "value", "message"),
    [
        (dict, [], r"it is \[\], where dict belongs"),
        ([int], [1, True], r"it\[1\] is True, where int belongs"),
        ({str: float}, {"a": "1"}, r"it\['a'\] is '1', where float belongs"),
        ([float], [1, False], r"it\[1\] is False, where float belongs"),
        ({"a": str, "b": int}, {"c": 1}, "it lacks a, b"),
        (
            {"a": [{"b": int}]},
            {"a": [{"b": None}]},
            r"it\['a'\]\[0\]\['b'\] is",
        ),
    ],
)
def test_value_of_another_shape_is_named(tmp_path, shape, value, message):
    path = tmp_path / "a.json"
    files.write_json(path, value)
    with pytest.raises(errors.UserError, match=f"{path} is damaged: {message}"):
        files.read_json(path, shape)


def test_file_without_access_is_not_called_damaged(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "read_text", refuse)
    message = "a.json cannot be read: Permission denied. Ask its owner"
    with pytest.raises(errors.UserError, match=message):
        files.read_json(tmp_path / "a.json")


def test_folder_in_place_of_a_file_is_named(tmp_path):
    with pytest.raises(errors.UserError, match=f"{tmp_path} is damaged"):
        files.read_json(tmp_path)


@given(JSON)
def test_any_value_is_read_as_written(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"
    files.write_json(path, value)
    assert repr(files.read_json(path)) == repr(value)  # nan differs from nan


def test_missing_home_is_named():
    with pytest.raises(errors.UserError, match="~nobody_of_this_name/data"):
        files.expand_path("~nobody_of_this_name/data")
    assert files.expand_path("~").is_absolute()


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_path_without_a_name_is_refused(name):
    with pytest.raises(errors.UserError, match="is not the name of a file"):
        files.write_text(pathlib.Path(name), "")
