"""Generation of a corpus from text, independent of Problem.

The text is read twice: first to count it, to compute its checksum and to learn
vocabularies from it, then to encode it. Filters read it before; and the lines
of Spec.vocabulary_lines are read apart. The result of the first reading is kept
in the vocabularies and ``unfinished.json``, and each shard is a file. A process
that is killed therefore continues where it was, and ends with the same bytes.
"""

import functools
import importlib.metadata
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from t2t_repro import errors
from t2t_repro.data import (
    corpus_vocabularies,
    encode,
    engines,
    filtering,
    manifest,
)
from t2t_repro.data.corpus_spec import Spec
from t2t_repro.data.corpus_vocabularies import SideSample
from t2t_repro.data.pair_encoder import Encoder
from t2t_repro.io import files, json_files, progress
from t2t_repro.text import vocabulary_pair
from t2t_repro.text.parallel_files import Pair

SHARD_PAIRS = 250_000  # about 30 MB of WMT14's ids
# {"train": function that starts reading its pairs, …}
Splits: TypeAlias = Mapping[str, Callable[[], Iterable[Pair]]]


def generate(
    folder: pathlib.Path,
    splits: Splits,
    spec: Spec,
    metadata: Mapping[str, Any],
    engine: engines.Engine = engines.INLINE,
    shard_pairs: int = SHARD_PAIRS,
) -> dict[str, Any]:
    """Generate the missing files of a corpus.

    Args:
        folder: created where it is missing. The caller has locked it. If it
            has an unfinished corpus, the caller has checked that its settings
            are the same.
        splits: text of each split. Pairs of "train" that exceed the limits of
            `spec` are dropped; other splits keep all pairs and their text.
        spec: settings of the corpus.
        metadata: further entries of the manifest.
        engine: engine that encodes.
        shard_pairs: pairs of raw text of each shard.

    Returns:
        The manifest.

    Raises:
        UserError: no training pair is left, or the text has changed since the
            corpus was begun.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files.remove_leftovers(folder)
    contents = manifest.read_unfinished(folder)
    if contents is None:
        contents = _start(folder, splits, spec, metadata, engine)
    else:
        print(f"Continuing the unfinished data in {folder}.")
    splits = _without_dropped(folder, splits, contents["splits"]["train"])
    vocabularies = manifest.open_vocabularies(folder)
    training = Encoder(vocabularies, spec.max_length, spec.max_length_ratio)
    for split in _train_last(splits):
        contents["splits"][split] = encode.encode_split(
            folder,
            split,
            splits[split](),
            contents["splits"][split],
            training if split == "train" else Encoder(vocabularies, None),
            engine,
            shard_pairs,
        )
    _require_pairs(contents["splits"]["train"])
    json_files.write(folder / manifest.UNFINISHED, contents, with_checksum=True)
    os.replace(folder / manifest.UNFINISHED, folder / manifest.MANIFEST)
    return contents


def changed_splits(
    folder: pathlib.Path, splits: Splits, contents: Mapping[str, Any]
) -> list[str]:
    """Return the splits whose text is not that of a finished corpus.

    Args:
        folder: folder of the corpus.
        splits: text of each split.
        contents: manifest of the corpus.

    Raises:
        UserError: the text cannot be read.
    """
    stored = contents["splits"]
    splits = _without_dropped(folder, splits, stored["train"])
    return [
        split
        for split in _train_last(splits)
        if _read_text(split, splits[split](), [])["text_sha256"]
        != stored.get(split, {}).get("text_sha256")
    ]


def _train_last(splits: Iterable[str]) -> list[str]:
    """Sort the longest split last: errors in the others then show early."""
    return sorted(splits, key=lambda name: name == "train")


def _without_dropped(
    folder: pathlib.Path, splits: Splits, train: Mapping[str, Any]
) -> Splits:
    """Return the splits without the training pairs that filters dropped.

    Args:
        folder: folder of the corpus.
        splits: text of each split.
        train: entry of the training split in the manifest.
    """
    if "filters" not in train:
        return splits
    kept = functools.partial(
        filtering.kept_pairs, folder, splits["train"], train["filters"]
    )
    return {**splits, "train": kept}


def _start(
    folder: pathlib.Path,
    splits: Splits,
    spec: Spec,
    metadata: Mapping[str, Any],
    engine: engines.Engine,
) -> dict[str, Any]:
    """Filter and read text; write vocabularies and the unfinished manifest."""
    for path in folder.glob("*.arrow"):  # shards of unknown text
        path.unlink()
    filtered = {}
    if spec.filters:
        filtered["filters"] = filtering.filter_text(
            folder, splits["train"], spec.filters, engines.for_python(engine)
        )
        _require_kept(filtered["filters"])
        splits = _without_dropped(folder, splits, filtered)
    cls = vocabulary_pair.vocabulary_class(spec.vocabulary_type)
    samples = corpus_vocabularies.side_samples(spec, cls)
    of_pairs = [] if spec.vocabulary_lines else samples
    texts = {
        split: _read_text(
            split, splits[split](), of_pairs if split == "train" else []
        )
        for split in _train_last(splits)
    }
    texts["train"] = filtered | texts["train"]
    try:
        vocabularies = corpus_vocabularies.build(cls, samples, spec)
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
        "vocabulary_type": spec.vocabulary_type,
        **manifest.vocabulary_entries(vocabularies),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("sentencepiece", "pyarrow")
        },
        "splits": {split: texts[split] for split in splits},
    }
    json_files.write(folder / manifest.UNFINISHED, contents, with_checksum=True)
    return contents


def _require_kept(filtered: Mapping[str, Any]) -> None:
    if 0 < filtered["read"] == sum(filtered["dropped"].values()):
        raise errors.UserError(
            "There is nothing to train on: filters dropped "
            f"{_dropped(filtered)}. Give them other values, or omit one."
        )


def _dropped(filtered: Mapping[str, Any]) -> str:
    """Return "3 of 9 training pairs: max_words 3"."""
    counts = filtered["dropped"]
    named = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    total = sum(counts.values())
    return f"{total:,} of {filtered['read']:,} training pairs: {named}"


def _read_text(
    split: str, pairs: Iterable[Pair], samples: Iterable[SideSample]
) -> dict[str, Any]:
    """Count the pairs of a split, compute checksums, and fill samples.

    Raises:
        UserError: the validation split, which every training needs, is empty.
    """
    checksums, num_pairs = encode.Checksums(), 0
    with progress.bar(desc=f"read {split}", unit="pair") as bar:
        for chunk in engines.in_chunks(pairs):
            checksums.update(chunk)
            num_pairs += len(chunk)
            bar.update(len(chunk))
            for side_sample in samples:
                side_sample.add(chunk)
    if not num_pairs and split == "validation":
        raise errors.UserError(
            "There is nothing to validate on: the text of the split "
            "'validation' is empty. Put sentences and their translations "
            "there, which are not for training."
        )
    return {"read": num_pairs, "text_sha256": checksums.hexdigests()}


def _require_pairs(train: Mapping[str, Any]) -> None:
    if not train["kept"]:
        raise errors.UserError(
            f"There is nothing to train on: all {train['read']:,} training "
            f"pairs were dropped: {train['dropped']}."
        )
