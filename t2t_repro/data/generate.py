"""Text and a vocabulary spec -> encoded corpus. Knows no Problem.

The text is read twice: first to count and sum it and to learn a vocabulary
from it, then to encode it. What was done is kept: ``vocab.model`` and
``unfinished.json`` after the first reading, and a file for every shard. One
that was killed goes on from there, and ends with the same bytes.
"""

import os
import pathlib
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import NamedTuple

from t2t_repro import errors, files, json_files, progress
from t2t_repro.data import encode, manifest
from t2t_repro.text import subwords as subword
from t2t_repro.text.corpora import Pair

SHARD_PAIRS = 250_000  # about 30 MB of WMT14's ids
# Lines that a vocabulary is learned from: with WMT14's 130 bytes each about
# 1 GB in memory, and half a minute of learning.
SAMPLE_LINES = 4_000_000

Splits = dict[str, Callable[[], Iterable[Pair]]]


class Spec(NamedTuple):
    """What of the text becomes the corpus."""

    vocab_size: int  # V, of the vocabulary that is learned from "train"
    vocabulary: str = ""  # path of one that was made elsewhere: none is learned
    max_length: int = 256  # subwords with EOS that a training side may have
    max_length_ratio: float = 0.0  # of a training pair's sides; 0: any
    split_by_unicode_script: bool = True  # see subwords.learn


def generate(
    folder: pathlib.Path,
    splits: Splits,
    spec: Spec,
    facts: dict,
    num_workers: int = 1,
    shard_pairs: int = SHARD_PAIRS,
) -> dict:
    """Makes the corpus in `folder`, or what is missing of it; its manifest.

    Args:
        folder: created where it is missing. If the corpus was begun there, it
            must be the same one: the caller compares.
        splits: {"train": function that starts reading its pairs, …}. Pairs of
            "train" that Spec excludes are dropped; those of other splits are
            kept as they are, with their text.
        spec: what of the text becomes the corpus.
        facts: what else the manifest is to say.
        num_workers: threads that encode.
        shard_pairs: pairs of raw text that make a shard.

    Raises:
        UserError: no training pair is left, or the text has changed since the
            corpus was begun.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = manifest.read_unfinished(folder)
    if made is None:
        made = _begin(folder, splits, spec, facts)
    else:
        print(f"Continuing what was begun in {folder}.")
    subwords = manifest.open_vocabulary(folder)
    for split in _train_last(splits):
        limits = (spec.max_length, spec.max_length_ratio)
        made["splits"][split] = encode.encode_split(
            folder,
            split,
            splits[split](),
            made["splits"][split],
            encode.Encoder(subwords, *(limits if split == "train" else [None])),
            num_workers,
            shard_pairs,
        )
    _require_pairs(made["splits"]["train"])
    json_files.write(folder / manifest.UNFINISHED, made, sealed=True)
    os.replace(folder / manifest.UNFINISHED, folder / manifest.MANIFEST)
    return made


def _train_last(splits):
    """The long one last: what is wrong with the others shows at once."""
    return sorted(splits, key=lambda name: name == "train")


def _begin(folder, splits, spec, facts):
    """Reads all text, makes the vocabulary, and notes both."""
    for path in folder.glob("*.arrow"):  # of what text, nobody knows
        path.unlink()
    sample = subword.Sample(0 if spec.vocabulary else SAMPLE_LINES)
    texts = {
        split: _survey(
            split, splits[split](), sample if split == "train" else None
        )
        for split in _train_last(splits)
    }
    if not spec.vocabulary and not sample.lines:
        raise errors.UserError(
            "There is nothing to train on: the training text is empty."
        )
    if spec.vocabulary:
        subwords = subword.Subwords.load(spec.vocabulary)
    else:
        print(
            f"Learning {spec.vocab_size:,} subwords from "
            f"{len(sample.lines):,} of {sample.offered:,} lines."
        )
        subwords = subword.learn(
            sample.lines, spec.vocab_size, spec.split_by_unicode_script
        )
    files.write_bytes(folder / manifest.VOCABULARY, subwords.model)
    begun = facts | {
        "vocabulary": {"size": subwords.size, "sha256": subwords.sha256},
        "versions": {
            name: metadata.version(name)
            for name in ("sentencepiece", "pyarrow")
        },
        "splits": {split: texts[split] for split in splits},
    }
    json_files.write(folder / manifest.UNFINISHED, begun, sealed=True)
    return begun


def _survey(split, pairs, sample):
    """Counts and sums the text of a split; lets `sample` draw from it."""
    checksums, read = encode.Checksums(), 0
    with progress.bar(desc=f"read {split}", unit="pair") as bar:
        for some in encode.chunks(pairs, encode.PART):
            checksums.update(some)
            read += len(some)
            bar.update(len(some))
            if sample:
                sample.offer([line for pair in some for line in pair if line])
    return {"read": read, "text_sha256": checksums.hexdigests()}


def _require_pairs(report):
    if not report["kept"]:
        raise errors.UserError(
            f"There is nothing to train on: of {report['read']:,} training "
            f"pairs all were dropped: {report['dropped']}."
        )
