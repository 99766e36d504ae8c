"""Objects at s3:// and gs:// URLs, through fsspec, and its errors explained.

Credentials, endpoints and retries are those of the libraries s3fs and gcsfs.
"""

import contextlib
import errno
import importlib
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.io import extras, files

PACKAGES = {"s3": ("s3", "s3fs"), "gs": ("gcs", "gcsfs")}  # extra, module
_OF_THE_DISK = (*errors.FULL, errno.EROFS)
# Of errors of an absent, wrong or old login. A shorter "token" may be in a URL.
_OF_A_LOGIN = (
    "credentials",
    "anonymous",
    "config profile",
    "token has",
    "ssotoken",
    "access key",
)
_ATTEMPTS = 3  # at an object that is replaced meanwhile


class Version(NamedTuple):
    """Content of an object."""

    tag: str  # that of the store, which differs for other content
    size: int


def find(url: str) -> dict[str, Version]:
    """Return {name: version} of all objects below a URL.

    Raises:
        UserError: they cannot be listed; as in all functions here.
    """
    with _explained(url):
        system, root = _open(url)
        found = system.find(root, detail=True)
    return {
        path.removeprefix(f"{root}/"): _version(info)
        for path, info in found.items()
        # A name with / at its end stands for a folder.
        if path.startswith(f"{root}/") and not path.endswith("/")
    }


def get(url: str, path: pathlib.Path) -> Version:
    """Write the content of an object to a file.

    Raises:
        FileNotFoundError: there is no such object.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic_path(path) as temporary, _explained(url):
        system, name = _open(url)
        for _ in range(_ATTEMPTS):
            try:
                version = _version(system.info(name))
                system.get_file(name, str(temporary))
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    errno.ENOENT, "No object", url
                ) from error
            if (size := temporary.stat().st_size) == version.size:
                return version
        raise ConnectionError(f"received {size:,} of {version.size:,} bytes")


def put(path: pathlib.Path, url: str) -> Version:
    """Write a file to an object, which has its old content until the end."""
    with _explained(url):
        system, name = _open(url)
        system.put_file(str(path), name)
        return _version(system.info(name))


def remove(url: str) -> None:
    """Remove an object, if it is there."""
    with _explained(url), contextlib.suppress(FileNotFoundError):
        system, name = _open(url)
        system.rm_file(name)


def _version(info):
    """Return the version in fsspec's details of an object."""
    return Version(info.get("ETag") or info["etag"], info["size"])


def _open(url: str) -> tuple[Any, str]:
    """Return fsspec's file system, and the name of the URL in it.

    fsspec reads the URL of the bucket alone: names may have its :: and ?.
    """
    scheme, _, path = url.partition("://")
    bucket, slash, name = path.partition("/")
    extra, module = PACKAGES[scheme]
    with extras.needed(extra, f"{scheme}://"):
        import fsspec

        importlib.import_module(module)
    system, root = fsspec.url_to_fs(
        f"{scheme}://{bucket}", use_listings_cache=False
    )
    return system, f"{root}{slash}{name}"


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    """Explain an error of an object store; each library has its own types.

    Errors of the disk have a path, or get it from atomic_path().
    """
    try:
        yield
    except errors.UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and (
            error.filename or error.errno in _OF_THE_DISK
        ):
            raise
        raise errors.UserError(
            f"Cannot access {url}: {type(error).__name__}: {error}. "
            f"{_remedy(error)}"
        ) from error


def _remedy(error):
    text = f"{type(error).__name__} {error}".lower()
    if any(words in text for words in _OF_A_LOGIN):
        return (
            "Log in by the means of the store, such as `aws configure` or "
            "`gcloud auth application-default login`."
        )
    if "bucket name" in text or "invalid endpoint" in text:
        return "Correct the URL, or the endpoint in your settings."
    if isinstance(error, PermissionError):
        return "Give this account access to the bucket, or name another one."
    if isinstance(error, FileNotFoundError):
        return "Create the bucket, or correct the URL."
    return "Check the connection. What is complete is not copied again."
