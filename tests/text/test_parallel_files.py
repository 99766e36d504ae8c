"""Raw files: lines, pairs, and downloads from a local server."""

import dataclasses
import gzip
import hashlib
import http.server
import threading

import pyarrow as pa
import pytest

from t2t_repro import errors, locks
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
        if asked and server.ranges:
            first = int(asked.removeprefix("bytes=").removesuffix("-"))
            if first >= len(CONTENT):
                self.send_error(416)
                return
        body = CONTENT[first:]
        self.send_response(206 if asked and server.ranges else 200)
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


def write(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\n", [""]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u0085b\u2028c\u00a0d\u000be\n".encode(),)
        + (["a\u0085b\u2028c\u00a0d\u000be"],),
        (b" a \t\n", [" a \t"]),
        ("żółw\n".encode(), ["żółw"]),
        # A byte order mark; elsewhere it is a character.
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_lines_end_at_line_feeds_only(tmp_path, content, lines, packed):
    if packed:
        path = write(tmp_path / "a.gz", gzip.compress(content))
    else:
        path = write(tmp_path / "a", content)
    assert list(parallel_files.read_lines(path)) == lines
    assert list(parallel_files.read_lines(str(path))) == lines


def test_invalid_utf8_is_user_error_with_line(tmp_path):
    path = write(tmp_path / "a", "a\nbü\n".encode() + b"ab\xff\nc\n")
    lines = parallel_files.read_lines(path)
    assert [next(lines), next(lines)] == ["a", "bü"]
    message = f"{path}, line 3, is not UTF-8: invalid start byte at byte 2"
    with pytest.raises(errors.UserError, match=message):
        next(lines)


def test_missing_file_is_user_error(tmp_path):
    path = tmp_path / "absent"
    with pytest.raises(errors.UserError, match=f"There is no file {path}"):
        list(parallel_files.read_lines(path))


def compress_zst(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return sink.getvalue().to_pybytes()


def test_zst_is_read_like_plain_text(tmp_path):
    content = "".join(f"{i} é\r\n" for i in range(99_999)).encode()
    path = write(tmp_path / "a.zst", compress_zst(content))
    lines = list(parallel_files.read_lines(path))
    assert lines == [f"{i} é" for i in range(99_999)]
    assert parallel_files.find("a", tmp_path) == path


@pytest.mark.parametrize(
    ("suffix", "compress"), [("gz", gzip.compress), ("zst", compress_zst)]
)
@pytest.mark.parametrize("damage", ["not compressed", "cut"])
def test_damaged_compressed_file_is_user_error(
    tmp_path, suffix, compress, damage
):
    text = b"a\n" * 999
    content = text if damage == "not compressed" else compress(text)[:-9]
    path = write(tmp_path / f"a.{suffix}", content)
    with pytest.raises(errors.UserError, match=f"a.{suffix} is damaged"):
        list(parallel_files.read_lines(path))


def test_read_pairs_gives_aligned_lines(tmp_path):
    inputs = write(tmp_path / "a", "one\u2028\n\nthree\r\n".encode())
    targets = write(tmp_path / "b.gz", gzip.compress(b"eins\nzwei\n"))
    write(tmp_path / "c", b"eins\nzwei\n\n")
    pairs = [("one\u2028", "eins"), ("", "zwei"), ("three", "")]
    assert list(parallel_files.read_pairs(inputs, tmp_path / "c")) == pairs
    with pytest.raises(errors.UserError, match="3 lines.*2"):
        list(parallel_files.read_pairs(inputs, targets))


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [(3, 2), (0, 4), (1234, 3)],
)
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


def test_file_missing_in_raw_dir_is_user_error_with_folder(tmp_path):
    file = parallel_files.RawFile("train.en")
    with pytest.raises(errors.UserError) as raised:
        parallel_files.locate(file, tmp_path, "unused")
    message = str(raised.value)
    assert f"--raw_dir={tmp_path} " in message
    assert "neither train.en nor train.en.gz" in message


def test_file_is_downloaded_once(server, tmp_path):
    path = parallel_files.locate(file_at(server), None, tmp_path / "downloads")
    assert path == tmp_path / "downloads" / "train.en.gz"
    assert path.read_bytes() == CONTENT
    assert parallel_files.download(file_at(server), path.parent) == path
    assert server.asked == [None]
    assert set(path.parent.iterdir()) == {path, path.parent / locks.LOCK}


@pytest.mark.parametrize("url", ["{}?download=1", "{}#part"])
def test_downloads_are_named_by_their_file_not_by_the_url(
    server, tmp_path, url
):
    names = ("train.en", "validation.en")
    paths = [
        parallel_files.download(
            dataclasses.replace(
                file_at(server), name=name, url=url.format(server.url)
            ),
            tmp_path,
        )
        for name in names
    ]
    assert paths == [tmp_path / f"{name}.gz" for name in names]


def test_download_without_checksum_is_accepted(server, tmp_path):
    path = parallel_files.download(file_at(server, sha256=None), tmp_path)
    assert path.read_bytes() == CONTENT


def test_download_with_wrong_checksum_is_removed(server, tmp_path):
    with pytest.raises(errors.UserError) as raised:
        parallel_files.download(file_at(server, sha256="0" * 64), tmp_path)
    message = str(raised.value)
    for fact in (server.url, SHA256, "0" * 64, str(tmp_path / "train.en.gz")):
        assert fact in message
    assert list(tmp_path.iterdir()) == [tmp_path / locks.LOCK]


def test_interrupted_download_continues(server, tmp_path):
    write(tmp_path / "train.en.gz.part", CONTENT[:300])
    path = parallel_files.download(file_at(server), tmp_path)
    assert server.asked == ["bytes=300-"]
    assert path.read_bytes() == CONTENT


def test_link_in_place_of_the_partial_file_is_not_followed(server, tmp_path):
    write(tmp_path / "mine", CONTENT[:300])
    (tmp_path / "train.en.gz.part").symlink_to(tmp_path / "mine")
    with pytest.raises(errors.UserError, match="Cannot download"):
        parallel_files.download(file_at(server), tmp_path)
    assert (tmp_path / "mine").read_bytes() == CONTENT[:300]


def test_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    write(tmp_path / "train.en.gz.part", b"x" * 300)
    path = parallel_files.download(file_at(server), tmp_path)
    assert path.read_bytes() == CONTENT


def test_complete_partial_file_is_accepted(server, tmp_path):
    """The process ended while it computed the checksum."""
    write(tmp_path / "train.en.gz.part", CONTENT)
    path = parallel_files.download(file_at(server), tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("sha256", [SHA256, None], ids=["checked", "unchecked"])
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
    ("status", "reason"), [(404, "HTTP Error 404"), (None, "no HTTP at all")]
)
def test_failed_download_is_user_error_with_path_to_use(
    server, tmp_path, status, reason
):
    server.status = status
    with pytest.raises(errors.UserError) as raised:
        parallel_files.download(file_at(server), tmp_path)
    assert f"Cannot download {server.url}: {reason}" in str(raised.value)
    assert f"put it at {tmp_path / 'train.en.gz'}" in str(raised.value)


def test_unreachable_server_is_user_error_with_path_to_use(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as closed:
        url = f"http://127.0.0.1:{closed.server_port}/train.en.gz"
    file = parallel_files.RawFile("train.en", url)
    write(tmp_path / "train.en.gz.part", b"kept")
    with pytest.raises(errors.UserError) as raised:
        parallel_files.locate(file, None, tmp_path)
    assert f"Cannot download {url}" in str(raised.value)
    assert f"put it at {tmp_path / 'train.en.gz'}" in str(raised.value)
    assert (tmp_path / "train.en.gz.part").read_bytes() == b"kept"


def test_file_put_into_download_folder_is_used(tmp_path):
    folder = tmp_path / "downloads" / "toy"
    folder.mkdir(parents=True)
    put = write(folder / "train.en.gz", gzip.compress(b"a\nb\n"))
    file = parallel_files.RawFile(
        "train.en", "http://127.0.0.1:1/train.en.gz", "0"
    )
    assert parallel_files.locate(file, None, folder) == put
    assert list(parallel_files.read_lines(put)) == ["a", "b"]
