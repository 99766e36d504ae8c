"""Origin of data, as its manifest describes it, compared with a problem."""

import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from t2t_repro import errors, fields, user_definitions
from t2t_repro.data import manifest
from t2t_repro.io import files, storage
from t2t_repro.problem import Path, Problem
from t2t_repro.text import vocabulary_pair


def describe(
    problem: Problem,
    raw_dir: Path | None,
    text: tuple[Path | None, pathlib.Path],
) -> dict[str, Any]:
    """Return the origin of data that is generated, for its manifest.

    Args:
        problem: problem of the data.
        raw_dir: folder of the raw files as the user wrote it, or None.
        text: its copy on this machine, and the folder of downloads.
    """
    directions = {}
    if problem.target_languages:
        directions["directions"] = {
            split: problem.count_directions(split, *text)
            for split in problem.splits
        }
    return {
        "problem": problem.registered_name,
        "arguments": problem.arguments,
        "languages": problem.stored_languages,
        "sources": {
            split: problem.sources(split)
            if raw_dir is None
            else [{"raw_dir": _absolute(raw_dir)}]
            for split in problem.splits
        },
        **directions,
        "raw_bytes": _raw_bytes(problem, raw_dir),
        "definition": user_definitions.checksums_of_class(type(problem)),
    }


def check_settings(
    contents: Mapping[str, Any], problem: Problem, folder: pathlib.Path
) -> None:
    """Compare the settings of data with those of a problem.

    Arguments that were added after the manifest was written have their
    defaults.

    Args:
        contents: manifest of the data.
        problem: the problem.
        folder: folder of the data.

    Raises:
        UserError: they differ.
    """
    expected = {"problem": problem.registered_name} | problem.arguments
    expected.pop("decode_hparams", None)  # the data is the same with any
    arguments = contents.get("arguments")
    stored = {"problem": contents.get("problem")}
    if isinstance(arguments, dict):
        stored |= fields.with_defaults(type(problem), arguments)
    if expected["vocabulary"] and stored.get("vocabulary"):
        # The data has a copy: the file may have been moved or removed.
        paths = stored.pop("vocabulary"), expected.pop("vocabulary")
        exist = all(path.exists() for path in problem.vocabulary_paths)
        if exist or paths[0] != paths[1]:
            given = vocabulary_pair.load(
                problem.vocabulary_type, problem.vocabulary_paths
            )
            for name, vocabulary in given.files.items():
                expected[f"{name} sha256"] = vocabulary.sha256
            for name, entry in manifest.vocabulary_files(contents).items():
                stored[f"{name} sha256"] = entry["sha256"]
    if differences := list(fields.differences(stored, expected)):
        raise errors.UserError(
            f"The data in {folder} was made with other settings: "
            f"{'; '.join(differences)}. Remove the folder, or name another "
            "--data_dir."
        )


def note_changes(
    contents: Mapping[str, Any], problem: Problem, folder: pathlib.Path
) -> None:
    """Print what has changed since the data was made: raw text, definitions.

    The arguments are those of check_settings().
    """
    _note_changed_definition(contents, problem, folder)
    _note_changed_text(contents, problem, folder)


def _note_changed_definition(
    contents: Mapping[str, Any], problem: Problem, folder: pathlib.Path
) -> None:
    """Print which modules of the problem's class have changed since."""
    before = contents.get("definition")
    now = user_definitions.checksums_of_class(type(problem))
    if before and now and (names := user_definitions.changes(before, now)):
        print(
            f"Note: {', '.join(names)} of --usr_dir changed after the data in "
            f"{storage.name_of(folder)} was made. If {problem.registered_name} "
            "yields other text now, remove the folder.",
            file=sys.stderr,
        )


def _note_changed_text(
    contents: Mapping[str, Any], problem: Problem, folder: pathlib.Path
) -> None:
    """Print which raw files have another size than those of the data."""
    before, raw_dir = contents.get("raw_bytes"), _raw_dir(contents)
    if not before or not pathlib.Path(raw_dir).is_absolute():
        return  # the path is relative in manifests of earlier versions
    now = _raw_bytes(problem, raw_dir)  # those that were removed are missing
    if names := [name for name in now if now[name] != before.get(name)]:
        print(
            f"Note: {', '.join(names[:5])}{' …' if names[5:] else ''} in "
            f"{raw_dir} changed after the data in {storage.name_of(folder)} "
            "was made. To use the present text, remove that folder.",
            file=sys.stderr,
        )


def is_unchanged(
    contents: Mapping[str, Any],
    problem: Problem,
    folder: pathlib.Path,
    raw_dir: Path,
) -> bool:
    """Return whether a folder of raw files is as it was when data was made.

    The files are not read. Some may be gone, and a URL counts as unchanged.

    Args:
        contents: manifest of the data.
        problem: the problem.
        folder: folder of the data.
        raw_dir: folder of the raw files as the user wrote it.
    """
    if _absolute(raw_dir) != _raw_dir(contents):
        return False
    if files.is_url(raw_dir):
        return True
    before = contents.get("raw_bytes", {})
    now = _raw_bytes(problem, raw_dir)
    made = _modified(folder / manifest.MANIFEST)
    return bool(before) and all(
        now[name] == before.get(name)
        and _modified(files.expand_path(raw_dir) / name) < made
        for name in now
    )


def _modified(path):
    return path.stat().st_mtime_ns


def _raw_dir(contents):
    """Return the folder of the raw files of data; "": there was none."""
    sources = contents["sources"].get("train") or [{}]
    return sources[0].get("raw_dir", "")


def _absolute(raw_dir):
    return storage.name_of(storage.local_path(raw_dir))


def _raw_bytes(problem: Problem, raw_dir: Path | None) -> dict[str, int]:
    """Return {name: bytes} of raw files; {} if they are elsewhere."""
    if raw_dir is None or files.is_url(raw_dir):
        return {}
    folder = files.expand_path(raw_dir)
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in problem.raw_paths(folder)
    }
