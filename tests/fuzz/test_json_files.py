"""Edited JSON of data, runs and clusters: each has its shape, or is refused."""

import dataclasses
import errno
import json
import pathlib

import pytest
import small_corpora
import tensorflow as tf
from file_strategies import JSON, edited_json, read_or_refuse
from hypothesis import example, given
from hypothesis import strategies as st

from t2t_repro import errors, hparam
from t2t_repro.data import corpus, manifest
from t2t_repro.io import files
from t2t_repro.metrics.metric import Suite
from t2t_repro.runs import checkpoints, history, run_json
from t2t_repro.runs.run import Run
from t2t_repro.runtime import devices
from t2t_repro.serving import client, connection, translation_folder

PAIRS = [("a b c", "c b a"), ("d e", "e d"), ("f g h i", "i h g f")] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a small corpus, as datagen makes it."""
    folder = tmp_path_factory.mktemp("data") / "corpus"
    small_corpora.generate_corpus(folder, PAIRS, PAIRS, vocab_size=270)
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    """Return the manifest without its checksum, which reveals all edits."""
    return files.read_json(folder / manifest.MANIFEST)


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


@pytest.mark.parametrize(
    ("shape", "value", "message"),
    [
        (dict, [], r"it is \[\], where dict belongs"),
        ([int], [1, True], r"it\[1\] is True, where int belongs"),
        ({str: float}, {"a": "1"}, r"it\['a'\] is '1', where float belongs"),
        ([float], [1, False], r"it\[1\] is False, where float belongs"),
        ({"a": str, "b": int}, {"c": 1}, "it lacks a, b"),
        ([{"b": int}], [{"b": None}], r"it\[0\]\['b'\] is None, where int"),
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


CONFIG = {
    "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:65535"]},
    "task": {"type": "worker", "index": 1},
}


@pytest.fixture(scope="module")
def run(vocabularies, tmp_path_factory):
    """Return a folder with run.json and a vocabulary, as the trainer does."""
    folder = tmp_path_factory.mktemp("run")
    vocabulary = {"size": 300, "sha256": vocabularies.sha256}
    train = {
        "read": 0,
        "text_sha256": {"inputs": "", "targets": ""},
        "kept": 0,
        "dropped": {},
        "tokens": {"inputs": 0, "targets": 0},
        "shards": [],
    }
    contents = {"splits": {"train": train}, "vocabulary": vocabulary}
    files.write_json(folder / "manifest.json", contents)
    small_corpora.start_run(folder, folder, vocabularies)
    return folder


@pytest.fixture(scope="module")
def settings(run):
    return files.read_json(run / run_json.RUN)


def test_run_without_model_is_refused(run, settings):
    hparams = {k: v for k, v in settings["hparams"].items() if k != "model"}
    files.write_json(run / run_json.RUN, settings | {"hparams": hparams})
    message = r"run\.json is damaged: it\['hparams'\] lacks model\."
    with pytest.raises(errors.UserError, match=message):
        Run.open(run)


@given(data=st.data())
def test_edited_run_is_opened_or_explained(run, settings, data):
    content = data.draw(edited_json(settings))
    (run / run_json.RUN).write_bytes(content)
    try:
        found = Run.open(run)
        assert found.vocabularies
    except errors.UserError as error:
        assert str(run) in str(error)
        return
    assert isinstance(found.hparams, hparam.HParams)
    assert found.vocabularies.sha256 == found.settings["vocabulary_sha256"]
    again = dataclasses.replace(found.problem)
    assert again.arguments == found.problem.arguments


@given(data=st.data())
def test_edited_run_resumes_or_is_explained(run, settings, vocabularies, data):
    (run / run_json.RUN).write_bytes(data.draw(edited_json(settings)))
    try:
        run_json.start(run, settings, vocabularies, "one CPU")
    except errors.UserError as error:
        assert str(run / run_json.RUN) in str(error)
        return
    assert Run.open(run).settings["hparams"] == settings["hparams"]


@given(edited_json({"bleu": 30.5, "checkpoints": ["averaged/ckpt-9"]}))
def test_edited_scores_are_read_or_named(run, content):
    opened = Run(run, {}, None, None)
    path = opened.translations_folder / "test.json"
    path.parent.mkdir(exist_ok=True)
    found = read_or_refuse(lambda _: opened.stored_scores(), path, content)
    assert found is None or isinstance(found["test"], dict)


@given(
    edited_json(
        {
            "settings": {},
            "checkpoints": [{"step": 9, "sha256": "a", "scores": {"ter": 1.0}}],
        }
    )
)
def test_edited_checkpoint_scores_are_shown_or_named(run, content):
    path = run / history.SCORES_FOLDER / "test.json"
    path.parent.mkdir(exist_ok=True)

    def read(path):
        stored = history.CheckpointScores(run, path.stem, {})
        return stored.table(Suite(("ter",)))

    found = read_or_refuse(read, path, content)
    assert found is None or "ter" in found


@given(edited_json(CONFIG))
@example(b"[" * 100_000)
@example(json.dumps(CONFIG | {"task": {"type": "worker", "index": True}}))
@example(json.dumps(CONFIG | {"task": {"type": "worker", "index": 1.0}}))
def test_edited_cluster_is_valid_or_explained(content):
    text = content if isinstance(content, str) else content.decode("latin-1")
    text = text.replace("\0", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CONFIG", text)
        try:
            devices.check_tf_config()
        except errors.UserError as error:
            assert "TF_CONFIG" in str(error)
            return
    config = json.loads(text)
    task = config["task"]
    assert type(task["index"]) is int
    cluster = tf.train.ClusterSpec(config["cluster"])
    assert cluster.task_address(task["type"], task["index"])


@pytest.mark.parametrize("path", ["", ",", "/", ".", "ckpt-"])
def test_checkpoint_without_a_name_is_refused(path, tmp_path):
    with pytest.raises(errors.UserError, match="There is no checkpoint"):
        checkpoints.CheckpointReader(path)
    with pytest.raises(errors.UserError, match="There is no checkpoint"):
        checkpoints.average([path], tmp_path)


@given(st.one_of(st.text(max_size=20), st.from_regex(r"\A[a.:\[\]]*:\d+\Z")))
@example("a:65536")
@example("a:" + "9" * 5_000)
@example("a:²")
def test_server_has_host_and_port_or_is_refused(server):
    try:
        found = client.connect(connection.Address("rest", server))
    except errors.UserError as error:
        assert repr(server) in str(error)
    else:
        assert found.host and 0 <= found.port <= 65_535


@pytest.mark.parametrize("host", ["a" * 64, "..", "é" * 70])
def test_impossible_host_name_is_refused(host):
    found = client.connect(connection.Address("rest", f"{host}:1"))
    with pytest.raises(errors.UserError, match="says no HTTP: Unicode"):
        found.translate(["a"])
