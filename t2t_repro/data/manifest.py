"""The manifest of a finished corpus, and the functions that open a corpus.

The folder of a corpus has ``vocab.model``, or a vocabulary for each side
(vocabulary_pair.py), ``train-00000-of-00003.arrow`` and so on for each split,
and ``manifest.json``, which is written last.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_repro import errors
from t2t_repro.data import corpus, filtering
from t2t_repro.io import files, progress
from t2t_repro.text import vocabulary_pair
from t2t_repro.text.vocabulary_pair import Vocabularies

MANIFEST = "manifest.json"
UNFINISHED = "unfinished.json"  # the manifest until the shards are complete
_SIDES = {side: str for side in corpus.SIDES}
_SPLIT = {"read": int, "text_sha256": _SIDES}
_SPLITS: Any = ("train", str)  # there may be others
_UNFINISHED_SHAPE: dict[str, Any] = {"splits": dict.fromkeys(_SPLITS, _SPLIT)}
_SHARED = {"vocabulary": {"size": int, "sha256": str}}
_SEPARATE = {"vocabularies": {side: _SHARED["vocabulary"] for side in _SIDES}}
_COUNTS = {
    "kept": int,
    "dropped": {str: int},
    "tokens": dict.fromkeys(corpus.SIDES, int),
    "shards": [{"file": str, "sha256": str, "pairs": int}],
}
_SHAPE = {"splits": dict.fromkeys(_SPLITS, _SPLIT | _COUNTS)}


def read(folder: pathlib.Path) -> dict[str, Any] | None:
    """Read the manifest of a finished corpus; None: there is none."""
    return _read(folder / MANIFEST, _SHAPE)


def sha256(folder: pathlib.Path) -> str | None:
    """Return the sha256 of the manifest; None: there is no manifest."""
    path = folder / MANIFEST
    return files.sha256(path) if path.exists() else None


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """Return {"train_sha256": …} of the text and the ids of each split.

    Paths, sizes of files and versions of packages, which the manifest has too,
    do not count. A folder without a manifest has {}.
    """
    splits = (read(folder) or {"splits": {}})["splits"]
    return {
        f"{split}_sha256": files.json_checksum(
            [entry["text_sha256"], [s["sha256"] for s in entry["shards"]]]
        )
        for split, entry in splits.items()
    }


def read_unfinished(folder: pathlib.Path) -> dict[str, Any] | None:
    """Read the manifest of an unfinished corpus; None: there is none."""
    return _read(folder / UNFINISHED, _UNFINISHED_SHAPE)


def _read(path, shape):
    """Read a manifest and check its shape; None: it is missing.

    Manifests without a vocabulary type are older than the other types: "bpe".
    """
    if not path.exists():
        return None
    contents = files.read_json(path, dict)
    contents.setdefault("vocabulary_type", "bpe")
    separate = "vocabularies" in contents
    shape = shape | {
        "vocabulary_type": str,
        **(_SEPARATE if separate else _SHARED),
    }
    if "directions" in contents:
        shape["directions"] = {str: {str: int}}
    files.require_json_shape(path, contents, shape)
    return contents


def vocabulary_entries(vocabularies: Vocabularies) -> dict[str, Any]:
    """Return the entries of a manifest that describe its vocabularies."""
    entries = [
        {"size": vocabulary.size, "sha256": vocabulary.sha256}
        for vocabulary in vocabularies
    ]
    if vocabularies.is_shared:
        return {"vocabulary": entries[0]}
    return {"vocabularies": dict(zip(corpus.SIDES, entries, strict=True))}


def vocabulary_files(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return {file name: {"size": V, "sha256": …}} from a manifest."""
    if "vocabularies" not in manifest:
        return {vocabulary_pair.SHARED: manifest["vocabulary"]}
    return {
        name: manifest["vocabularies"][side]
        for side, name in vocabulary_pair.SEPARATE.items()
    }


def require(folder: pathlib.Path) -> dict[str, Any]:
    """Read the manifest of a finished corpus.

    Raises:
        UserError: there is none.
    """
    manifest = read(folder)
    if manifest is None:
        raise errors.UserError(
            f"There is no data in {folder} ({MANIFEST} is missing). Run "
            "datagen for this problem, or name the right --data_dir."
        )
    return manifest


def open_corpus(
    folder: pathlib.Path, split: str, reverse: bool = False
) -> corpus.Corpus:
    """Map a split of a finished corpus into memory and check its checksums.

    A flipped bit would silently be another word. The check takes about a second
    for a gigabyte, which is then in memory for the first batches.

    Raises:
        UserError: there is no such data, or it is damaged; the error says how
            to generate it.
    """
    manifest = require(folder)
    if split not in manifest["splits"]:
        raise errors.UserError(
            f"There is no split {split!r} in {folder}; "
            f"known: {', '.join(manifest['splits'])}."
        )
    shards = manifest["splits"][split]["shards"]
    paths = [files.inside(folder, shard["file"]) for shard in shards]
    for path, shard in zip(paths, shards, strict=True):
        _check_sha256(path, shard["sha256"])
    return corpus.Corpus(paths, reverse)


def directions(folder: pathlib.Path, split: str) -> dict[str, int]:
    """Return {"en-de": pairs} of the directions of a split, in their order.

    A corpus of one direction has {}.
    """
    return require(folder).get("directions", {}).get(split, {})


def open_vocabularies(
    folder: pathlib.Path, reverse: bool = False
) -> Vocabularies:
    """Read the vocabularies of a corpus, or of its reverse, finished or not.

    Raises:
        UserError: a file is missing, or is not the one of the manifest.
    """
    manifest = read_unfinished(folder) or require(folder)
    expected = vocabulary_files(manifest)
    for name, entry in expected.items():
        _check_sha256(folder / name, entry["sha256"])
    vocabularies = vocabulary_pair.load(
        manifest["vocabulary_type"], [folder / name for name in expected]
    )
    return vocabularies.reversed() if reverse else vocabularies


def verify(folder: pathlib.Path) -> None:
    """Read every file of a corpus and compare it with the manifest.

    Raises:
        UserError: a file is missing or differs; the error names the first one.
    """
    manifest = require(folder)
    expected = {
        shard["file"]: shard["sha256"]
        for split in manifest["splits"].values()
        for shard in split["shards"]
    }
    for name, entry in vocabulary_files(manifest).items():
        expected[name] = entry["sha256"]
    if filters := manifest["splits"]["train"].get("filters"):
        expected[filtering.FILE] = filters["sha256"]
    for name, sha256_of_file in progress.bar(
        expected.items(), "verify", unit="file"
    ):
        _check_sha256(files.inside(folder, name), sha256_of_file)


def _check_sha256(path: pathlib.Path, expected: str) -> None:
    actual = files.sha256(path) if path.is_file() else "no file"
    if actual != expected:
        raise errors.UserError(
            f"{path} is damaged: sha256 is {actual} instead of {expected}. "
            f"Remove {path.parent} and run datagen again."
        )
