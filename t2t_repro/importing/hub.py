"""Models of the Hugging Face Hub, by their names.

The package huggingface_hub downloads them: its cache, token, endpoint, offline
mode and progress bars are those of all programs that use it (HF_HUB_CACHE,
HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE). Only complete files get into its cache.
"""

import contextlib
import fnmatch
import functools
import hashlib
import pathlib
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.importing import arrays, huggingface, imported, run_writer
from t2t_repro.io import files, storage
from t2t_repro.runs import run_json

URL = "hf://"
_NAME = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w-][\w./-]*))?")
# Files beside the weights that readers may need; README.md has the licence.
_SMALL = "*.json", "*.spm", "*.model", "merges.txt", "README.md"
_MAX_NAMES = 2_000  # of models that are compared with an unknown name


class Name(NamedTuple):
    """Name of a model on the Hub."""

    model: str  # ORGANIZATION/MODEL
    revision: str  # branch, tag or commit

    def __str__(self) -> str:
        return f"{self.model}@{self.revision}"


def is_name(text: str) -> bool:
    """Return whether text is ORGANIZATION/MODEL or that with @REVISION."""
    return _NAME.fullmatch(text) is not None


def parse(text: str) -> Name:
    """Return the name in text, which may begin with hf://.

    Raises:
        UserError: it is none.
    """
    match = _NAME.fullmatch(text.removeprefix(URL))
    if not match:
        raise errors.UserError(
            f"{text} is not the name of a model. Write {URL}ORGANIZATION/MODEL "
            f"or {URL}ORGANIZATION/MODEL@REVISION."
        )
    return Name(match[1], match[2] or "main")


def run_folder(name: Name) -> pathlib.Path:
    """Return the run of a model, which is imported once into a cache.

    Raises:
        UserError: there is no such model, or it cannot be imported.
    """
    parent = storage.cache_folder() / "hf" / str(name).replace("/", "--")
    run = parent / name.model.rpartition("/")[2]
    if not (run / run_json.RUN).exists():
        with files.locked(parent, wait=True):
            if not (run / run_json.RUN).exists():
                _import(name, run)
    return run


def _import(name, run):
    shutil.rmtree(run, ignore_errors=True)  # what a killed process left
    folder, origin = download(name)
    found = huggingface.read(folder)
    languages = imported.languages_of(found)
    run_writer.write(found, "huggingface", run, languages, origin=origin)


def download(name: Name) -> tuple[pathlib.Path, dict[str, Any]]:
    """Return the folder of the files that a reader needs, and their origin.

    They are downloaded where they are missing; in offline mode they are those
    of an earlier download. run.json has the origin.

    Raises:
        UserError: the model, its revision, the access, the network or the room
            on the disk is missing, or a file is damaged.
    """
    package = _package()
    with _explained(name):
        try:
            info = package.HfApi().model_info(
                name.model, revision=name.revision, files_metadata=True
            )
        except package.errors.OfflineModeIsEnabled:
            config = package.try_to_load_from_cache(
                name.model, huggingface.CONFIG, revision=name.revision
            )
            if not isinstance(config, str):
                raise errors.UserError(
                    f"{name} was not downloaded before, and HF_HUB_OFFLINE is "
                    "set. Unset it to download the model."
                ) from None
            folder = pathlib.Path(config).parent
            _choose(name, [path.name for path in folder.iterdir()])
        else:
            folder = _fetch(name, info)
    return folder, {"name": name.model, "revision": folder.name}


def _package():
    with errors.needed("importer", "A model of the Hugging Face Hub"):
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    return huggingface_hub


def _choose(name: Name, names: Iterable[str]) -> list[str]:
    """Return those of the files that a reader needs, the weights last."""
    known = [one for one in sorted(names) if "/" not in one]
    weights = next((one for one in huggingface.WEIGHTS if one in known), None)
    if not weights or huggingface.CONFIG not in known:
        raise errors.UserError(
            f"{name} cannot be imported: it must have {huggingface.CONFIG} "
            f"and one of {', '.join(huggingface.WEIGHTS)}; its files are "
            f"{', '.join(known[:20])}."
        )
    chosen = [
        one
        for one in known
        if any(fnmatch.fnmatchcase(one, pattern) for pattern in _SMALL)
        and not one.endswith(arrays.INDEX)
    ]
    if weights.endswith(arrays.INDEX):
        stem, ending = weights.removesuffix(arrays.INDEX).split(".")
        chosen += fnmatch.filter(known, f"{stem}-*.{ending}")
    return [*chosen, weights]


def _fetch(name, info):
    """Download the files that the cache lacks, and return their folder."""
    package = _package()
    cache = package.constants.HF_HUB_CACHE
    listed = {file.rfilename: file for file in info.siblings}
    chosen = _choose(name, listed)
    size = sum(
        listed[file].size or 0  # unknown to some mirrors
        for file in chosen
        if not package.try_to_load_from_cache(
            name.model, file, revision=info.sha
        )
    )
    free = shutil.disk_usage(files.nearest_existing(cache)).free
    if size > free:
        raise errors.UserError(
            f"{name} has {files.size_text(size)} to download, and the disk of "
            f"{cache} has {files.size_text(free)} free. Make room, or set "
            "HF_HUB_CACHE to a folder on another disk."
        )
    if size:
        text = f"Downloading {files.size_text(size)} of {name} to {cache}."
        print(text, file=sys.stderr)
    get = functools.partial(package.hf_hub_download, name.model)
    # By the name of the revision, which offline mode then knows. All others are
    # of the commit, even if the branch moves meanwhile.
    get(huggingface.CONFIG, revision=name.revision)
    paths = [pathlib.Path(get(file, revision=info.sha)) for file in chosen]
    for path in paths:
        _verify(name, path, listed[path.name])
    return paths[0].parent


def _verify(name, path, listed):
    """Compare a file with the Hub's checksum, and remove a damaged one.

    That of a large file is its sha256, and that of others git's.
    """
    if listed.lfs:
        found, wanted = files.sha256(path), listed.lfs.sha256
    elif wanted := listed.blob_id:
        content = path.read_bytes()
        blob = b"blob %d\0%b" % (len(content), content)
        found = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
    else:  # a mirror that has no checksums
        return
    if found != wanted:
        for one in (path.resolve(), path):
            one.unlink(missing_ok=True)
        raise errors.UserError(
            f"{path.name} of {name} is damaged: its checksum must be {wanted}; "
            f"got {found}. It was removed: start again to download it again."
        )


@contextlib.contextmanager
def _explained(name: Name) -> Iterator[None]:
    """Explain errors of the Hub and its network; those of the disk pass."""
    cache = pathlib.Path(_package().constants.HF_HUB_CACHE)
    try:
        with files.path_in_errors(cache):
            yield
    except errors.UserError:
        raise
    except Exception as error:
        # An error of HTTP is an OSError without a number, but has a text.
        if getattr(error, "errno", None) and errors.disk_code(error):
            raise
        raise errors.UserError(
            _explain(name, error), see="no-download"
        ) from error


def _explain(name, error):
    package = _package()
    kinds, endpoint = package.errors, package.constants.ENDPOINT
    login = "log in with `hf auth login`, or set HF_TOKEN."
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, kinds.GatedRepoError):
        return (
            f"The authors of {name.model} give access by request. Ask for it "
            f"at {endpoint}/{name.model}, and {login}"
        )
    if isinstance(error, kinds.RevisionNotFoundError):
        return f"{name.model} has no revision {name.revision!r}."
    if isinstance(error, kinds.RepositoryNotFoundError):
        return (
            f"{name.model} is neither a folder here nor a model that you may "
            f"read at {endpoint}.{_near(name)} For a private model, {login}"
        )
    if status in (401, 403):
        remedy = f"Correct the token: {login}"
    elif status == 429:
        remedy = f"Wait a few minutes. For a higher limit, {login}"
    else:
        remedy = (
            "Check the connection, and HF_ENDPOINT if it is set. Files that "
            "are complete are not downloaded again; with HF_HUB_OFFLINE=1, "
            "those of an earlier download are read."
        )
    reason = " ".join(str(error).split())
    return (
        f"Cannot download {name} from {endpoint}: {type(error).__name__}: "
        f"{reason}. {remedy}"
    )


def _near(name):
    """Return a hint of the organization's models, or else of such a name."""
    api = _package().HfApi()
    author, _, model = name.model.partition("/")
    with contextlib.suppress(Exception):  # the first error is the user's
        found = [*api.list_models(author=author, limit=_MAX_NAMES)]
        found = found or [*api.list_models(search=model, limit=_MAX_NAMES)]
        return errors.hint(name.model, [one.id for one in found])
    return ""
