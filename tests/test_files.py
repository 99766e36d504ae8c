"""Files that are whole or absent."""

import hashlib
import os
import pathlib

import pytest

from t2t_repro import files


def test_json_comes_back_and_is_for_people(tmp_path):
    path = tmp_path / "a.json"
    value = {"name": "Übung \u2028", "list": [1, 2.5, None, True]}
    files.write_json(path, value)
    assert files.read_json(path) == value
    text = path.read_text("utf-8")
    assert "Übung" in text and text.endswith("}\n")
    assert text.splitlines()[1].startswith('  "name"')


def test_waits_for_what_appears(tmp_path, monkeypatch):
    seen = iter([False, False, True])
    slept = []
    monkeypatch.setattr(files.time, "sleep", slept.append)
    assert files.appears(lambda: next(seen))
    assert len(slept) == 2
    monkeypatch.setattr(files, "_PATIENCE", -1)
    assert not files.appears(lambda: False)


def test_text_is_written_in_utf8(tmp_path):
    files.write_text(tmp_path / "a", "ä\n")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa4\n"


def test_nothing_but_the_file_is_left(tmp_path):
    files.write_bytes(tmp_path / "a", b"old")
    files.write_bytes(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    files.write_bytes(path, b"old")
    whole = pathlib.Path.write_bytes

    def write_half(self, content):
        whole(self, content[: len(content) // 2])
        raise OSError("No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", write_half)
    with pytest.raises(OSError, match="No space left"):
        files.write_bytes(path, b"longer than the old")
    assert path.read_bytes() == b"old"


def test_a_folder_appears_when_it_is_whole(tmp_path):
    folder = tmp_path / "new" / "a"
    with files.making_folder(folder) as temporary:
        (temporary / "file").write_text("whole")
        assert not folder.exists()
    assert os.listdir(folder.parent) == ["a"]
    assert os.listdir(folder) == ["file"]


def test_a_folder_that_was_left_half_is_made_anew(tmp_path):
    with pytest.raises(OSError, match="No space left"):
        with files.making_folder(tmp_path / "a") as temporary:
            (temporary / "half").write_text("half")
            raise OSError("No space left on device")
    assert not (tmp_path / "a").exists()
    with files.making_folder(tmp_path / "a") as temporary:
        (temporary / "file").write_text("whole")
    assert os.listdir(tmp_path / "a") == ["file"]


def test_a_file_is_never_written_in_place(tmp_path):
    """Who has the old file open goes on reading the old bytes."""
    path = tmp_path / "a"
    files.write_bytes(path, b"old")
    with open(path, "rb") as file:
        files.write_bytes(path, b"new")
        assert file.read() == b"old"


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_sha256_is_of_all_bytes(tmp_path, size):
    content = bytes(i % 251 for i in range(1000)) * (size // 1000 + 1)
    path = tmp_path / "a"
    path.write_bytes(content[:size])
    assert files.sha256(path) == hashlib.sha256(content[:size]).hexdigest()
