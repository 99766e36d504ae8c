"""Copies of folders at s3:// and gs:// URLs.

Commands work in the copy CACHE/s3/BUCKET/FOLDER of s3://BUCKET/FOLDER. Its path
says what it is a copy of: these functions do nothing for other paths. CACHE is
~/.cache/t2t_repro, or $T2T_CACHE.

Only what has changed since it was copied is copied again, in both directions. A
file .t2t.objects in each folder has the version (ETag) of every object that has
been copied, with the size and time of its file.

An object store replaces one object at a time. The files of _COMPLETE say that
others are complete: they are copied last, and removed first. So a process may
be killed at any moment.

fsspec accesses the stores. Credentials, endpoints and retries are those of the
libraries s3fs and gcsfs.
"""

import contextlib
import errno
import fnmatch
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.io import files, progress

_RUN = "run.json"
# Of a run, data, checkpoints and exports.
_COMPLETE = (_RUN, "manifest.json", "*.index", "saved_model.pb", "model.bin")
# Files that are written once: if one has changed, it is damaged.
_UNCHANGED = "*checkpoints/ckpt-*"
_NO_NAMES = {"", ".", ".."}
_RECORDS = ".t2t.objects"
_NOT_COPIED = (_RECORDS, files.LOCK, f"*.{files.LOCK}", "*.t2t.tmp")
PACKAGES = {"s3": ("s3", "s3fs"), "gs": ("gcs", "gcsfs")}  # extra, module
_OF_THE_DISK = (*errors.FULL, errno.EROFS)
_ATTEMPTS = 3  # at an object that is replaced meanwhile


def cache_folder() -> pathlib.Path:
    """Return the folder of copies, and of models of the Hub."""
    cache = os.environ.get("T2T_CACHE") or "~/.cache/t2t_repro"
    return files.expand_path(cache).absolute()


def local_path(name: str | os.PathLike) -> pathlib.Path:
    """Return a path that a user wrote; of a URL, the path of its copy.

    Raises:
        UserError: the URL is not that of a folder in an object store, or the
            path is not UTF-8, which TensorFlow and Arrow cannot open.
    """
    if not files.is_url(name):
        path = files.expand_path(name)
        try:
            os.fsencode(path).decode("utf-8")
        except UnicodeDecodeError as error:
            raise errors.UserError(
                f"The name {str(name)!a} is not UTF-8, so that TensorFlow "
                "cannot open it. Rename that folder, or name another."
            ) from error
        return path
    scheme, _, rest = str(name).partition("://")
    parts = rest.rstrip("/").split("/")
    # fsspec takes ?versionId= and :: for parts of its own.
    is_name = not (_NO_NAMES & {*parts} or "?" in rest or "::" in rest)
    if scheme not in PACKAGES or not is_name:
        raise errors.UserError(
            f"{name} is not the URL of a folder in an object store. Write it "
            "as s3://BUCKET/FOLDER or gs://BUCKET/FOLDER, without ? and ::."
        )
    return cache_folder().joinpath(scheme, *parts)


def url_of(path: pathlib.Path) -> str | None:
    """Return the URL of which a path is the copy; None: it is no copy."""
    try:
        path, cache = path.absolute(), cache_folder()
    except errors.UserError:  # without a home folder there are no copies
        return None
    if not path.is_relative_to(cache):
        return None
    scheme, *parts = path.relative_to(cache).parts or ("",)
    if scheme not in PACKAGES or not parts:
        return None
    return f"{scheme}://{'/'.join(parts)}"


def name_of(path: pathlib.Path) -> str:
    """Return the URL of a copy; of other paths the absolute path."""
    return url_of(path) or str(path.absolute())


def names(folder: pathlib.Path) -> list[str]:
    """Return the names of all objects of a copy; none of other folders."""
    url = url_of(folder)
    return sorted(_found(url)) if url else []


def download(
    folder: pathlib.Path, choose: Callable[[list[str]], Iterable[str]] = list
) -> pathlib.Path:
    """Copy objects that are missing here or have changed; return the folder.

    Files that were copied and whose objects are gone are removed; objects stay
    whose files are gone, and are copied again. If another process here works
    in the copy, as a trainer does, it stays as it is. `choose` returns those of
    all names that are copied. Nothing is copied to other folders.

    Raises:
        UserError: the objects cannot be read.
    """
    url = url_of(folder)
    if not url:
        return folder
    with _locked(folder):
        if not _is_in_use(folder):
            _download(folder, url, choose)
    return folder


def _locked(folder):
    """Lock the run in which a folder is, since all of it may be copied too.

    A folder that is in no run has a lock of its own.
    """
    parents = (folder, *folder.parents)
    runs = (p for p in parents if url_of(p) and (p / _RUN).exists())
    return files.locked(next(runs, folder), wait=True, beside=True)


def _is_in_use(folder):
    """Return whether a process has the lock of a folder."""
    try:
        with files.locked(folder):
            return False
    except files.TakenError:
        return True


def _download(folder, url, choose):
    found = _found(url)
    records, present = _read_records(folder), file_stats(folder)
    chosen = _in_order(choose(sorted(found)))
    _require_paths(url, chosen)
    for name in reversed(_in_order(present)):
        record = records.get(name)
        if name in found:
            is_stale = record is None or record.tag != found[name]
            if not is_stale and fnmatch.fnmatchcase(name, _UNCHANGED):
                is_stale = not record.is_same(present[name])
        else:  # it was removed there, or is new or newer here
            is_stale = record is not None and record.is_same(present[name])
        if is_stale:
            (folder / name).unlink(missing_ok=True)
    # An upload removes the objects of files that were removed since now.
    for name in records:
        if not (folder / name).exists():
            _set_record(folder / name, None)
    missing = [folder / name for name in chosen if not (folder / name).exists()]
    settings = {"delay": progress.DELAY_SECONDS, "disable": not missing}
    for path in progress.bar(missing, f"copy {url}", unit="file", **settings):
        # Another machine may remove an old checkpoint now.
        with contextlib.suppress(FileNotFoundError):
            _get(path)


def _require_paths(url, names):
    """Check that objects can be files: a store has no folders."""
    objects = set(names)
    for name in names:
        parents = {str(path) for path in pathlib.PurePosixPath(name).parents}
        if _NO_NAMES & {*name.split("/")} or parents & objects:
            raise errors.UserError(
                f"The object {url}/{name} cannot be copied to a file: a part "
                "of its name is empty, . or .., or another object has the "
                "name of its folder. Rename that object."
            )


def fetch(path: pathlib.Path) -> None:
    """Copy the object of a file that download() did not choose."""
    if url_of(path) and not path.exists():
        _get(path)


def fetch_again(folder: pathlib.Path, pattern: str) -> bool:
    """Replace files of a pattern by their objects; return if there are any.

    Files of a folder that is no copy stay.
    """
    paths = [
        folder / name
        for name in _in_order(fnmatch.filter(names(folder), pattern))
    ]
    # Forgotten first: an upload removes objects whose files are gone.
    for path in paths:
        _set_record(path, None)
        path.unlink(missing_ok=True)
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            _get(path)
    return bool(paths)


def _get(path):
    tag = get_object(url_of(path), path)
    _record(path, tag, path.stat())


def upload(folder: pathlib.Path) -> None:
    """Copy the files of a copy that have changed to their objects.

    Objects that were copied and whose files are gone are removed. Nothing is
    copied from other folders.

    Raises:
        UserError: the objects cannot be written. The files stay, and a later
            upload copies them.
    """
    if not url_of(folder):
        return
    with _locked(folder):
        records = _read_records(folder)
        present = file_stats(folder)
        changed = _in_order(
            name
            for name, stat in present.items()
            if not (name in records and records[name].is_same(stat))
            and _has_index(name, present)
        )
        # While parts are replaced, the whole is not complete. A run.json is.
        for name in reversed(changed):
            if name in records and _rank(name) > 0:
                _remove(folder / name)
        for name in changed:
            path, url = folder / name, f"{url_of(folder)}/{name}"
            # Another process may remove the file now.
            with contextlib.suppress(FileNotFoundError):
                _record(path, put_object(path, url), present[name])
        for name in reversed(_in_order(records.keys() - present.keys())):
            if (folder / name).exists():
                continue  # it was written meanwhile
            _remove(folder / name)
            if name.endswith(".index"):  # its data may never have been here
                index = folder / name
                for part in names(index.parent):
                    if part.startswith(f"{index.stem}."):
                        _remove(index.with_name(part))


def remove_unfinished(folder: pathlib.Path) -> None:
    """Remove objects with data of checkpoints that have no index there or here.

    An upload was killed between the two, on a machine that may be gone.
    """
    if not url_of(folder):
        return
    with _locked(folder):
        known = names(folder)
        for name in known:
            path = folder / name
            if not (_has_index(name, known) or path.exists()):
                _remove(path)


def upload_results(folder: pathlib.Path) -> None:
    """Call upload(); if it fails, as in a run of others, print a message."""
    try:
        upload(folder)
    except errors.UserError as error:
        print(f"The results are in {folder} only. {error}", file=sys.stderr)


def _has_index(name, names):
    """Return False for data of a checkpoint that is written at present."""
    checkpoint, is_data, _ = name.partition(".data-")
    return not is_data or f"{checkpoint}.index" in names


def _remove(path):
    """Remove the object of a file, if it is there, and its record."""
    url = url_of(path)
    with _explained(url), contextlib.suppress(FileNotFoundError):
        system, name = _open(url)
        system.rm_file(name)
    _set_record(path, None)


def _rank(name):
    """Return the place of a file in the order of copies; -1 is first."""
    base = name.rpartition("/")[2]
    matches = [fnmatch.fnmatchcase(base, pattern) for pattern in _COMPLETE]
    return matches.index(True) if True in matches else -1


def _in_order(names):
    return sorted(names, key=lambda name: (_rank(name), name))


def _found(url):
    """Return {name: tag} of the objects of a folder that are copied.

    The tag is that of the store, which differs for other content.
    """
    with _explained(url):
        system, root = _open(url)
        found = system.find(root, detail=True)
    objects = {
        path.removeprefix(f"{root}/"): info
        for path, info in found.items()
        # A name with / at its end stands for a folder.
        if path.startswith(f"{root}/") and not path.endswith("/")
    }
    return {n: _tag(info) for n, info in objects.items() if _is_copied(n)}


# Records


class _Record(NamedTuple):
    """A file at the moment when it was the same as an object."""

    tag: str  # of the object's version
    size: int
    mtime_ns: int

    def is_same(self, stat: os.stat_result) -> bool:
        """Return whether the file has not changed since."""
        return self[1:] == (stat.st_size, stat.st_mtime_ns)


def _is_copied(name):
    """Return whether a file of this name, with its folders, is copied."""
    return not any(
        fnmatch.fnmatchcase(part, pattern)
        for part in name.split("/")
        for pattern in _NOT_COPIED
    )


def file_stats(folder: pathlib.Path) -> dict[str, os.stat_result]:
    """Return {name: stat} of the files of a folder that are copied."""
    found = {}
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        # Another process may remove it now.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and _is_copied(name):
                found[name] = path.stat()
    return found


def _read_records(folder):
    """Return {name: record} of the files of a folder."""
    return {
        (file.parent / name).relative_to(folder).as_posix(): record
        for file in _walk(folder)
        if file.name == _RECORDS
        for name, record in _read_file(file).items()
    }


def _record(path, tag, stat):
    """Record that a file is the same as a version of its object."""
    _set_record(path, _Record(tag, stat.st_size, stat.st_mtime_ns))


def _set_record(path, record):
    """Replace the record of a file; None removes it."""
    if not path.parent.is_dir():
        return
    file = path.with_name(_RECORDS)
    records = _read_file(file)
    records.pop(path.name, None)
    if record is not None:
        records[path.name] = record
    files.write_text(file, json.dumps(records))


def _read_file(file):
    """Return {name: record} of a file of records; {} if nothing is known."""
    try:
        stored = json.loads(file.read_bytes())
        return {name: _Record(*values) for name, values in stored.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def _walk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the paths of files; unlike rglob(), skip folders that vanish."""
    for parent, _, file_names in os.walk(folder):
        yield from (pathlib.Path(parent, name) for name in file_names)


# Objects, and errors of their stores explained.


def get_object(url: str, path: pathlib.Path) -> str:
    """Write the content of an object to a file; return its tag.

    Raises:
        FileNotFoundError: there is no such object.
        UserError: it cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic_path(path) as temporary, _explained(url):
        system, name = _open(url)
        for _ in range(_ATTEMPTS):
            try:
                info = system.info(name)
                system.get_file(name, str(temporary))
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    errno.ENOENT, "No object", url
                ) from error
            if (size := temporary.stat().st_size) == info["size"]:
                return _tag(info)
        raise ConnectionError(f"received {size:,} of {info['size']:,} bytes")


def put_object(path: pathlib.Path, url: str) -> str:
    """Write a file to an object, and return its new tag.

    It has its old content until the end.
    """
    with _explained(url):
        system, name = _open(url)
        system.put_file(str(path), name)
        return _tag(system.info(name))


def _tag(info):
    """Return the tag in fsspec's details of an object."""
    return info.get("ETag") or info["etag"]


def _open(url: str) -> tuple[Any, str]:
    """Return fsspec's file system, and the name of the URL in it.

    fsspec reads the URL of the bucket alone: names may have its :: and ?.
    """
    scheme, _, path = url.partition("://")
    bucket, slash, name = path.partition("/")
    extra, module = PACKAGES[scheme]
    with errors.needed(extra, f"{scheme}://"):
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
            f"Cannot access {url}: {type(error).__name__}: {error}. Check the "
            "URL and the endpoint; that the bucket exists; the login, such as "
            "`aws configure` or `gcloud auth application-default login`, and "
            "its rights; and the connection. What is complete is not copied "
            "again."
        ) from error
