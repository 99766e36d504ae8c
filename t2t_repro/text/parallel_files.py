"""Raw parallel text: aligned files, their downloads, and archives of them."""

import codecs
import contextlib
import dataclasses
import gzip
import hashlib
import http.client
import io
import itertools
import os
import pathlib
import re
import shutil
import tarfile
import unicodedata
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from t2t_repro import errors
from t2t_repro.io import files, progress, storage
from t2t_repro.text.vocabulary import LINE_ENDS

# (inputs, targets): a sentence and its translation; within data generation
# perhaps with a third string, the alignment of their words.
Pair = tuple[str, str]
SIDES = ("inputs", "targets")
ALIGNMENTS = "alignments"
_UNKNOWN_FORMATS = {".xz", ".bz2", ".zip", ".tar", ".tgz", ".7z"}
_TIMEOUT_SECONDS = 60  # of a server

DESCRIPTION = "archive.json"
_NAME = re.compile(r"\w[\w.-]*")  # of a member


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
            f"--raw_dir={storage.url_of(folder) or folder} is "
            f"{'not a folder' if folder.exists() else 'missing'}. Name the "
            "folder of the files with text, or an archive of datagen."
        )
    if path := existing(name, folder):
        return path
    raise errors.UserError(
        f"--raw_dir={storage.url_of(folder) or folder} has neither {name} nor "
        f"{name}.gz or {name}.zst. Put the file there.",
        see="no-download",
    )


def existing(name: str, folder: pathlib.Path) -> pathlib.Path | None:
    """Return the path of a file, plain or compressed; None: there is none."""
    paths = (folder / (name + suffix) for suffix in SUFFIXES)
    return next(filter(pathlib.Path.is_file, paths), None)


def require_readable_format(path: pathlib.Path) -> None:
    """Raise a UserError if a file is an archive or compressed otherwise."""
    if path.suffix in _UNKNOWN_FORMATS:
        raise errors.UserError(
            f"{path} must be plain text, .gz or .zst. Extract the text first."
        )


def _open_zst(path, mode):
    """Open a .zst file; PyArrow has the library before Python 3.14."""
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))


_OPEN_COMPRESSED: dict[str, Callable] = {".gz": gzip.open, ".zst": _open_zst}
SUFFIXES = ("", *_OPEN_COMPRESSED)  # of plain and compressed files


def read_lines(path: pathlib.Path | str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file of SUFFIXES, or of a pipe.

    See split_lines(). A pipe can be read once; files.reread() copies it.

    Raises:
        UserError: the file does not exist, is damaged or is not UTF-8.
    """
    with open_raw(path) as file:
        yield from split_lines(file, path)


@contextlib.contextmanager
def open_raw(path: pathlib.Path | str) -> Iterator[BinaryIO]:
    """Open the bytes of a file of SUFFIXES, or of a pipe, to read them once.

    Raises:
        UserError: the file does not exist or, while it is read, is damaged.
    """
    path = files.expand_path(path)
    if not (path.is_file() or path.is_fifo()):
        kind = "is a folder" if path.is_dir() else "does not exist"
        if path.is_char_device():
            kind = "is a terminal or another device"
        raise errors.UserError(f"There is no file {path}: it {kind}.")
    require_readable_format(path)
    open_file = _OPEN_COMPRESSED.get(path.suffix, open)
    try:
        if open_file is not open and path.is_file() and not path.stat().st_size:
            raise EOFError("it has 0 bytes, and a compressed text has more")
        with open_file(path, "rb") as file:
            yield file
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
    removed. The name of the file is for errors.

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
    return _aligned(read_lines(inputs), read_lines(targets), inputs, targets)


def _aligned(first, second, *names):
    sides = iter(first), iter(second)
    for count, pair in enumerate(itertools.zip_longest(*sides)):
        if None in pair:
            counts = [count, count]
            longer = pair.index(None) ^ 1
            counts[longer] += 1 + sum(1 for _ in sides[longer])
            raise errors.UserError(
                f"{names[0]} has {counts[0]:,} lines and {names[1]} has "
                f"{counts[1]:,}: line n of one must belong to line n of the "
                "other, and may be blank."
            )
        yield pair


def with_alignments(
    pairs: Iterable[Pair], alignments: Iterable[str]
) -> Iterator[Pair]:
    """Yield pairs with the line of word alignments of each, a third string.

    Raises:
        UserError: the counts differ.
    """
    names = "The text", "the file of word alignments"
    for pair, line in _aligned(pairs, alignments, *names):
        yield *pair, line


class Checksums:
    """sha256 of each side of the text, with a line feed after every line.

    The alignments of pairs that have them are a third side.
    """

    def __init__(self) -> None:
        self._hashes = {side: hashlib.sha256() for side in SIDES}

    def update(self, pairs: Sequence[Pair]) -> None:
        """Add the next pairs."""
        columns = zip(*pairs, strict=True)
        for side, lines in zip((*SIDES, ALIGNMENTS), columns, strict=False):
            digest = self._hashes.setdefault(side, hashlib.sha256())
            digest.update("".join(f"{line}\n" for line in lines).encode())

    def hexdigests(self) -> dict[str, str]:
        """Return {"inputs": …, "targets": …}."""
        return {side: each.hexdigest() for side, each in self._hashes.items()}


def write_pairs(
    folder: pathlib.Path, names: Iterable[str], pairs: Iterable[Pair]
) -> None:
    """Write the files of a split, compressed, so that the same text is read.

    Names are without .zst, and lines without line feeds.
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


def one_line(text: str | None) -> str:
    """Return text with a space for each line end; "" for none."""
    return (text or "").translate(LINE_ENDS)


def has_text(line: str) -> bool:
    """Return whether a line has more than spaces and invisible characters.

    These are marks of format (Cf) and of control (Cc), and U+2581, which is
    SentencePiece's sign of a space.
    """
    return any(
        unicodedata.category(c) not in ("Cf", "Cc") and c != "\u2581"
        for c in line.strip()
    )


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


# Downloads


def download(file: RawFile, folder: pathlib.Path) -> pathlib.Path:
    """Download a file into a folder, unless it is there.

    A download of a file with a checksum continues if it was interrupted.

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
            _download(file.url, archive, file.sha256)
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
    _download(file.url, path, file.sha256)
    return path


def _extract(archive, member, path):
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


def _download(url, path, sha256):
    """Download a file, unless it is there, and compare a given checksum."""
    if path.exists():
        return
    part = path.with_name(f"{path.name}.part")
    with files.locked(path.parent, wait=True):  # problems share files
        if path.exists():
            return
        try:
            with files.path_in_errors(part):
                if sha256 is None:  # it could be a part of another file
                    part.unlink(missing_ok=True)
                _fetch(url, part)
        except (OSError, http.client.HTTPException) as error:
            if errors.disk_code(error):
                raise
            raise errors.UnavailableError(
                f"Cannot download {url}: {error}",
                f"Run again{' to continue' if sha256 else ''}, or fetch it by "
                f"other means and put it at {path}.",
            ) from error
        received = files.sha256(part)
        if sha256 is not None and received != sha256:
            part.unlink()
            raise errors.UserError(
                f"{url} has sha256 {received} instead of {sha256}: the "
                "file was changed or damaged. It was removed; run again, or "
                f"put a good copy at {path}."
            )
        os.replace(part, path)


def _fetch(url, part):
    """Append the rest of a file to the part of it that is there."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if not have or error.code != 416:
            raise
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return  # the part is complete
        part.unlink()
        _fetch(url, part)
        return
    with response:
        continues = response.status == 206  # otherwise the server starts over
        _write(response, part, have if continues else 0)


def _write(response, part, have):
    """Write a response after the first `have` bytes of a file."""
    size = response.headers.get("Content-Length")
    name = pathlib.PurePosixPath(response.url).name
    mode = "ab" if have else "wb"
    with (
        open(part, mode, opener=files.no_follow) as out,
        progress.bar(
            desc=f"download {name}",
            total=int(size) if size else None,
            unit="B",
            unit_scale=True,
        ) as bar,
    ):
        while block := response.read(1 << 16):
            out.write(block)
            bar.update(len(block))
        received = out.tell() - have
    # http.client raises no error where a connection breaks.
    if size is not None and received != int(size):
        raise OSError(
            f"the connection broke after {received:,} of {int(size):,} bytes"
        )


# Archives, for machines without internet


def pack(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Write the files of a folder to an archive, which has their checksums."""
    with (
        files.atomic_path(path) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
    ):
        for member in sorted(folder.iterdir()):
            entry = zipfile.ZipInfo(member.name)  # of nobody, in 1980
            with (
                open(member, "rb") as file,
                archive.open(entry, "w", force_zip64=True) as out,
            ):
                shutil.copyfileobj(file, out)
        archive.comment = _digest(archive)


def _digest(archive):
    """Return a checksum of names and checksums: a damaged list lacks some."""
    contents = repr([(each.filename, each.CRC) for each in archive.infolist()])
    return hashlib.sha256(contents.encode()).hexdigest()[:16].encode()


def unpack(path: pathlib.Path, parent: pathlib.Path) -> pathlib.Path:
    """Return the folder of an archive's files, which are verified.

    The folder has its name when all files are there and have their checksums.

    Raises:
        UserError: the file is not such an archive, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                # So that none has more bytes than the archive.
                name, start = member.filename, member.header_offset
                is_plain = not member.compress_type and start >= 0
                if not (is_plain and _NAME.fullmatch(name)):
                    raise ValueError(f"it has the member {name!r:.200}")
            if archive.comment != _digest(archive):
                raise ValueError("its list of members has another checksum")
            folder = parent / f"{path.stem}-{archive.comment.decode()}"
            with files.locked(folder, wait=True, beside=True):
                if not folder.is_dir():
                    files.remove_leftovers_of(folder)
                    print(f"Unpacking {path} to {folder}.")
                    with files.atomic_folder(folder) as temporary:
                        archive.extractall(temporary)
    # RuntimeError: of encryption, and of features that zipfile lacks.
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        raise errors.UserError(
            f"{path} is not an archive of raw text, or it is damaged: {error}. "
            "Copy it again, or make it with t2t datagen --archive_file. Of "
            "other archives, extract the files, and name their folder.",
            see="no-download",
        ) from error
    return folder
