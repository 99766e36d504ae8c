"""Fixtures: fsspec's memory:// as an object store, and caches of machines."""

import hashlib

import pytest


def _with_tag(system, info):
    """Return details of an object with an ETag, as those of S3 and GCS."""
    content = system.cat_file(info["name"]) if info["type"] == "file" else b""
    return info | {"ETag": hashlib.md5(content).hexdigest()}


@pytest.fixture
def memory(monkeypatch, tmp_path):
    """Return an empty store of memory:// URLs; the cache is temporary."""
    from t2t_repro.io import storage

    module = pytest.importorskip("fsspec.implementations.memory")
    system = module.MemoryFileSystem()
    info, find = system.info, system.find

    def find_with_tags(self, path, detail=False):
        found = find(path, detail=True)
        tagged = {name: _with_tag(self, found[name]) for name in found}
        return tagged if detail else sorted(tagged)

    monkeypatch.setattr(
        type(system), "info", lambda self, path: _with_tag(self, info(path))
    )
    monkeypatch.setattr(type(system), "find", find_with_tags)
    monkeypatch.setitem(storage.PACKAGES, "memory", ("s3", "fsspec"))
    monkeypatch.setenv("T2T_CACHE", str(tmp_path / "cache"))
    system.store.clear()
    yield system
    system.store.clear()


@pytest.fixture
def machine(memory, monkeypatch, tmp_path):
    """Return a function that begins to use the cache of another machine.

    It returns the copy of memory://bucket/run there.
    """
    from t2t_repro.io import storage

    def use(name):
        monkeypatch.setenv("T2T_CACHE", str(tmp_path / name))
        return storage.local_path("memory://bucket/run")

    return use
