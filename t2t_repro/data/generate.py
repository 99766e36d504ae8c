"""Generation of a corpus from text, and of its vocabularies.

The text is read twice: first to count it, to compute its checksum and to learn
vocabularies from it, then to encode it. Filters read it before; and the lines
of a many-to-many vocabulary are read apart. The result of the first reading is
kept in the vocabularies and ``unfinished.json``, and each shard is a file. A
process that is killed therefore continues where it was, and ends with the same
bytes.
"""

import functools
import importlib.metadata
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from t2t_repro import errors
from t2t_repro.data import corpus, engines, filtering, manifest
from t2t_repro.data.corpus import Encoder
from t2t_repro.data.settings import CorpusSettings
from t2t_repro.io import files, progress
from t2t_repro.text import parallel_files, vocabulary_pair
from t2t_repro.text.pair_filters import Web
from t2t_repro.text.parallel_files import Checksums, Pair
from t2t_repro.text.vocabulary import Vocabulary

# A random sample of lines, drawn in one pass over text of any size.


class LineSample:
    """A uniform sample of at most `size` lines: reservoir sampling.

    This is Vitter's algorithm R. It holds only the sampled lines in memory.
    """

    def __init__(self, size: int, longest: float = math.inf, seed: int = 0):
        """Create an empty sample; ignore lines of more than `longest` bytes."""
        self.lines: list[str] = []
        self.num_seen = 0  # without those that are ignored
        self.num_ignored = 0
        self._size = size
        self.longest = longest
        self._random = np.random.Generator(np.random.Philox(key=seed))

    def add(self, lines: Sequence[str]) -> None:
        """Process the next lines of the text."""
        added = len(lines)
        lines = [  # of at most 4 bytes a character
            line
            for line in lines
            if 4 * len(line) <= self.longest
            or len(line.encode()) <= self.longest
        ]
        self.num_ignored += added - len(lines)
        numbers = self.num_seen + np.arange(len(lines))
        indices = self._random.integers(numbers + 1)
        self.num_seen += len(lines)
        for line, index in zip(lines, indices.tolist(), strict=True):
            if len(self.lines) < self._size:
                self.lines.append(line)
            elif index < self._size:
                self.lines[index] = line


# Vocabularies of a new corpus: given ones, or learned from its text.

# Lines that vocabularies are learned from: with WMT14's 130 bytes each about
# 1 GB in memory, and half a minute of learning.
SAMPLE_LINES = 4_000_000


# By the sides of a pair: 0 inputs, 1 targets.
_Samples: TypeAlias = Mapping[tuple[int, ...], LineSample]


def _side_samples(settings, cls):
    if settings.vocabulary_paths:
        return {}
    sides = [(0,), (1,)] if settings.separate_vocabularies else [(0, 1)]
    lines = SAMPLE_LINES // len(sides)
    return {each: LineSample(lines, cls.max_line_length) for each in sides}


def _build_vocabularies(cls, samples, settings):
    if settings.vocabulary_paths:
        vocabularies = vocabulary_pair.load(
            settings.vocabulary_type, settings.vocabulary_paths
        )
    else:
        learned = [_learn(cls, *each, settings) for each in samples.items()]
        vocabularies = vocabulary_pair.Vocabularies(learned[0], learned[-1])
    given = vocabularies.reversed() if settings.reverse else vocabularies
    require_tags(given.source, settings.source_tags)
    return vocabularies


def require_tags(vocabulary: Vocabulary, tags: Sequence[str]) -> None:
    """Raise a UserError unless each tag of the sources is a piece."""
    if missing := set(tags) - vocabulary.tags:
        raise errors.UserError(
            "The vocabulary must have each tag of the sources as a "
            f"piece; it lacks {', '.join(sorted(missing))}. Learn it with "
            "them, or omit vocabulary=… to learn one here."
        )
    # Normalization may change a tag before its piece is looked for.
    if split := [tag for tag in tags if len(vocabulary.encode([tag])[0]) != 2]:
        raise errors.UserError(
            "The vocabulary normalizes text and splits the tags "
            f"{', '.join(split)} into several subwords. Choose tags of ASCII "
            "letters and signs, such as <BT>, in lower case if it ignores case."
        )


def _learn(cls, sides, sample, settings):
    vocab_size = settings.vocab_size
    if sides == (0,):
        vocab_size = settings.source_vocab_size or vocab_size
    if not sample.lines and not sample.num_ignored:
        raise errors.UserError(
            "There is nothing to train on: the training text is empty."
        )
    if not sample.lines:
        raise errors.UserError(
            f"A vocabulary is learned from lines of at most {sample.longest:,} "
            f"bytes, and all {sample.num_ignored:,} lines are longer. A line "
            "should be a sentence; it ends with LF or CR LF."
        )
    ignored = f"{sample.num_ignored:,} of more than {sample.longest:,} bytes"
    side = "" if len(sides) > 1 else f" of {corpus.SIDES[sides[0]]}"
    print(
        f"Learning {vocab_size:,} subwords{side} from {len(sample.lines):,} of "
        f"{sample.num_seen + sample.num_ignored:,} lines"
        f"{f'; {ignored} are ignored' if sample.num_ignored else ''}."
    )
    learned = cls.learn(
        sample.lines,
        vocab_size,
        settings.split_by_unicode_script,
        **settings.learning,
    )
    if not isinstance(learned, Vocabulary):
        raise errors.UserError(
            f"{cls.__name__}.learn() must return a vocabulary; got {learned!r}."
        )
    return learned


class _TextChecks:
    """Empty sides, copies and web pages in the splits; "train" is read last."""

    def __init__(self, settings: CorpusSettings):
        # Sides that must not be empty.
        self._needed = slice(1 if settings.allow_empty_source else 0, 2)
        self._held_out: dict[str, list[Pair]] = {}
        self._known: tuple[set[str], ...] = set(), set()  # lines of both sides
        self._met: tuple[set[str], ...] = set(), set()  # in training, too
        # Tokenizers may escape characters as web pages do: &apos;
        self._web = None if settings.tokenized else Web(None, ("", ""))
        self._remains: dict[str, dict[str, Any]] = {}

    def watch(self, split: str, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs of a split.

        Raises:
            UserError: pairs that are not for training have an empty side.
                Without them, lines would not be those of other translations.
        """
        held_out: list[Pair] = []
        for pair in pairs:
            text = pair[:2]
            if self._web and not self._web.keep(text):
                entry = {"pairs": 0, "example": filtering.shortened(pair)}
                self._remains.setdefault(split, entry)["pairs"] += 1
            if split != "train":
                held_out.append(text)
            else:
                for side, line in enumerate(text):
                    if line in self._known[side]:
                        self._met[side].add(line)
            yield pair
        if split != "train":
            self._require_text(split, held_out)
            self._held_out[split] = held_out
            for side, known in enumerate(self._known):
                known.update(pair[side] for pair in held_out if pair[side])

    def _require_text(self, split, pairs):
        empty = [
            i
            for i, pair in enumerate(pairs)
            if not all(map(parallel_files.has_text, pair[self._needed]))
        ]
        if empty:
            raise errors.UserError(
                f"{len(empty):,} of {len(pairs):,} pairs of the split {split} "
                f"have an empty side; the first is pair {empty[0] + 1:,}: "
                f"{filtering.shortened(pairs[empty[0]])}. Scores need both "
                "sides: remove these lines of both languages, or choose other "
                "text."
            )

    def entries(self) -> dict[str, dict[str, Any]]:
        found = {name: {"web": entry} for name, entry in self._remains.items()}
        for split, pairs in self._held_out.items():
            counts = {
                name: sum(pair[side] in self._met[side] for pair in pairs)
                for side, name in enumerate(corpus.SIDES)
            }
            if any(counts.values()):
                found.setdefault(split, {})["in_training"] = counts
        return found


SHARD_PAIRS = 250_000  # about 30 MB of WMT14's ids
# {"train": function that starts reading its pairs, …}
Splits: TypeAlias = Mapping[str, Callable[[], Iterable[Pair]]]


def generate(
    folder: pathlib.Path,
    splits: Splits,
    settings: CorpusSettings,
    metadata: Mapping[str, Any],
    engine: engines.Engine = engines.INLINE,
    shard_pairs: int = SHARD_PAIRS,
    vocabulary_lines: Callable[[], Iterable[str]] | None = None,
) -> dict[str, Any]:
    """Generate the missing files of a corpus, and return its manifest.

    The caller has locked the folder and, if it has an unfinished corpus,
    checked that its settings are the same. Pairs of "train" that exceed their
    limits are dropped; other splits keep all pairs and their text. `metadata`
    are further entries of the manifest. A shared vocabulary is learned from
    `vocabulary_lines`; None: from both sides of the training pairs.

    Raises:
        UserError: no training pair is left, a pair of another split has an
            empty side, or the text has changed since the corpus was begun.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files.remove_leftovers(folder)
    contents = manifest.read_unfinished(folder)
    if contents is None:
        contents = _start(
            folder, splits, settings, metadata, engine, vocabulary_lines
        )
    else:
        print(f"Continuing the unfinished data in {folder}.")
    splits = _without_dropped(folder, splits, contents["splits"]["train"])
    vocabularies = manifest.open_vocabularies(folder)
    limits = settings.max_length, settings.max_length_ratio
    training = Encoder(vocabularies, *limits, settings.allow_empty_source)
    for split in _train_last(splits):
        contents["splits"][split] = corpus.encode_split(
            folder,
            split,
            splits[split](),
            contents["splits"][split],
            training if split == "train" else Encoder(vocabularies, None),
            engine,
            shard_pairs,
        )
    _require_pairs(contents["splits"]["train"], settings)
    files.write_json(folder / manifest.UNFINISHED, contents, with_checksum=True)
    os.replace(folder / manifest.UNFINISHED, folder / manifest.MANIFEST)
    return contents


def _require_pairs(train: Mapping[str, Any], settings: CorpusSettings) -> None:
    if not train["kept"]:
        hint = ""
        if train["dropped"]["empty_side"] == train["read"]:
            hint = (
                " All targets are empty."
                if settings.allow_empty_source
                else " Each has an empty side. A language model, whose sources "
                "are empty, needs a problem with allow_empty_source=true."
            )
        raise errors.UserError(
            f"There is nothing to train on: all {train['read']:,} training "
            f"pairs were dropped: {train['dropped']}.{hint}"
        )


def changed_splits(
    folder: pathlib.Path, splits: Splits, contents: Mapping[str, Any]
) -> list[str]:
    """Return the splits whose text is not that of a finished corpus.

    Raises:
        UserError: the text cannot be read.
    """
    stored = contents["splits"]
    made_of = {split: entry["text_sha256"] for split, entry in stored.items()}
    filtered = stored["train"].get("filters", {})
    if "text_sha256" in filtered:
        made_of["train"] = filtered["text_sha256"]
    else:  # a manifest of an earlier version has that of the kept pairs
        splits = _without_dropped(folder, splits, stored["train"])
    return [
        split
        for split in _train_last(splits)
        if _read_text(split, splits[split](), {})["text_sha256"]
        != made_of.get(split)
    ]


def _train_last(splits: Iterable[str]) -> list[str]:
    """Sort the longest split last: errors in the others then show early."""
    return sorted(splits, key=lambda name: name == "train")


def _without_dropped(folder, splits, train):
    """Return the splits without the training pairs that filters dropped."""
    if "filters" not in train:
        return splits
    kept = functools.partial(
        filtering.kept_pairs, folder, splits["train"], train["filters"]
    )
    return {**splits, "train": kept}


def _start(folder, splits, settings, metadata, engine, vocabulary_lines):
    for path in folder.glob("*.arrow"):  # shards of unknown text
        path.unlink()
    filtered = {}
    if filters := settings.pair_filters:
        filtered["filters"] = entry = filtering.filter_text(
            folder, splits["train"], filters, engines.for_python(engine)
        )
        if 0 < entry["read"] == sum(entry["dropped"].values()):
            raise errors.UserError(
                "There is nothing to train on: filters dropped "
                f"{_dropped(entry)}. Give them other values, or omit one."
            )
        splits = _without_dropped(folder, splits, filtered)
    cls = vocabulary_pair.vocabulary_class(settings.vocabulary_type)
    samples = _side_samples(settings, cls)
    of_pairs = {} if vocabulary_lines else samples
    checks = _TextChecks(settings)
    texts = {
        split: _read_text(
            split,
            checks.watch(split, splits[split]()),
            of_pairs if split == "train" else {},
        )
        for split in _train_last(splits)
    }
    texts["train"] = filtered | texts["train"]
    for split, found in checks.entries().items():
        texts[split] |= found
    if vocabulary_lines and samples:
        for chunk in engines.in_chunks(vocabulary_lines()):
            samples[0, 1].add([line for line in chunk if line.strip()])
    try:
        vocabularies = _build_vocabularies(cls, samples, settings)
    except errors.UserError as error:
        if not (filtered and samples):
            raise
        # Too few pairs may be the reason why no vocabulary can be learned.
        raise errors.UserError(
            f"{error} Filters dropped {_dropped(filtered['filters'])}.",
            error.see,
        ) from error
    vocabularies.write(folder)
    contents = {
        **metadata,
        "vocabulary_type": settings.vocabulary_type,
        **manifest.vocabulary_entries(vocabularies),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("sentencepiece", "pyarrow")
        },
        "splits": {split: texts[split] for split in splits},
    }
    files.write_json(folder / manifest.UNFINISHED, contents, with_checksum=True)
    return contents


def _dropped(filtered):
    """Return "3 of 9 training pairs: max_words 3"."""
    counts = filtered["dropped"]
    named = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    total = sum(counts.values())
    return f"{total:,} of {filtered['read']:,} training pairs: {named}"


def _read_text(
    split: str, pairs: Iterable[Pair], samples: _Samples
) -> dict[str, Any]:
    """Count the pairs of a split, compute checksums, and fill samples."""
    checksums, num_pairs = Checksums(), 0
    with progress.bar(desc=f"read {split}", unit="pair") as bar:
        for chunk in engines.in_chunks(pairs):
            checksums.update(chunk)
            num_pairs += len(chunk)
            bar.update(len(chunk))
            for sides, sample in samples.items():
                lines = (pair[side] for pair in chunk for side in sides)
                sample.add([line for line in lines if line.strip()])
    if not num_pairs and split == "validation":
        raise errors.UserError(
            "There is nothing to validate on: the text of the split "
            "'validation' is empty. Put sentences and their translations "
            "there, which are not for training."
        )
    return {"read": num_pairs, "text_sha256": checksums.hexdigests()}
