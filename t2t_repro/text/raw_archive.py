"""Archives of a problem's raw text, for machines without internet.

An archive is a tar file without compression, which has no folders. SHA256SUMS
comes first, with the checksums of the others in the format of sha256sum:
compressed text, vocabularies, and archive.json, which describes the problem.
The same files make the same bytes.
"""

import hashlib
import pathlib
import re
import tarfile

from t2t_repro import errors
from t2t_repro.io import files

DESCRIPTION = "archive.json"
_SUMS = "SHA256SUMS"
_MOST_SUMS = 1 << 20  # bytes; an archive has some ten files
_SUM = re.compile(r"([0-9a-f]{64})  (\w[\w.-]*)")  # no path leads elsewhere
_BLOCK = 1 << 20


def pack(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Write the files of a folder to an archive, with their checksums."""
    members = sorted(folder.iterdir())
    sums = "".join(f"{files.sha256(each)}  {each.name}\n" for each in members)
    files.write_text(folder / _SUMS, sums)
    with (
        files.atomic_path(path) as temporary,
        tarfile.open(temporary, "w:") as tar,
    ):
        for member in (folder / _SUMS, *members):
            entry = tarfile.TarInfo(member.name)  # of nobody, in 1970
            entry.size = member.stat().st_size
            with open(member, "rb") as file:
                tar.addfile(entry, file)


def unpack(path: pathlib.Path, parent: pathlib.Path) -> pathlib.Path:
    """Return the folder of an archive's files, which are verified first.

    The folder has its name when all files are there and have their checksums.

    Args:
        path: the archive.
        parent: parent of the folder.

    Raises:
        UserError: the file is not such an archive, or damaged.
    """
    try:
        with tarfile.open(path, "r:") as tar:
            sums = _read_sums(tar, path)
            name = hashlib.sha256(repr(sums).encode()).hexdigest()[:16]
            folder = parent / f"{path.stem}-{name}"
            with files.locked(folder, wait=True, beside=True):
                if not folder.is_dir():
                    files.remove_leftovers(parent, folder.name.startswith)
                    print(f"Unpacking {path} to {folder}.")
                    with files.atomic_folder(folder) as temporary:
                        _extract(tar, sums, path, temporary)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise _refusal(path, str(error)) from error
    return folder


def _read_sums(tar, path):
    """Return {name: sha256} of the first member."""
    first = tar.next()
    if first is None or first.name != _SUMS or first.size > _MOST_SUMS:
        raise _refusal(path, f"its first member is not {_SUMS}")
    lines = _content(tar, first, path).read().decode("utf-8", "replace")
    matches = [_SUM.fullmatch(line) for line in lines.splitlines()]
    sums = {match[2]: match[1] for match in matches if match}
    if len(sums) != len(matches) or not sums:
        raise _refusal(path, f"{_SUMS} is not a list of checksums and names")
    return sums


def _extract(tar, sums, path, folder):
    missing = dict(sums)
    while member := tar.next():
        expected = missing.pop(member.name, None)
        if expected is None:
            raise _refusal(path, f"{_SUMS} does not list {member.name!r:.200}")
        digest, content = hashlib.sha256(), _content(tar, member, path)
        with open(folder / member.name, "xb") as out:
            while block := content.read(_BLOCK):
                digest.update(block)
                out.write(block)
        if digest.hexdigest() != expected:
            raise _refusal(path, f"{member.name} has another checksum")
    if missing:
        raise _refusal(path, f"it lacks {', '.join(missing)}")


def _content(tar, member, path):
    """Return the file of a member, which has no more bytes than the archive."""
    if not member.isreg() or member.issparse():
        raise _refusal(path, f"{member.name!r:.200} is not a plain file")
    return tar.extractfile(member)


def _refusal(path, reason):
    return errors.UserError(
        f"{path} is not an archive of raw text, or it is damaged: {reason}. "
        "Copy it again, or make it with t2t datagen --archive_file. Of other "
        "archives, extract the files, and name their folder.",
        see="no-download",
    )
