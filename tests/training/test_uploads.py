"""Uploads of a run beside its training."""

import contextlib
import threading

import pytest

from t2t_repro import errors
from t2t_repro.io import storage
from t2t_repro.runs import run_json
from t2t_repro.training import callbacks, job, options


@pytest.fixture
def run(machine):
    """Return the copy of a run with its settings."""
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


def test_next_checkpoint_waits_for_the_upload(run, monkeypatch):
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
        observers.call("on_checkpoint_begin", 4)
        observers.call("on_checkpoint_saved", 4, save(run, 4))  # does not wait
        assert began.wait(60) and storage.names(run) == []
        may_end.set()
        observers.call("on_checkpoint_begin", 8)
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
            observers.call("on_checkpoint_begin", 8)
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
