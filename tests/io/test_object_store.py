"""Errors of an object store, which is fsspec's memory:// here."""

import os
import pathlib
import sys

import pytest

from t2t_repro import errors
from t2t_repro.io import storage

NAME = "run.json"


def write(folder):
    folder.mkdir(parents=True)
    (folder / NAME).write_text("settings")


def test_download_that_is_cut_is_reported(memory, machine, monkeypatch):
    first = machine("first")
    write(first)
    storage.upload(first)
    second = machine("second")
    monkeypatch.setattr(
        type(memory),
        "get_file",
        lambda self, name, path: pathlib.Path(path).write_text("st"),
    )
    with pytest.raises(errors.UserError, match="received 2 of 8 bytes. Check"):
        storage.download(second)
    assert not (second / NAME).exists()


@pytest.mark.parametrize("name", ["a::file", "a::b/c", "x?versionId=1"])
def test_name_with_syntax_of_fsspec_is_a_name(memory, machine, name):
    first = machine("first")
    write(first)
    (first / name).parent.mkdir(exist_ok=True)
    (first / name).write_text("mine")
    storage.upload(first)
    assert {*memory.store} == {f"/bucket/run/{each}" for each in (name, NAME)}
    second = machine("second")
    assert (storage.download(second) / name).read_text() == "mine"


class NoCredentialsError(Exception):
    """Has the name of botocore's error."""


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (NoCredentialsError("Unable to locate"), "Log in by the means"),
        (OSError("Anonymous caller has no access"), "Log in by the means"),
        (PermissionError(13, "Access Denied"), "Give this account access"),
        (PermissionError(13, "The token has expired."), "Log in by the means"),
        (OSError("The AWS Access Key Id you"), "Log in by the means"),
        (OSError("The config profile (x) could not be"), "Log in by the means"),
        (ValueError("Invalid endpoint: 127.0.0.1:9"), "Correct the URL, or"),
        (ValueError('Invalid bucket name "B!"'), "Correct the URL, or"),
        (FileNotFoundError(2, "No such bucket"), "Create the bucket, or"),
        (TimeoutError("Connect timeout"), "Check the connection. What"),
        (OSError("no endpoint URL http://b/token"), "Check the connection."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_the_store_are_explained(
    memory, machine, monkeypatch, error, remedy
):
    def fail(self, *args, **settings):
        raise error

    first = machine("first")
    write(first)
    for name in ("find", "put_file"):
        monkeypatch.setattr(type(memory), name, fail)
    for access in (storage.names, storage.download, storage.upload):
        with pytest.raises(errors.UserError) as raised:
            access(first)
        assert "Cannot access memory://bucket/run" in str(raised.value)
        assert str(error) in str(raised.value) and remedy in str(raised.value)
    assert (first / NAME).read_text() == "settings"


def test_full_disk_is_not_blamed_on_the_store(memory, machine, monkeypatch):
    def fail(self, *args):
        raise OSError(28, "No space left on device")

    first = machine("first")
    write(first)
    storage.upload(first)
    monkeypatch.setattr(type(memory), "get_file", fail)
    second = machine("second")
    with pytest.raises(OSError, match="No space") as raised:
        storage.download(second, lambda names: [NAME])
    assert raised.value.filename == os.fspath(second / NAME)


def test_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(errors.UserError, match="gs:// needs gcsfs.* extra gcs"):
        storage.names(storage.local_path("gs://bucket/run"))
