"""Rows of ids, and batches of rows of similar length."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from t2t_repro.text import language_tags, long_lines
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary


def truncate(ids: list[int], limit: int) -> list[int]:
    """Truncate to `limit` ids, EOS the last."""
    return ids if len(ids) <= limit else ids[: limit - 1] + [EOS]


def fragments(text: str, vocabulary: Vocabulary, limit: int) -> list[list[int]]:
    """Split a text, and return the ids of its fragments, at most `limit` each.

    Each fragment has the tag of the text.
    """
    tag, rest = vocabulary.split_tag(text)

    def encode(part):
        (row,) = vocabulary.encode([language_tags.join(tag, part)])
        return row

    parts = long_lines.split(rest, lambda part: len(encode(part)) <= limit)
    # A single character may have more subwords than a very low limit.
    return [truncate(encode(part), limit) for part in parts]


def length_sorted(
    indices: Iterable[int], lengths: Sequence[int], max_tokens: int
) -> Iterator[list[int]]:
    """Yield batches of indices, longest first.

    The number of indices times the greatest length, so the batch with its
    padding, is at most `max_tokens`, unless a single index exceeds it. Example:
    indices 0, 1, 2 of lengths 3, 9, 4 with 10 tokens give [1], [2, 0].
    """
    batch: list[int] = []
    for i in sorted(indices, key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def is_text(ids: tf.Tensor, vocabulary: Vocabulary) -> tf.Tensor:
    """Return which ids [B, L] are no tag, EOS or PAD: [B, L] bool."""
    return tf.reduce_all(ids[..., None] != [*vocabulary.no_text], axis=-1)


def pad(rows: Sequence[Sequence[int]]) -> tf.Tensor:
    """Return lists of ids as [B, L] int32, PAD after each."""
    array = np.full((len(rows), max(map(len, rows))), PAD, np.int32)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return tf.constant(array)
