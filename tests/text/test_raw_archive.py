"""Archives of raw text: written, verified and unpacked."""

import hashlib
import io
import tarfile

import pytest

from t2t_repro import errors
from t2t_repro.text import parallel_files

PAIRS = [
    ("\ufeff\ufeffa b", "ä\r"),
    ("", "\r\r"),
    ("\ufeffc\u2028d\u0085", " e\t"),
]
SHA256 = hashlib.sha256(b"text").hexdigest()


@pytest.fixture
def archive(tmp_path):
    """An archive of the files of PAIRS and of a vocabulary."""
    folder = tmp_path / "files"
    folder.mkdir()
    parallel_files.write_pairs(folder, ("train.en", "train.de"), PAIRS)
    (folder / "vocab.model").write_bytes(bytes(range(256)))
    parallel_files.pack(folder, tmp_path / "kit.tar")
    return tmp_path / "kit.tar"


def test_same_text_is_read_from_an_unpacked_archive(archive, tmp_path):
    folder = parallel_files.unpack(archive, tmp_path / "downloads")
    assert folder.parent == tmp_path / "downloads"
    paths = (
        parallel_files.find(f"train.{side}", folder) for side in ("en", "de")
    )
    assert list(parallel_files.read_pairs(*paths)) == PAIRS
    assert (folder / "vocab.model").read_bytes() == bytes(range(256))


def test_same_files_make_the_same_archive_which_is_unpacked_once(
    archive, tmp_path
):
    again = tmp_path / "again.tar"
    (tmp_path / "files" / "SHA256SUMS").unlink()
    parallel_files.pack(tmp_path / "files", again)
    assert again.read_bytes() == archive.read_bytes()
    folder = parallel_files.unpack(archive, tmp_path / "downloads")
    (folder / "vocab.model").unlink()
    assert parallel_files.unpack(archive, tmp_path / "downloads") == folder
    assert not (folder / "vocab.model").exists()


def write_tar(path, *members):
    """Write a tar file of (name, content) or TarInfo."""
    with tarfile.open(path, "w:") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            entry = tarfile.TarInfo(member[0])
            entry.size = len(member[1])
            tar.addfile(entry, io.BytesIO(member[1]))


def sums(*names):
    text = "".join(f"{SHA256}  {name}\n" for name in names)
    return "SHA256SUMS", text.encode()


def link(name, kind, target):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


OTHERS = {
    "no list": [("a", b"text")],
    "is not a plain file": [sums("a"), link("a", tarfile.SYMTYPE, "/etc")],
    "'a' is not a plain file": [sums("a"), link("a", tarfile.FIFOTYPE, "")],
    "not a list of checksums": [sums("../a"), ("../a", b"text")],
    "not a list": [sums("a", "a"), ("a", b"text")],
    "does not list '../a'": [sums("a"), ("../a", b"text")],
    "does not list '/tmp/a'": [sums("a"), ("/tmp/a", b"text")],
    "does not list 'a'": [sums("a"), ("a", b"text"), ("a", b"text")],
    "it lacks b": [sums("a", "b"), ("a", b"text")],
    "a has another checksum": [sums("a"), ("a", b"texts")],
}


@pytest.mark.parametrize("message", OTHERS)
def test_other_archives_are_refused_and_leave_nothing(tmp_path, message):
    members = OTHERS[message]
    message = message.replace("no list", "first member is not SHA256SUMS")
    write_tar(tmp_path / "kit.tar", *members)
    with pytest.raises(errors.UserError, match=message):
        parallel_files.unpack(tmp_path / "kit.tar", tmp_path / "downloads")
    left = tmp_path.rglob("*")
    assert {path.suffix for path in left if path.is_file()} <= {".tar", ".lock"}


def test_text_file_is_no_archive(tmp_path):
    (tmp_path / "train.en").write_text("one\n" * 1000)
    with pytest.raises(errors.UserError, match="is not an archive of raw text"):
        parallel_files.unpack(tmp_path / "train.en", tmp_path / "downloads")
