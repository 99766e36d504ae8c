"""Raw parallel text: location, download and reading of aligned files."""

import codecs
import dataclasses
import gzip
import http.client
import io
import itertools
import os
import pathlib
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator

from t2t_repro import errors, files, locks, progress, storage

Pair = tuple[str, str]  # (inputs, targets): a sentence and its translation
TIMEOUT_SECONDS = 60
SUFFIXES = ("", ".gz", ".zst")  # of plain and compressed files


@dataclasses.dataclass(frozen=True)
class RawFile:
    """A file with one side of a split, one sentence a line, also compressed."""

    name: str  # without .gz: "train.en"
    url: str | None = None  # URL of the .gz; None: only --raw_dir has the file
    sha256: str | None = None  # checksum of the file at `url`


def locate(
    file: RawFile,
    raw_dir: str | os.PathLike | None,
    download_dir: str | os.PathLike,
) -> pathlib.Path:
    """Find a file in `raw_dir`, or download it if `raw_dir` is None.

    Raises:
        UserError: there is no such file; the error says where to put it.
    """
    if raw_dir is not None:
        return find(file.name, files.expand_path(raw_dir))
    return download(file, pathlib.Path(download_dir))


def find(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Find a file of --raw_dir, plain or compressed.

    Raises:
        UserError: there is no such file.
    """
    for suffix in SUFFIXES:
        path = folder / (name + suffix)
        if path.is_file():
            return path
    raise errors.UserError(
        f"--raw_dir={storage.url_of(folder) or folder} has neither {name} nor "
        f"{name}.gz or {name}.zst. Put the file there.",
        see="no-download",
    )


def download(file: RawFile, folder: pathlib.Path) -> pathlib.Path:
    """Download a file into a folder, unless it is there.

    A download that was interrupted continues.

    Raises:
        UserError: the file cannot be downloaded or has another checksum.
    """
    if file.url is None:
        raise errors.UserError(
            f"The file {file.name} cannot be downloaded. Put it into a folder "
            "and name the folder with --raw_dir.",
            see="no-download",
        )
    # Not the name in the URL, which two files may share.
    suffix = pathlib.PurePosixPath(urllib.parse.urlsplit(file.url).path).suffix
    path = folder / f"{file.name}{suffix if suffix in _OPEN_COMPRESSED else ''}"
    if not path.exists():
        with locks.locked(folder, wait=True):  # problems share files
            if not path.exists():
                _download(file, path)
    return path


def _download(file: RawFile, path: pathlib.Path) -> None:
    assert file.url is not None
    part = path.with_name(path.name + ".part")
    try:
        _fetch(file.url, part)
    except (OSError, http.client.HTTPException) as error:
        raise errors.UserError(
            f"Cannot download {file.url}: {error}. Run again to continue, or "
            f"fetch it by other means and put it at {path}.",
            see="no-download",
        ) from error
    received = files.sha256(part)
    if file.sha256 is not None and received != file.sha256:
        part.unlink()
        raise errors.UserError(
            f"{file.url} has sha256 {received} instead of {file.sha256}: the "
            "file was changed or damaged. It was removed; run again, or put "
            f"a good copy at {path}."
        )
    os.replace(part, path)


def _fetch(url: str, part: pathlib.Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if have and error.code == 416:  # the part is complete
            return
        raise
    with response:
        continues = response.status == 206  # otherwise the server starts over
        size = response.headers.get("Content-Length")
        with (
            open(
                part, "ab" if continues else "wb", opener=files.no_follow
            ) as out,
            progress.bar(
                desc=f"download {pathlib.PurePosixPath(url).name}",
                total=int(size) if size else None,
                unit="B",
                unit_scale=True,
            ) as bar,
        ):
            while block := response.read(1 << 16):
                out.write(block)
                bar.update(len(block))
            received = out.tell() - (have if continues else 0)
    # http.client raises no error where a connection breaks.
    if size is not None and received != int(size):
        raise OSError(
            f"the connection broke after {received:,} of {int(size):,} bytes"
        )


def _open_zst(path, mode):
    """Open a .zst file; PyArrow has the library before Python 3.14."""
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))


_OPEN_COMPRESSED: dict[str, Callable] = {".gz": gzip.open, ".zst": _open_zst}


def read_lines(path: pathlib.Path | str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file of SUFFIXES; see split_lines().

    Raises:
        UserError: the file does not exist, is damaged or is not UTF-8.
    """
    path = files.expand_path(path)
    if not path.is_file():
        raise errors.UserError(f"There is no file {path}.")
    open_file = _OPEN_COMPRESSED.get(path.suffix, open)
    try:
        with open_file(path, "rb") as file:
            yield from split_lines(file, path)
    except (EOFError, OSError, zlib.error) as error:
        if getattr(error, "errno", None):  # of the disk
            raise
        raise errors.UserError(
            f"{path} is damaged: {error}. Fetch it again."
        ) from error


def split_lines(file: Iterable[bytes], name: object) -> Iterator[str]:
    """Yield the lines of a UTF-8 stream, without their line ends.

    Only LF and CR LF end a line: U+0085 and U+2028 occur inside sentences. A
    byte order mark at the beginning, which some editors on Windows write, is
    removed.

    Args:
        file: lines of bytes.
        name: name of the file, for errors.

    Raises:
        UserError: a line is not UTF-8; the error names it.
    """
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise errors.UserError(
                f"{name}, line {number}, is not UTF-8: {error.reason} at "
                f"byte {error.start}. Convert it, e.g. with iconv."
            ) from error


def read_pairs(inputs: pathlib.Path, targets: pathlib.Path) -> Iterator[Pair]:
    """Yield the pairs of lines of two aligned files.

    Raises:
        UserError: the line counts differ; the error has both.
    """
    sides = read_lines(inputs), read_lines(targets)
    for count, (source, target) in enumerate(itertools.zip_longest(*sides)):
        if source is None or target is None:
            rest = sides[1] if source is None else sides[0]
            longer = count + 1 + sum(1 for _ in rest)
            counts = (count, longer) if source is None else (longer, count)
            raise errors.UserError(
                f"{inputs} has {counts[0]:,} lines and {targets} has "
                f"{counts[1]:,}: line n of one must be the translation of "
                "line n of the other."
            )
        yield source, target
