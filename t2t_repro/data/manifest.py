"""Manifest: what a finished corpus says of itself, and opening it.

Folder of a corpus: ``vocab.model``, or one for each side (vocabulary_pair.py),
``train-00000-of-00003.arrow`` and so on for each split, and last, when all the
rest is there, ``manifest.json``.
"""

import pathlib

from t2t_repro import errors, files, json_files, progress
from t2t_repro.data import corpus, vocabulary_pair
from t2t_repro.data.vocabulary_pair import Vocabularies

MANIFEST = "manifest.json"
UNFINISHED = "unfinished.json"  # the manifest, before the shards are there
_SIDES = {side: str for side in corpus.SIDES}
_SPLIT = {"read": int, "text_sha256": _SIDES}
_UNFINISHED_SHAPE = {"splits": {str: _SPLIT}}
_VOCABULARY = {"size": int, "sha256": str}
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
    return _read(path, _SHAPE) if path.exists() else None


def sha256(folder: pathlib.Path) -> str | None:
    """Of the manifest of a finished corpus; None: there is none."""
    path = folder / MANIFEST
    return files.sha256(path) if path.exists() else None


def read_unfinished(folder: pathlib.Path) -> dict | None:
    """What is known of a corpus that was begun, or None."""
    path = folder / UNFINISHED
    return _read(path, _UNFINISHED_SHAPE) if path.exists() else None


def _read(path, shape):
    """Read a manifest, of vocabularies that are shared or separate.

    Before vocabularies had types, they were all of SentencePiece's BPE.
    """
    stored = json_files.read(path, dict)
    if "vocabularies" in stored:
        sides = dict.fromkeys(corpus.SIDES, _VOCABULARY)
        shape = shape | {"vocabularies": sides}
    else:
        shape = shape | {"vocabulary": _VOCABULARY}
    if "vocabulary_type" in stored:
        shape = shape | {"vocabulary_type": str}
    made = json_files.read(path, shape)
    made.setdefault("vocabulary_type", "bpe")  # last: the rest is as it was
    return made


def vocabulary_facts(made: Vocabularies) -> dict:
    """Return what a manifest says of its vocabularies."""
    facts = [{"size": one.size, "sha256": one.sha256} for one in made]
    if made.is_shared:
        return {"vocabulary": facts[0]}
    return {"vocabularies": dict(zip(corpus.SIDES, facts, strict=True))}


def vocabulary_files(manifest: dict) -> dict[str, dict]:
    """Return {file: {"size": V, "sha256": …}} of a manifest."""
    if "vocabularies" not in manifest:
        return {vocabulary_pair.SHARED: manifest["vocabulary"]}
    return {
        name: manifest["vocabularies"][side]
        for side, name in vocabulary_pair.SEPARATE.items()
    }


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


def open_vocabularies(
    folder: pathlib.Path, reverse: bool = False
) -> Vocabularies:
    """Read the vocabularies of a corpus, finished or begun.

    Args:
        folder: of the corpus.
        reverse: give that of the targets as the source's, and the other way
            round.

    Raises:
        UserError: one is missing, or not the one that the corpus was made with.
    """
    made = read_unfinished(folder) or _require(folder)
    for name, facts in vocabulary_files(made).items():
        _compare(folder / name, facts["sha256"])
    found = vocabulary_pair.load(
        made["vocabulary_type"],
        vocabulary_pair.paths(folder, separate="vocabularies" in made),
    )
    return found.reversed() if reverse else found


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
    for name, facts in vocabulary_files(manifest).items():
        wanted[name] = facts["sha256"]
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
