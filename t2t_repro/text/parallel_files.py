"""Raw parallel text: location, download and reading of aligned files."""

import codecs
import dataclasses
import gzip
import io
import itertools
import os
import pathlib
import shutil
import tarfile
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator

from t2t_repro import errors
from t2t_repro.io import files, storage
from t2t_repro.text import downloads

Pair = tuple[str, str]  # (inputs, targets): a sentence and its translation
SUFFIXES = ("", ".gz", ".zst")  # of plain and compressed files
_UNKNOWN_FORMATS = {".xz", ".bz2", ".zip", ".tar", ".tgz", ".7z"}


@dataclasses.dataclass(frozen=True)
class RawFile:
    """A file with one side of a split, one sentence a line, also compressed."""

    name: str  # without .gz: "train.en"
    url: str | None = None  # URL of the .gz; None: only --raw_dir has the file
    sha256: str | None = None  # checksum of the file at `url`
    member: str | None = None  # its path in the archive .tgz at `url`


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
    if not folder.is_dir():
        raise errors.UserError(
            f"--raw_dir={storage.url_of(folder) or folder} is not a folder. "
            "Name the folder of the files with text."
        )
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
    url_path = pathlib.PurePosixPath(urllib.parse.urlsplit(file.url).path)
    if file.member is not None:
        path = folder / file.name
        if not path.exists():
            archive = folder / url_path.name
            downloads.download(file.url, archive, file.sha256)
            _extract(archive, file.member, path)
        return path
    # Not the name in the URL, which two files may share.
    if _UNKNOWN_FORMATS & {*url_path.suffixes}:
        raise errors.UserError(
            f"{file.url} must be a plain file, .gz or .zst. Extract the "
            "text yourself, and name its folder with --raw_dir.",
            see="no-download",
        )
    suffix = url_path.suffix if url_path.suffix in _OPEN_COMPRESSED else ""
    path = folder / f"{file.name}{suffix}"
    downloads.download(file.url, path, file.sha256)
    return path


def _extract(archive, member, path):
    """Write a member of an archive to a file."""
    try:
        with (
            tarfile.open(archive, "r:gz") as tar,
            files.atomic_path(path) as temporary,
            open(temporary, "wb") as out,
        ):
            entry = tar.getmember(member)
            if not entry.isreg():
                raise KeyError(f"{member} is not a plain file")
            shutil.copyfileobj(tar.extractfile(entry), out)
    except (tarfile.TarError, EOFError, KeyError, zlib.error) as error:
        raise errors.UserError(
            f"{archive} is damaged: {error}. Remove it, and run again."
        ) from error


def _open_zst(path, mode):
    """Open a .zst file; PyArrow has the library before Python 3.14."""
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))


def write_pairs(
    folder: pathlib.Path, names: Iterable[str], pairs: Iterable[Pair]
) -> None:
    """Write the files of a split, compressed, so that the same text is read.

    Args:
        folder: folder of the files.
        names: of the inputs and of the targets, without .zst.
        pairs: lines without line feeds.
    """
    import pyarrow as pa

    sources, targets = (
        pa.output_stream(str(folder / f"{name}.zst"), compression="zstd")
        for name in names
    )
    with sources, targets:
        for number, pair in enumerate(pairs):
            for file, line in zip((sources, targets), pair, strict=True):
                # Of two line ends or byte order marks split_lines() keeps one.
                mark = "\ufeff" if not number and line[:1] == "\ufeff" else ""
                end = "\r\n" if line.endswith("\r") else "\n"
                file.write(f"{mark}{line}{end}".encode())


_OPEN_COMPRESSED: dict[str, Callable] = {".gz": gzip.open, ".zst": _open_zst}


def read_lines(path: pathlib.Path | str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file of SUFFIXES, or of a pipe.

    See split_lines(). A pipe can be read once; files.reread() copies it.

    Raises:
        UserError: the file does not exist, is damaged or is not UTF-8.
    """
    path = files.expand_path(path)
    if not (path.is_file() or path.is_fifo()):
        kind = "is a folder" if path.is_dir() else "does not exist"
        if path.is_char_device():
            kind = "is a terminal or another device"
        raise errors.UserError(f"There is no file {path}: it {kind}.")
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


def is_text(value: object) -> bool:
    """Return whether a value is a string that UTF-8 can encode.

    Half of an emoji, a lone surrogate such as JSON's "\\ud83d", is not.
    """
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def require_text(lines: Iterable[object]) -> None:
    """Raise a UserError that names the first line that is no text."""
    for number, line in enumerate(lines, 1):
        if not is_text(line):
            raise errors.UserError(
                "Expected a string of whole characters for each line; line "
                f"{number:,} is {line!r:.80}."
            )


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
