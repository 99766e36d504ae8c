"""Vocabularies of a new corpus: given ones, or learned from its text."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.data import corpus, engines
from t2t_repro.data.corpus_spec import Spec
from t2t_repro.data.line_sample import LineSample
from t2t_repro.text import vocabulary_pair
from t2t_repro.text.parallel_files import Pair
from t2t_repro.text.vocabulary import Vocabulary

# Lines that vocabularies are learned from: with WMT14's 130 bytes each about
# 1 GB in memory, and half a minute of learning.
SAMPLE_LINES = 4_000_000


class SideSample(NamedTuple):
    """The lines that a vocabulary of one side or of both is learned from."""

    sides: tuple[int, ...]  # sides of a pair: 0 inputs, 1 targets
    vocab_size: int
    sample: LineSample

    def add(self, pairs: Iterable[Pair]) -> None:
        """Add the non-empty lines of some pairs."""
        self.sample.add(
            [pair[side] for pair in pairs for side in self.sides if pair[side]]
        )


def side_samples(spec: Spec, cls: type[Vocabulary]) -> list[SideSample]:
    """Return an empty sample for each vocabulary to learn from pairs.

    Args:
        spec: settings of the corpus.
        cls: class of the vocabularies.
    """
    if spec.vocabulary_paths:
        return []
    sizes: dict[tuple[int, ...], int]
    if not spec.separate_vocabularies:
        sizes = {(0, 1): spec.vocab_size}
    else:
        source = spec.source_vocab_size or spec.vocab_size
        sizes = {(0,): source, (1,): spec.vocab_size}
    lines = SAMPLE_LINES // len(sizes)
    return [
        SideSample(sides, size, LineSample(lines, cls.max_line_length))
        for sides, size in sizes.items()
    ]


def build(
    cls: type[Vocabulary], samples: Sequence[SideSample], spec: Spec
) -> vocabulary_pair.Vocabularies:
    """Load the given vocabularies, or learn them from samples.

    Args:
        cls: class of the vocabularies.
        samples: result of side_samples(), filled.
        spec: settings of the corpus.

    Raises:
        UserError: none can be loaded or learned, or a tag is no subword.
    """
    if spec.vocabulary_paths:
        vocabularies = vocabulary_pair.load(
            spec.vocabulary_type, spec.vocabulary_paths
        )
    else:
        if spec.vocabulary_lines:
            for chunk in engines.in_chunks(spec.vocabulary_lines()):
                samples[0].sample.add([line for line in chunk if line])
        learned = [_learn(cls, side_sample, spec) for side_sample in samples]
        vocabularies = vocabulary_pair.Vocabularies(learned[0], learned[-1])
    _require_tags(vocabularies.source, spec.tags)
    return vocabularies


def _require_tags(vocabulary: Vocabulary, tags: Sequence[str]) -> None:
    """Raise a UserError unless each tag is a subword of its own."""
    if missing := set(tags) - vocabulary.tags:
        raise errors.UserError(
            "The vocabulary must have each tag of the sources as a "
            f"piece; it lacks {', '.join(sorted(missing))}. Learn it with "
            "them, or omit vocabulary=… to learn one here."
        )
    # Normalization may change a tag before its piece is looked for.
    ids = vocabulary.encode(list(tags)) if tags else []
    if split := [
        tag for tag, row in zip(tags, ids, strict=True) if len(row) != 2
    ]:
        raise errors.UserError(
            "The vocabulary normalizes text and splits the tags "
            f"{', '.join(split)} into several subwords. Choose tags of ASCII "
            "letters and signs, such as <BT>, in lower case if it ignores case."
        )


def _learn(
    cls: type[Vocabulary], side_sample: SideSample, spec: Spec
) -> Vocabulary:
    sample = side_sample.sample
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
    side = (
        f" of {corpus.SIDES[side_sample.sides[0]]}"
        if len(side_sample.sides) == 1
        else ""
    )
    print(
        f"Learning {side_sample.vocab_size:,} subwords{side} from "
        f"{len(sample.lines):,} of {sample.num_seen + sample.num_ignored:,} "
        "lines"
        + (
            f"; {sample.num_ignored:,} of more than {sample.longest:,} bytes "
            "are ignored."
            if sample.num_ignored
            else "."
        )
    )
    return cls.learn(
        sample.lines,
        side_sample.vocab_size,
        spec.split_by_unicode_script,
        # A vocabulary of a --usr_dir need not know of tags.
        **({"tags": spec.tags} if spec.tags else {}),
    )
