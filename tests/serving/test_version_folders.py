"""Versions of an export whose folder has a URL."""

import pytest

from t2t_repro import errors
from t2t_repro.io import storage
from t2t_repro.serving import bulk_decoding, version_folders

URL = "memory://bucket/export"


def test_newest_complete_version_is_copied(memory, machine):
    machine("server")
    folder = version_folders.open_folder(URL)
    with pytest.raises(errors.UserError, match=f"exported model in {URL}. Cr"):
        version_folders.newest_version(folder)
    for name in (
        "2/saved_model.pb",
        "2/variables/variables.index",
        "10/saved_model.pb",
        "10/variables/variables.index",
        "11/variables/variables.index",  # an upload in progress
        "README.md",
    ):
        memory.pipe(f"/bucket/export/{name}", b"content")
    version_folders.open_folder(URL)
    assert version_folders.newest_version(folder) == 10
    with pytest.raises(errors.UserError, match="/10 is a version of an export"):
        version_folders.newest_version(folder / "10")
    assert version_folders.list_versions(folder) == [10]
    assert len(list(folder.glob("10/**/*.*"))) >= 2
    assert version_folders.list_uploaded(folder) == [2, 10, 11]
    version = version_folders.open_folder(f"{URL}/2")
    assert (version / "variables" / "variables.index").exists()
    assert storage.name_of(version) == f"{URL}/2"


def test_worker_without_a_copy_fetches_version(memory, machine, monkeypatch):
    monkeypatch.setattr(bulk_decoding, "_configure_devices", lambda: None)
    version = machine("worker").with_name("export") / "2"
    memory.pipe("/bucket/export/2/saved_model.pb", b"damaged")
    with pytest.raises(errors.UserError, match=f"Cannot load {version}"):
        bulk_decoding.ExportModel(version, "", "").load()
    assert (version / "saved_model.pb").exists()
