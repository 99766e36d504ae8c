"""Manifest: what a finished corpus says of itself, and opening it.

Folder of a corpus: ``vocab.model``, ``train-00000-of-00003.arrow`` and so on
for each split, and last, when all the rest is there, ``manifest.json``.
"""

import pathlib

from t2t_repro import errors, files, json_files, progress
from t2t_repro.data import corpus
from t2t_repro.text.subwords import Subwords

MANIFEST = "manifest.json"
UNFINISHED = "unfinished.json"  # the manifest, before the shards are there
VOCABULARY = "vocab.model"
_SIDES = {side: str for side in corpus.SIDES}
_SPLIT = {"read": int, "text_sha256": _SIDES}
_UNFINISHED_SHAPE = {
    "vocabulary": {"size": int, "sha256": str},
    "splits": {str: _SPLIT},
}
_COUNTS = {
    "kept": int,
    "dropped": {str: int},
    "tokens": dict.fromkeys(corpus.SIDES, int),
    "shards": [{"file": str, "sha256": str, "pairs": int}],
}
_SHAPE = _UNFINISHED_SHAPE | {"splits": {str: _SPLIT | _COUNTS}}


def read(folder: pathlib.Path) -> dict | None:
    """The manifest of a finished corpus, or None."""
    path = folder / MANIFEST
    return json_files.read(path, _SHAPE) if path.exists() else None


def sha256(folder: pathlib.Path) -> str | None:
    """Of the manifest of a finished corpus; None: there is none."""
    path = folder / MANIFEST
    return files.sha256(path) if path.exists() else None


def read_unfinished(folder: pathlib.Path) -> dict | None:
    """What is known of a corpus that was begun, or None."""
    path = folder / UNFINISHED
    return json_files.read(path, _UNFINISHED_SHAPE) if path.exists() else None


def _require(folder):
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
    """Maps a split of a finished corpus, and compares all of it.

    A flipped bit would be another word, and nobody would see it. A gigabyte
    takes a second or so, and is then in memory for the first batches.

    Raises:
        UserError: no such data, or damaged data; says how to make it.
    """
    manifest = _require(folder)
    if split not in manifest["splits"]:
        raise errors.UserError(
            f"There is no split {split!r} in {folder}; "
            f"known: {', '.join(manifest['splits'])}."
        )
    shards = manifest["splits"][split]["shards"]
    for shard in shards:
        _compare(folder / shard["file"], shard["sha256"])
    return corpus.Corpus([folder / shard["file"] for shard in shards], reverse)


def open_vocabulary(folder: pathlib.Path) -> Subwords:
    """Reads the vocabulary of a corpus, finished or begun.

    Raises:
        UserError: it is missing, or not the one that the corpus was made with.
    """
    made = read_unfinished(folder) or _require(folder)
    path = folder / VOCABULARY
    _compare(path, made["vocabulary"]["sha256"])
    return Subwords.load(path)


def verify(folder: pathlib.Path):
    """Reads every file of a corpus and compares it with the manifest.

    Raises:
        UserError: names the first file that is missing or differs.
    """
    manifest = _require(folder)
    shards = [
        shard
        for split in manifest["splits"].values()
        for shard in split["shards"]
    ]
    wanted = {shard["file"]: shard["sha256"] for shard in shards}
    wanted[VOCABULARY] = manifest["vocabulary"]["sha256"]
    for name, digest in progress.bar(wanted.items(), "verify", unit="file"):
        _compare(folder / name, digest)


def _compare(path, digest):
    """A file must have the sha256 that the manifest says."""
    found = files.sha256(path) if path.is_file() else "no file"
    if found != digest:
        raise errors.UserError(
            f"{path} is damaged: sha256 is {found} instead of {digest}. "
            f"Remove {path.parent} and run datagen again."
        )
