"""Settings of a corpus that is generated."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from t2t_repro.data.filtering import PairFilters


class Spec(NamedTuple):
    """Settings that turn text into a corpus."""

    vocab_size: int  # V of the vocabulary that is learned from "train"
    # Paths of one or two given vocabularies; none is learned then.
    vocabulary_paths: Sequence[pathlib.Path] = ()
    vocabulary_type: str = "bpe"  # name in registry.vocabularies
    separate_vocabularies: bool = False  # whether each side has its own
    source_vocab_size: int = 0  # V of the inputs, if separate; 0: vocab_size
    max_length: int = 256  # maximum subwords of a training side, with EOS
    # Maximum ratio of the lengths of a training pair; 0: no limit.
    max_length_ratio: float = 0.0
    split_by_unicode_script: bool = True  # see Vocabulary.learn
    filters: PairFilters | None = None  # of training pairs
    tags: Sequence[str] = ()  # of sources; each is a piece of the vocabulary
    # Starts reading the lines that the vocabulary is learned from; None: it is
    # learned from both sides of the training pairs.
    vocabulary_lines: Callable[[], Iterable[str]] | None = None
