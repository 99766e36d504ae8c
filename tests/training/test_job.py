"""A training job: its options, its notes, and its uploads."""

import contextlib
import dataclasses
import re
import threading

import pytest

from t2t_repro import errors, registry
from t2t_repro.io import files, storage
from t2t_repro.runs import run_json
from t2t_repro.training import callbacks, job, options
from t2t_repro.training.options import Options

registry.load_definitions()
BASE = registry.build_hparams("base")
KERAS = dataclasses.replace(BASE, learning_rate_schedule="cosine_decay")
MANY = 5_000_000  # pairs


@pytest.mark.parametrize(
    ("stored", "given", "expected"),
    [
        ({"keep_best_checkpoints": 2}, None, 2),
        ({"keep_best_checkpoints": 2}, 0, 0),
        ({"keep_best_checkpoints": 2}, 3, 3),
        ({"keep_best_checkpoints": 0}, None, None),
        ({}, None, None),
    ],
)
def test_resumed_run_keeps_its_best_checkpoints_unless_told(
    capsys, tmp_path, stored, given, expected
):
    options = job._continue_options(
        Options(keep_best_checkpoints=given), {"options": stored}, tmp_path
    )
    assert options.keep_best_checkpoints == expected
    printed = capsys.readouterr().out
    continues = given is None and expected is not None
    assert ("continues with --keep_best_checkpoints=2" in printed) is continues


def test_resumed_run_keeps_what_it_started_from(capsys, tmp_path):
    stored = {"options": {"warm_start_from": "run/ckpt-1"}}
    options = Options(warm_start_from="other/ckpt-2")
    new = job._continue_options(options, {"options": {}}, tmp_path)
    assert new.warm_start_from == "other/ckpt-2"
    files.write_json(tmp_path / "run.json", stored)
    note = "first try said --warm_start_from=run/ckpt-1"
    for given, is_noted in ((Options(), True), (options, False)):
        assert job._open_folder(tmp_path, given) == tmp_path
        assert (note in capsys.readouterr().out) is is_noted
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "ckpt-5.index").touch()
    for given, is_noted in ((options, True), (Options(), False)):
        resumed = job._continue_options(given, stored, tmp_path)
        assert resumed.warm_start_from == "run/ckpt-1"
        note = "--warm_start_from=other/ckpt-2 has no effect"
        assert (note in capsys.readouterr().out) is is_noted


def test_origin_of_imported_weights_follows_their_training(tmp_path):
    origin = {"imported_from": {"system": "marian"}}
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    start = tmp_path / "run" / "checkpoints" / "ckpt-0"
    start.with_suffix(".index").touch()
    assert job._origin(start, None) == {}  # not in a run
    files.write_json(tmp_path / "run" / "run.json", {"hparams": {}} | origin)
    assert job._origin(start, None) == origin
    assert job._origin("removed", {"seed": 2} | origin) == origin
    assert job._origin(None, None) == {}
    with pytest.raises(errors.UserError, match="must be a checkpoint; got ''"):
        Options(warm_start_from="")


def test_given_options_are_json(tmp_path):
    given = Options(warm_start_from=tmp_path, keep_best_checkpoints=0).given()
    path, number = "warm_start_from", "keep_best_checkpoints"
    assert given == {path: str(tmp_path), number: 0}


@pytest.mark.parametrize(
    ("hparams", "options", "pairs", "length", "note"),
    [
        (BASE, {}, MANY, 256, None),
        (BASE, {}, 20_000, 256, "suits a corpus of 20,000 pairs better than b"),
        (BASE, {}, MANY, 255, "max_length=256, .* no training pairs above"),
        (BASE, {"keep_checkpoint_max": 5}, MANY, 256, None),
        (BASE, {"keep_checkpoint_max": 4}, MANY, 256, "last 5 checkpoints.*=4"),
        (BASE, {"train_steps": 9}, MANY, 256, None),
        (KERAS, {"train_steps": BASE.train_steps}, MANY, 256, None),
        (KERAS, {"train_steps": 9}, MANY, 256, "=9 does not change .*cosine_d"),
    ],
)
def test_settings_that_fit_badly_are_noted(
    hparams, options, pairs, length, note
):
    found = job.notes_on_settings(
        "base", hparams, Options(**options), pairs, length
    )
    texts = list(found)
    assert len(texts) == (note is not None)
    assert all(re.search(note, text) for text in texts)


@pytest.fixture
def run(machine):
    folder = machine("first")
    (folder / "checkpoints").mkdir(parents=True)
    (folder / run_json.RUN).write_text("settings")
    return folder


def save(folder, step):
    """Write the files of a checkpoint; return its path."""
    path = folder / "checkpoints" / f"ckpt-{step}"
    for ending in ("data-00000-of-00001", "index"):
        path.with_name(f"{path.name}.{ending}").write_text(f"{step}")
    return path


def observed(folder):
    return callbacks.Callbacks(
        [job.Uploads(folder)], 10, contextlib.nullcontext
    )


def test_removal_of_checkpoints_waits_for_the_upload(run, monkeypatch):
    began, may_end, upload = (
        threading.Event(),
        threading.Event(),
        storage.upload,
    )

    def slow(folder):
        began.set()
        assert may_end.wait(60)
        upload(folder)

    monkeypatch.setattr(storage, "upload", slow)
    observers = observed(run)
    with observers.session(run, 0):
        observers.call("on_checkpoint_written", 4)
        observers.call("on_checkpoint_saved", 4, save(run, 4))  # does not wait
        assert began.wait(60) and storage.names(run) == []
        observers.call("on_checkpoint_begin", 8)  # nor this
        may_end.set()
        observers.call("on_checkpoint_written", 8)
        assert "checkpoints/ckpt-4.index" in storage.names(run)
        observers.call("on_checkpoint_saved", 8, save(run, 8))
    assert "checkpoints/ckpt-8.index" in storage.names(run)


def test_failed_upload_is_reported_and_made_up_for(run, monkeypatch, capsys):
    def fail(path, url):
        raise errors.UserError(f"Cannot access {url}.")

    observers = observed(run)
    with observers.session(run, 0):
        with monkeypatch.context() as patch:
            patch.setattr(storage, "put_object", fail)
            observers.call("on_checkpoint_saved", 4, save(run, 4))
            observers.call("on_checkpoint_written", 8)
        shown = capsys.readouterr().out
        assert "Cannot access memory://bucket/run/" in shown
        assert "Training continues" in shown
        observers.call("on_checkpoint_saved", 8, save(run, 8))
    stored = storage.names(run)
    assert {"checkpoints/ckpt-4.index", "checkpoints/ckpt-8.index"} < {*stored}
    # At the end of the training an upload must succeed.
    save(run, 12)
    monkeypatch.setattr(storage, "put_object", fail)
    with pytest.raises(errors.UserError, match="The last files of .*The same"):
        with job.upload_at_the_end(run):
            pass
    with pytest.raises(errors.UserError, match="not finite"):
        with job.upload_at_the_end(run):
            raise errors.UserError("The loss is not finite.")
    assert "The last files of" in capsys.readouterr().out
    assert save(run, 12).with_suffix(".index").exists()


def test_several_workers_need_a_shared_folder(memory):
    chosen = options.Options(distribution="multi_worker")
    with pytest.raises(errors.UserError, match="Several workers.*run. Name"):
        job._open_folder("memory://bucket/run", chosen)


def test_run_that_was_removed_from_the_store_is_not_continued(run, memory):
    save(run, 4)
    storage.upload(run)
    save(run, 8)  # not uploaded
    memory.store.clear()
    with pytest.raises(errors.UserError, match="no run at memory.*ckpt-8, "):
        job._open_folder("memory://bucket/run", options.Options())


def test_checkpoints_without_run_json_are_not_continued(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    save(tmp_path, 8)
    message = "ckpt-8, but no run.json.*--warm_start_from=.*ckpt-8"
    with pytest.raises(errors.UserError, match=message):
        job._open_folder(tmp_path, options.Options())


def test_run_without_its_run_json_has_the_given_options(run):
    save(run, 8)
    given = options.Options(train_steps=8)
    stored = {"options": {"train_steps": 9}}
    assert job._of_session(given, BASE, run, None) == {"options": given.given()}
    assert job._of_session(given, BASE, run, stored) == stored
    # By default, base has more steps than 8.
    default = options.Options()
    assert job._of_session(default, BASE, run, stored) == {"options": {}}
