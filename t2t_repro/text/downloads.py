"""Downloads of files, which continue after an interruption."""

import http.client
import os
import pathlib
import urllib.error
import urllib.request

from t2t_repro import errors
from t2t_repro.io import files, locks, progress

_TIMEOUT_SECONDS = 60


def download(url: str, path: pathlib.Path, sha256: str | None = None) -> None:
    """Download a file, unless it is there.

    Args:
        url: URL of the file.
        path: file to write.
        sha256: checksum of the file; None: it is not checked.

    Raises:
        UserError: the file cannot be downloaded or has another checksum.
    """
    if path.exists():
        return
    with locks.locked(path.parent, wait=True):  # problems share files
        if not path.exists():
            _download(url, path, sha256)


def _download(url, path, sha256):
    part = path.with_name(f"{path.name}.part")
    try:
        with files.path_in_errors(part):
            _fetch(url, part, is_checked=sha256 is not None)
    except (OSError, http.client.HTTPException) as error:
        if errors.disk_code(error):
            raise
        raise errors.UnavailableError(
            f"Cannot download {url}: {error}",
            "Run again to continue, or fetch it by other means and put it at "
            f"{path}.",
        ) from error
    _version_file(part).unlink(missing_ok=True)
    received = files.sha256(part)
    if sha256 is not None and received != sha256:
        part.unlink()
        raise errors.UserError(
            f"{url} has sha256 {received} instead of {sha256}: the "
            "file was changed or damaged. It was removed; run again, or put "
            f"a good copy at {path}."
        )
    os.replace(part, path)


def _version_file(part):
    """Return the file with the version of the file at the URL."""
    return part.with_name(f"{part.name}.version")


def _fetch(url, part, is_checked):
    """Append the rest of a file to the part of it that is there.

    Without a checksum or a version (ETag or date), the part could be of another
    file: all of it is fetched again.
    """
    version_file = _version_file(part)
    version = version_file.read_text() if version_file.exists() else ""
    have = part.stat().st_size if part.exists() else 0
    if not (version or is_checked):
        have = 0
    request = urllib.request.Request(url)
    if have:
        request.add_header("Range", f"bytes={have}-")
        if version:  # a changed file is sent as a whole
            request.add_header("If-Range", version)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if not have or error.code != 416:
            raise
        size = error.headers.get("Content-Range", "").removeprefix("bytes */")
        if size == str(have) or (is_checked and not size):
            return  # the part is complete
        part.unlink()
        _fetch(url, part, is_checked)
        return
    with response:
        continues = response.status == 206  # otherwise the server starts over
        if not continues:
            files.write_text(version_file, _version(response.headers))
        _write(response, part, have if continues else 0)


def _version(headers):
    """Return the value for If-Range; "": the server names no version."""
    tag = headers.get("ETag", "")
    weak = not tag or tag.startswith("W/")  # If-Range needs a strong one
    return headers.get("Last-Modified", "") if weak else tag


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
