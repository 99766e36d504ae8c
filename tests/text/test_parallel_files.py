"""Raw files: lines and pairs, downloads from a local server, and archives."""

import dataclasses
import hashlib
import http.server
import os
import threading
import zipfile

import pyarrow as pa
import pytest

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import parallel_files


def write(path, content):
    path.write_bytes(content)
    return path


def test_zst_is_read_like_plain_text(tmp_path):
    content = "".join(f"{i} é\r\n" for i in range(99_999)).encode()
    packed = pa.compress(content, codec="zstd", asbytes=True)
    path = write(tmp_path / "a.zst", packed)
    lines = list(parallel_files.read_lines(path))
    assert lines == [f"{i} é" for i in range(99_999)]
    assert parallel_files.find("a", tmp_path) == path


@pytest.mark.parametrize(("inputs", "targets"), [(3, 2), (0, 4), (1234, 3)])
def test_files_of_different_lengths_are_user_error_with_counts(
    tmp_path, inputs, targets
):
    a = write(tmp_path / "a", b"x\n" * inputs)
    b = write(tmp_path / "b", b"y\n" * targets)
    read = parallel_files.read_pairs(a, b)
    for _ in range(min(inputs, targets)):
        assert next(read) == ("x", "y")
    with pytest.raises(errors.UserError) as raised:
        next(read)
    assert str(raised.value).startswith(
        f"{a} has {inputs:,} lines and {b} has {targets:,}:"
    )


def test_file_of_raw_dir_is_found_plain_or_compressed(tmp_path):
    file = parallel_files.RawFile("train.en", "http://127.0.0.1:1/train.en.gz")
    packed = write(tmp_path / "train.en.gz", b"")
    assert parallel_files.locate(file, tmp_path, "unused") == packed
    plain = write(tmp_path / "train.en", b"")
    assert parallel_files.locate(file, str(tmp_path), "unused") == plain


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "There is no file {}/absent: it does not exist"),
        (".", "There is no file {}: it is a folder"),
        ("a.xz", "{}/a.xz must be plain text, .gz or .zst"),
        ("/dev/zero", "/dev/zero: it is a terminal"),
        ("a.gz", "{}/a.gz is damaged: it has 0 bytes"),
    ],
)
def test_what_is_no_file_of_text_is_named(tmp_path, name, message):
    for empty in ("a.xz", "a.gz"):
        (tmp_path / empty).touch()
    with pytest.raises(errors.UserError, match=message.format(tmp_path)):
        list(parallel_files.read_lines(tmp_path / name))


def test_file_missing_in_raw_dir_is_user_error_with_folder(tmp_path):
    file = parallel_files.RawFile("train.en")
    message = f"--raw_dir={tmp_path} .*neither train.en nor train.en.gz"
    with pytest.raises(errors.UserError, match=message):
        parallel_files.locate(file, tmp_path, "unused")


@pytest.fixture
def pipe():
    """Return the path of a pipe with two lines, as <(command) passes it."""
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\n")
    os.close(writer)
    yield f"/dev/fd/{reader}"
    os.close(reader)


def test_pipe_is_read_as_a_file(pipe):
    assert list(parallel_files.read_lines(pipe)) == ["one", "two"]


def test_copy_of_a_pipe_is_read_again_and_again(pipe):
    for _ in range(2):
        path = files.reread(pipe)
        assert list(parallel_files.read_lines(path)) == ["one", "two"]
    files.reread.cache_clear()  # the descriptor is given away again


CONTENT = bytes(i * 7 % 256 for i in range(1000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Handler that serves CONTENT according to the server's settings."""

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if server.status is None:
            self.wfile.write(b"no HTTP at all\r\n")
            return
        if server.status != 200:
            self.send_error(server.status)
            return
        first = 0
        continues = asked and server.ranges
        if continues:
            first = int(asked.removeprefix("bytes=").removesuffix("-"))
            if first >= len(CONTENT):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
                self.end_headers()
                return
        body = CONTENT[first:]
        self.send_response(206 if continues else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cut_after])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []  # the Range header of each request
        server.status = 200
        server.ranges = True  # Range is understood
        server.cut_after = None  # bytes, then the connection breaks
        server.url = f"http://127.0.0.1:{server.server_port}/a/train.en.gz"
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def file_at(server, sha256=SHA256):
    return parallel_files.RawFile("train.en", server.url, sha256)


def test_file_is_downloaded_once(server, tmp_path):
    path = parallel_files.locate(file_at(server), None, tmp_path / "downloads")
    assert path == tmp_path / "downloads" / "train.en.gz"
    assert path.read_bytes() == CONTENT
    assert parallel_files.download(file_at(server), path.parent) == path
    assert server.asked == [None]
    assert set(path.parent.iterdir()) == {path, path.parent / files.LOCK}


def test_download_with_wrong_checksum_is_removed(server, tmp_path):
    with pytest.raises(errors.UserError) as raised:
        parallel_files.download(file_at(server, sha256="0" * 64), tmp_path)
    message = str(raised.value)
    for fact in (server.url, SHA256, "0" * 64, str(tmp_path / "train.en.gz")):
        assert fact in message
    assert list(tmp_path.iterdir()) == [tmp_path / files.LOCK]


def test_broken_connection_is_user_error_and_continues(server, tmp_path):
    server.cut_after = 400
    with pytest.raises(errors.UserError, match="Run again to continue"):
        parallel_files.download(file_at(server), tmp_path)
    part = tmp_path / "train.en.gz.part"
    assert part.read_bytes() == CONTENT[:400]
    server.cut_after = None
    path = parallel_files.download(file_at(server), tmp_path)
    assert server.asked == [None, "bytes=400-"]
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (404, "HTTP Error 404"),
        (None, "no HTTP at all"),
        ("closed", ".*refused"),
    ],
)
def test_failed_download_is_user_error_with_path_to_use(
    server, tmp_path, status, reason
):
    server.status = status
    file = file_at(server)
    if status == "closed":
        file = dataclasses.replace(file, url="http://127.0.0.1:1/train.en.gz")
    part = write(tmp_path / "train.en.gz.part", b"kept")
    message = (
        f"Cannot download {file.url}: {reason}(?s:.*)"
        f"put it at {tmp_path / 'train.en.gz'}"
    )
    with pytest.raises(errors.UserError, match=message):
        parallel_files.locate(file, None, tmp_path)
    assert part.read_bytes() == b"kept"


def test_part_of_a_file_without_checksum_is_not_continued(server, tmp_path):
    server.cut_after = 400
    with pytest.raises(errors.UserError, match="Run again, or fetch it"):
        parallel_files.download(file_at(server, None), tmp_path)
    part = write(tmp_path / "train.en.gz.part", b"x" * 400)
    server.cut_after = None
    path = parallel_files.download(file_at(server, None), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, None]
    assert not part.exists()


@pytest.mark.parametrize("sha256", [SHA256, None])
@pytest.mark.parametrize(
    ("part", "ranges"),
    [(CONTENT, True), (CONTENT + b"x", True), (b"x" * 300, False)],
    ids=["complete", "too long", "of a server without ranges"],
)
def test_any_partial_file_becomes_whole(server, tmp_path, sha256, part, ranges):
    server.ranges = ranges
    write(tmp_path / "train.en.gz.part", part)
    path = parallel_files.download(file_at(server, sha256), tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["train.en.xz", "train.tar.gz", "a.zip?x=1"])
def test_url_of_another_format_is_user_error(server, tmp_path, name):
    url = server.url.replace("train.en.gz", name)
    file = dataclasses.replace(file_at(server), url=url)
    with pytest.raises(errors.UserError, match="plain file, .gz or .zst"):
        parallel_files.download(file, tmp_path)
    assert not server.asked


PAIRS = [
    ("\ufeff\ufeffa b", "ä\r"),
    ("", "\r\r"),
    ("\ufeffc\u2028d\u0085", " e\t"),
]


@pytest.fixture
def archive(tmp_path):
    """An archive of the files of PAIRS and of a vocabulary."""
    folder = tmp_path / "files"
    folder.mkdir()
    parallel_files.write_pairs(folder, ("train.en", "train.de"), PAIRS)
    (folder / "vocab.model").write_bytes(bytes(range(256)))
    parallel_files.pack(folder, tmp_path / "kit.zip")
    return tmp_path / "kit.zip"


def test_same_text_is_read_from_an_unpacked_archive(archive, tmp_path):
    folder = parallel_files.unpack(archive, tmp_path / "downloads")
    assert folder.parent == tmp_path / "downloads"
    paths = (
        parallel_files.find(f"train.{side}", folder) for side in ("en", "de")
    )
    assert list(parallel_files.read_pairs(*paths)) == PAIRS
    assert (folder / "vocab.model").read_bytes() == bytes(range(256))


def test_same_files_make_equal_archives_unpacked_once(archive, tmp_path):
    again = tmp_path / "again.zip"
    parallel_files.pack(tmp_path / "files", again)
    assert again.read_bytes() == archive.read_bytes()
    folder = parallel_files.unpack(archive, tmp_path / "downloads")
    (folder / "vocab.model").unlink()
    assert parallel_files.unpack(archive, tmp_path / "downloads") == folder
    assert not (folder / "vocab.model").exists()


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        *(
            (("train.en", name), zipfile.ZIP_STORED, f"has the member '{name}'")
            for name in ("../a", "/tmp/a", "b/a", "a/")
        ),
        (("a",), zipfile.ZIP_DEFLATED, "it has the member 'a'"),
        (("train.en",), zipfile.ZIP_STORED, "list of members has another"),
    ],
)
def test_other_zip_file_is_no_archive(tmp_path, names, kind, message):
    with zipfile.ZipFile(tmp_path / "kit.zip", "w", kind) as archive:
        for name in names:
            archive.writestr(name, b"text")
    with pytest.raises(errors.UserError, match=message):
        parallel_files.unpack(tmp_path / "kit.zip", tmp_path / "downloads")
    assert not (tmp_path / "downloads").exists()


@pytest.mark.parametrize("cut", [None, -1])
def test_damaged_archive_is_refused_and_leaves_nothing(archive, tmp_path, cut):
    content = archive.read_bytes()
    assert content.count(b"TUVW") == 1  # of the vocabulary
    archive.write_bytes(content.replace(b"TUVW", b"TUVV")[:cut])
    message = "damaged: .*(CRC|not a zip|has)"
    with pytest.raises(errors.UserError, match=message):
        parallel_files.unpack(archive, tmp_path / "downloads")
    left = (tmp_path / "downloads").rglob("*")
    assert {path.suffix for path in left if path.is_file()} <= {".lock"}


def test_text_file_is_no_archive(tmp_path):
    (tmp_path / "train.en").write_text("one\n" * 1000)
    with pytest.raises(errors.UserError, match="is not an archive of raw text"):
        parallel_files.unpack(tmp_path / "train.en", tmp_path / "downloads")
