"""Text and a vocabulary spec -> encoded corpus. Knows no Problem.

The text is read twice: first to count and sum it and to learn vocabularies
from it, then to encode it. What was done is kept: vocabularies and
``unfinished.json`` after the first reading, and a file for every shard. One
that was killed goes on from there, and ends with the same bytes.
"""

import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import NamedTuple

from t2t_repro import errors, json_files, progress
from t2t_repro.data import corpus, encode, manifest, vocabulary_pair
from t2t_repro.text.line_sample import LineSample
from t2t_repro.text.parallel_files import Pair
from t2t_repro.text.vocabulary import Vocabulary

SHARD_PAIRS = 250_000  # about 30 MB of WMT14's ids
# Lines that vocabularies are learned from: with WMT14's 130 bytes each about
# 1 GB in memory, and half a minute of learning.
SAMPLE_LINES = 4_000_000

Splits = dict[str, Callable[[], Iterable[Pair]]]


class Spec(NamedTuple):
    """What of the text becomes the corpus."""

    vocab_size: int  # V, of the vocabulary that is learned from "train"
    # Paths of vocabularies made elsewhere, one or two: none is learned then.
    vocabulary_paths: Sequence[pathlib.Path] = ()
    vocabulary_type: str = "bpe"  # name in registry.vocabularies
    separate_vocabularies: bool = False  # each side is learned from by itself
    source_vocab_size: int = 0  # V of the inputs, if separate; 0: vocab_size
    max_length: int = 256  # subwords with EOS that a training side may have
    max_length_ratio: float = 0.0  # of a training pair's sides; 0: any
    split_by_unicode_script: bool = True  # see Vocabulary.learn


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
    vocabularies = manifest.open_vocabularies(folder)
    for split in _train_last(splits):
        limits = (spec.max_length, spec.max_length_ratio)
        made["splits"][split] = encode.encode_split(
            folder,
            split,
            splits[split](),
            made["splits"][split],
            encode.Encoder(
                vocabularies, *(limits if split == "train" else [None])
            ),
            num_workers,
            shard_pairs,
        )
    _require_pairs(made["splits"]["train"])
    json_files.write(folder / manifest.UNFINISHED, made, with_checksum=True)
    os.replace(folder / manifest.UNFINISHED, folder / manifest.MANIFEST)
    return made


def _train_last(splits):
    """The long one last: what is wrong with the others shows at once."""
    return sorted(splits, key=lambda name: name == "train")


class _SideSample(NamedTuple):
    """Sample of one side or of both, which a vocabulary is learned from."""

    sides: tuple[int, ...]  # of a pair: 0 the inputs, 1 the targets
    vocab_size: int
    sample: LineSample

    def add(self, pairs):
        """Let the sample draw from the lines of some pairs."""
        self.sample.add(
            [pair[side] for pair in pairs for side in self.sides if pair[side]]
        )


def _side_samples(spec, cls) -> list[_SideSample]:
    """Return a sample for each vocabulary to learn, before any text."""
    if spec.vocabulary_paths:
        return []
    if not spec.separate_vocabularies:
        sizes = {(0, 1): spec.vocab_size}
    else:
        source = spec.source_vocab_size or spec.vocab_size
        sizes = {(0,): source, (1,): spec.vocab_size}
    lines = SAMPLE_LINES // len(sizes)
    return [
        _SideSample(sides, size, LineSample(lines, cls.max_line_length))
        for sides, size in sizes.items()
    ]


def _begin(folder, splits, spec, facts):
    """Reads all text, makes the vocabularies, and notes both."""
    for path in folder.glob("*.arrow"):  # of what text, nobody knows
        path.unlink()
    cls = vocabulary_pair.vocabulary_class(spec.vocabulary_type)
    samples = _side_samples(spec, cls)
    texts = {
        split: _survey(
            split, splits[split](), samples if split == "train" else []
        )
        for split in _train_last(splits)
    }
    if spec.vocabulary_paths:
        made = vocabulary_pair.load(spec.vocabulary_type, spec.vocabulary_paths)
    else:
        learned = [_learn(cls, side_sample, spec) for side_sample in samples]
        made = vocabulary_pair.Vocabularies(learned[0], learned[-1])
    made.write(folder)
    begun = (
        facts
        | {"vocabulary_type": spec.vocabulary_type}
        | manifest.vocabulary_facts(made)
        | {
            "versions": {
                name: metadata.version(name)
                for name in ("sentencepiece", "pyarrow")
            },
            "splits": {split: texts[split] for split in splits},
        }
    )
    json_files.write(folder / manifest.UNFINISHED, begun, with_checksum=True)
    return begun


def _learn(cls, side_sample, spec) -> Vocabulary:
    sample = side_sample.sample
    if not sample.lines:
        raise errors.UserError(
            "There is nothing to train on: the training text is empty."
        )
    of = (
        f" of {corpus.SIDES[side_sample.sides[0]]}"
        if len(side_sample.sides) == 1
        else ""
    )
    print(
        f"Learning {side_sample.vocab_size:,} subwords{of} from "
        f"{len(sample.lines):,} of {sample.num_seen:,} lines."
    )
    return cls.learn(
        sample.lines, side_sample.vocab_size, spec.split_by_unicode_script
    )


def _survey(split, pairs, samples):
    """Counts and sums the text of a split; lets samples draw from it."""
    checksums, read = encode.Checksums(), 0
    with progress.bar(desc=f"read {split}", unit="pair") as bar:
        for some in encode.chunks(pairs, encode.CHUNK_PAIRS):
            checksums.update(some)
            read += len(some)
            bar.update(len(some))
            for side_sample in samples:
                side_sample.add(some)
    return {"read": read, "text_sha256": checksums.hexdigests()}


def _require_pairs(report):
    if not report["kept"]:
        raise errors.UserError(
            f"There is nothing to train on: of {report['read']:,} training "
            f"pairs all were dropped: {report['dropped']}."
        )
