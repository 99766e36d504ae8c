"""Raw files: lines, pairs, and where they are found."""

import gzip
import os

import pyarrow as pa
import pytest

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import parallel_files


def write(path, content):
    path.write_bytes(content)
    return path


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "There is no file {}/absent: it does not exist"),
        (".", "There is no file {}: it is a folder"),
        ("/dev/zero", "/dev/zero: it is a terminal"),
    ],
)
def test_what_is_no_file_is_named(tmp_path, name, message):
    with pytest.raises(errors.UserError, match=message.format(tmp_path)):
        list(parallel_files.read_lines(tmp_path / name))


def test_file_missing_in_raw_dir_is_user_error_with_folder(tmp_path):
    file = parallel_files.RawFile("train.en")
    message = f"--raw_dir={tmp_path} .*neither train.en nor train.en.gz"
    with pytest.raises(errors.UserError, match=message):
        parallel_files.locate(file, tmp_path, "unused")


def test_file_put_into_download_folder_is_used(tmp_path):
    folder = tmp_path / "downloads" / "toy"
    folder.mkdir(parents=True)
    put = write(folder / "train.en.gz", gzip.compress(b"a\nb\n"))
    file = parallel_files.RawFile(
        "train.en", "http://127.0.0.1:1/train.en.gz", "0"
    )
    assert parallel_files.locate(file, None, folder) == put
    assert list(parallel_files.read_lines(put)) == ["a", "b"]


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
