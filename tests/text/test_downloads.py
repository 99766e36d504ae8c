"""Downloads of raw files from a local server."""

import dataclasses
import hashlib
import http.server
import threading

import pytest

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import parallel_files

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
        same = self.headers.get("If-Range") in (None, *server.version.values())
        continues = asked and server.ranges and same
        if continues:
            first = int(asked.removeprefix("bytes=").removesuffix("-"))
            if first >= len(CONTENT):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
                self.end_headers()
                return
        body = CONTENT[first:]
        self.send_response(206 if continues else 200)
        for header in server.version.items():
            self.send_header(*header)
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
        server.version = {"ETag": '"v1"'}  # headers
        server.cut_after = None  # bytes, then the connection breaks
        server.url = f"http://127.0.0.1:{server.server_port}/a/train.en.gz"
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def file_at(server, sha256=SHA256):
    return parallel_files.RawFile("train.en", server.url, sha256)


CHECKED = pytest.mark.parametrize(
    "sha256", [SHA256, None], ids=["checked", "unchecked"]
)


def write(path, content):
    path.write_bytes(content)
    return path


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


@CHECKED
def test_broken_connection_is_user_error_and_continues(
    server, tmp_path, sha256
):
    server.cut_after = 400
    with pytest.raises(errors.UserError, match="Run again to continue"):
        parallel_files.download(file_at(server, sha256), tmp_path)
    part = tmp_path / "train.en.gz.part"
    assert part.read_bytes() == CONTENT[:400]
    server.cut_after = None
    path = parallel_files.download(file_at(server, sha256), tmp_path)
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


@pytest.mark.parametrize(
    "version",
    [
        {"ETag": '"v2"'},
        {"Last-Modified": "Thu, 26 Nov 2026 07:00:00 GMT"},
        {"ETag": 'W/"v1"'},
        {},
    ],
)
def test_part_of_a_changed_file_is_not_continued(server, tmp_path, version):
    server.cut_after = 400
    with pytest.raises(errors.UserError, match="Run again to continue"):
        parallel_files.download(file_at(server, None), tmp_path)
    part = write(tmp_path / "train.en.gz.part", b"x" * 400)
    server.cut_after, server.version = None, version
    path = parallel_files.download(file_at(server, None), tmp_path)
    assert path.read_bytes() == CONTENT
    assert not part.exists()


@CHECKED
@pytest.mark.parametrize(
    ("part", "ranges"),
    [(CONTENT, True), (CONTENT + b"x", True), (b"x" * 300, False)],
    ids=["complete", "too long", "of a server without ranges"],
)
def test_any_partial_file_becomes_the_whole_one(
    server, tmp_path, sha256, part, ranges
):
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
