"""Pairs and a vocabulary size -> encoded corpus. Knows no Problem.

Folder of a corpus: ``vocab.model``, ``train-00000-of-00003.arrow`` and so on
for each split, and last, when all the rest is there, ``manifest.json``.
"""

import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable
from importlib import metadata

from t2t_repro import errors, files, progress
from t2t_repro.data import corpus
from t2t_repro.text import subwords as subword
from t2t_repro.text.corpora import Pair

MANIFEST = "manifest.json"
VOCABULARY = "vocab.model"
SHARD_PAIRS = 250_000  # about 20 MB of ids, and 400 MB while being written
# Lines that a vocabulary is learned from. SentencePiece holds them in memory:
# about 1 GB for 4 million lines of WMT14's 130 bytes.
SAMPLE_LINES = 4_000_000
_ENCODED_AT_ONCE = 10_000

Splits = dict[str, Callable[[], Iterable[Pair]]]


def generate(
    folder: pathlib.Path,
    splits: Splits,
    vocab_size: int,
    max_length: int,
    facts: dict,
    num_workers: int = 1,
) -> dict:
    """Makes the corpus in `folder` and returns its manifest.

    Args:
        folder: created where it is missing.
        splits: {"train": function that starts reading its pairs, …}. Pairs of
            "train" with an empty or too long side are dropped; the others are
            kept as they are, with their text.
        vocab_size: V, of the vocabulary that is learned from "train".
        max_length: subwords with EOS that a training sentence may have.
        facts: what else the manifest is to say.
        num_workers: threads that encode.

    Raises:
        UserError: no training pair is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    subwords = _learn(folder / VOCABULARY, splits["train"], vocab_size)
    reports = dict.fromkeys(splits)
    # The long one last: what is wrong with the others shows at once.
    for split in sorted(splits, key=lambda name: name == "train"):
        keep = max_length if split == "train" else None
        reports[split] = _Encoder(folder, split, subwords, keep).run(
            splits[split](), num_workers
        )
    manifest = facts | {
        "max_length": max_length,
        "vocabulary": {"size": subwords.size, "sha256": subwords.sha256},
        "splits": reports,
        "versions": {
            name: metadata.version(name)
            for name in ("sentencepiece", "pyarrow")
        },
    }
    files.write_json(folder / MANIFEST, manifest)
    return manifest


def read_manifest(folder: pathlib.Path) -> dict | None:
    """The manifest of a finished corpus, or None."""
    path = folder / MANIFEST
    return files.read_json(path) if path.exists() else None


def _require_manifest(folder):
    manifest = read_manifest(folder)
    if manifest is None:
        raise errors.UserError(
            f"There is no data in {folder} ({MANIFEST} is missing). Run "
            "datagen for this problem, or name the right --data_dir."
        )
    return manifest


def open_corpus(
    folder: pathlib.Path, split: str, reverse: bool = False
) -> corpus.Corpus:
    """Maps a split of a finished corpus.

    Raises:
        UserError: no such data; says how to make it.
    """
    manifest = _require_manifest(folder)
    if split not in manifest["splits"]:
        raise errors.UserError(
            f"There is no split {split!r} in {folder}; "
            f"known: {', '.join(manifest['splits'])}."
        )
    shards = manifest["splits"][split]["shards"]
    return corpus.Corpus([folder / shard["file"] for shard in shards], reverse)


def verify(folder: pathlib.Path):
    """Reads every file of a corpus and compares it with the manifest.

    Raises:
        UserError: names the first file that is missing or differs.
    """
    manifest = _require_manifest(folder)
    shards = [
        shard
        for split in manifest["splits"].values()
        for shard in split["shards"]
    ]
    wanted = {shard["file"]: shard["sha256"] for shard in shards}
    wanted[VOCABULARY] = manifest["vocabulary"]["sha256"]
    for name, digest in progress.bar(wanted.items(), "verify", unit="file"):
        path = folder / name
        found = files.sha256(path) if path.exists() else "no file"
        if found != digest:
            raise errors.UserError(
                f"{path} is damaged: sha256 is {found} instead of {digest}. "
                f"Remove {folder} and run datagen again."
            )


def _learn(path, train_pairs, vocab_size):
    """Learns the vocabulary from both sides of the training pairs."""
    lines = (
        line
        for pair in progress.bar(
            train_pairs(), "read for vocabulary", unit="pair"
        )
        for line in pair
        if line
    )
    sample = subword.sample(lines, SAMPLE_LINES)
    if not sample:
        raise errors.UserError(
            "There is nothing to train on: the training text is empty."
        )
    print(f"Learning {vocab_size:,} subwords from {len(sample):,} lines.")
    subwords = subword.learn(sample, vocab_size)
    files.write_bytes(path, subwords.model)
    return subwords


class _Encoder:
    """Encodes one split, writes its shards and counts."""

    def __init__(self, folder, split, subwords, max_length):
        self._folder = folder
        self._split = split
        self._subwords = subwords
        self._max_length = max_length  # None: keep all pairs, with their text
        self._shards = []
        self._hashes = {side: hashlib.sha256() for side in corpus.SIDES}
        self._counts = {
            "read": 0,
            "kept": 0,
            "dropped": {"empty_side": 0, "longer_than_max_length": 0},
            "tokens": {side: 0 for side in corpus.SIDES},
        }

    def run(self, pairs, num_workers):
        """Encodes `pairs` and returns the split's part of the manifest."""
        with progress.bar(desc=f"encode {self._split}", unit="pair") as bar:
            for shard in _chunks(pairs, SHARD_PAIRS):
                self._write(shard, num_workers, bar)
        if self._max_length is not None and not self._counts["kept"]:
            raise errors.UserError(
                "There is nothing to train on: of "
                f"{self._counts['read']:,} training pairs all were dropped: "
                f"{self._counts['dropped']}."
            )
        return self._counts | {
            "text_sha256": {
                side: digest.hexdigest()
                for side, digest in self._hashes.items()
            },
            "shards": self._finish(),
        }

    def _write(self, pairs, num_workers, bar):
        ids = {side: [] for side in corpus.SIDES}
        texts = {}
        for part in _chunks(pairs, _ENCODED_AT_ONCE):
            lines = dict(
                zip(corpus.SIDES, zip(*part, strict=True), strict=True)
            )
            encoded = {}
            for side in corpus.SIDES:
                self._hashes[side].update(
                    "".join(f"{line}\n" for line in lines[side]).encode()
                )
                encoded[side] = self._subwords.encode(lines[side], num_workers)
                if self._max_length is None:
                    texts.setdefault(side, []).extend(lines[side])
            self._keep(encoded, ids)
            bar.update(len(part))
        path = self._folder / f"{self._split}-{len(self._shards):05d}.arrow"
        corpus.write_shard(path, ids, texts, self._subwords.size)
        self._shards.append((path, len(ids["inputs"])))

    def _keep(self, encoded, ids):
        """Moves pairs that pass the filters from `encoded` to `ids`."""
        counts = self._counts
        for pair in zip(*encoded.values(), strict=True):
            counts["read"] += 1
            if self._max_length is not None:
                if min(map(len, pair)) <= 1:  # EOS alone
                    counts["dropped"]["empty_side"] += 1
                    continue
                if max(map(len, pair)) > self._max_length:
                    counts["dropped"]["longer_than_max_length"] += 1
                    continue
            counts["kept"] += 1
            for side, sentence in zip(corpus.SIDES, pair, strict=True):
                ids[side].append(sentence)
                counts["tokens"][side] += len(sentence)

    def _finish(self):
        """Renames shards, now that their number is known."""
        shards = []
        for path, pairs in self._shards:
            name = f"{path.stem}-of-{len(self._shards):05d}.arrow"
            os.replace(path, path.with_name(name))
            digest = files.sha256(path.with_name(name))
            shards.append({"file": name, "sha256": digest, "pairs": pairs})
        return shards


def _chunks(items, size):
    """Lists of `size` items; the last may be shorter."""
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
