"""Files of the checkpoints of runs, found without TensorFlow."""

import pathlib
import re
from collections.abc import Iterable

from t2t_repro import errors
from t2t_repro.io import files, storage

# Folders in the folder of a run.
CHECKPOINTS = "checkpoints"
AVERAGED = "averaged"
MAX_KEPT = 20  # last checkpoints that the trainer keeps by default


def run_of(path: pathlib.Path) -> pathlib.Path:
    """Return the folder of the run of a checkpoint."""
    return path.absolute().parent.parent


def names(paths: Iterable[pathlib.Path], run: pathlib.Path) -> list[str]:
    """Return the names of checkpoints in the results of a run.

    They are "averaged/ckpt-600", and "RUN/averaged/ckpt-600" of another run.
    """
    own = run.resolve()

    def name(path):
        length = 2 if run_of(path).resolve() == own else 3
        return "/".join(path.absolute().parts[-length:])

    return list(map(name, paths))


def checksums(paths: list[pathlib.Path]) -> list[str]:
    """Return the sha256 of each index, which has a checksum of every tensor."""
    return [files.sha256(pathlib.Path(f"{path}.index")) for path in paths]


def open_folder(name: pathlib.Path | str) -> pathlib.Path:
    """Return the folder of a run, which is copied if it has a URL.

    Data of checkpoints is copied by fetch_data(), and exports are not.
    """
    return storage.download(storage.local_path(name), _without_large_files)


def _without_large_files(names):
    large = re.compile(r"(.*/)?ckpt-\d+\.data-|export/|ctranslate2/")
    return [name for name in names if not large.match(name)]


def fetch_data(path: pathlib.Path) -> None:
    """Copy the data of a checkpoint at a URL, if it is missing here."""
    storage.fetch(path.with_name(f"{path.name}.data-00000-of-00001"))


def require(name: pathlib.Path | str) -> pathlib.Path:
    """Return the path of a checkpoint that exists: …/ckpt-1500.

    Raises:
        UserError: there is none.
    """
    path = storage.local_path(name)
    if files.is_url(name):
        open_folder(path.parent.parent)  # of its run
    if not pathlib.Path(f"{path}.index").is_file():
        # A user may name the run, or the folder of its checkpoints.
        folders = path / CHECKPOINTS, path, path.parent
        found = next(filter(None, map(list_checkpoints, folders)), [])
        example = storage.name_of(found[-1]) if found else "…/ckpt-1500"
        raise errors.UserError(
            f"There is no checkpoint {name}. Name one as {example}, without an "
            "ending. If you named none, the run's training has removed it: run "
            "the command again."
        )
    return path


def step_of(path: pathlib.Path | str) -> int:
    """Return the step in a checkpoint's path: 1500 for "…/ckpt-1500"."""
    match = re.fullmatch(r".*-(\d+)", pathlib.Path(path).name)
    if not match:
        raise errors.UserError(
            f"A checkpoint's path ends in -STEP, as ckpt-1500; got {path}."
        )
    return int(match[1])


def saved(run: pathlib.Path) -> list[pathlib.Path]:
    """Return the checkpoints of a run that its trainer keeps, oldest first."""
    return list_checkpoints(run / CHECKPOINTS)


def best_marker(path: pathlib.Path) -> pathlib.Path:
    """Return the file that marks a checkpoint as one of the best alone.

    It is not one of the last ones, however many are kept later.
    """
    return path.with_name(f"{path.name}.best")


def without_best(paths: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """Return the checkpoints but those that are kept as the best alone."""
    return [path for path in paths if not best_marker(path).exists()]


def list_checkpoints(folder: pathlib.Path | str) -> list[pathlib.Path]:
    """Return paths of the complete checkpoints in a folder, oldest first."""
    found = list_files(folder)
    indices = (path for path in found if path.suffix == ".index")
    return sorted((index.with_suffix("") for index in indices), key=step_of)


def list_files(folder: pathlib.Path | str) -> list[pathlib.Path]:
    """Return the files of a folder whose names are ckpt-STEP.…

    They are in the order of removal: a checkpoint exists while its index does.
    """
    found = (
        path
        for path in pathlib.Path(folder).glob("ckpt-*.*")
        if re.match(r"ckpt-\d+\.", path.name)
    )
    return sorted(found, key=lambda file: file.suffix != ".index")
