"""Log-probabilities and attention weights of given outputs."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro.decoding.rules import split_language
from t2t_repro.models.seq2seq import Seq2Seq, one_sentence_per_row
from t2t_repro.text import languages, long_lines
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary
from t2t_repro.text.word_alignment import Alignment

# Maximum number of logits in memory: 128 MiB in float32, and as much for their
# softmax. A server scores the shards of a batch at the same time.
MAX_LOGITS = 2**25
# Subwords of a line whose attention is shown: a larger picture would be
# illegible.
MAX_SUBWORDS = 128


class TargetScore(NamedTuple):
    """Subwords of a given target, EOS included, and their log-probabilities."""

    pieces: list[str]
    log_probs: list[float]
    alignment: Alignment | None = None  # None: not asked

    @property
    def total(self) -> float:
        """Log-probability of the whole target."""
        return math.fsum(self.log_probs)


def subword_log_probs(
    models: Sequence[Seq2Seq],
    inputs: tf.Tensor,
    targets: tf.Tensor,
    leads_outputs: bool = False,
) -> tf.Tensor:
    """Return the log-probability of each subword of given outputs.

    Args:
        models: one, or several whose probabilities are averaged.
        inputs: [B, L] int32, ids with EOS, PAD after.
        targets: [B, T] int32, the same.
        leads_outputs: whether the first id of `inputs` is that with which the
            outputs begin; `targets` are without it.

    Returns:
        [B, T] float32, 0 where a target is PAD.
    """
    if leads_outputs:
        inputs, languages = split_language(inputs)
        targets = tf.concat([languages, targets], 1)
        return subword_log_probs(models, inputs, targets)[:, 1:]
    log_probs: list[tf.Tensor] = []
    for model in models:
        # One model after another: an ensemble has the memory of one model.
        with tf.control_dependencies(log_probs):
            log_probs.append(_log_probs_of_model(model, inputs, targets))
    mean = tf.reduce_logsumexp(tf.stack(log_probs), 0) - math.log(len(models))
    return tf.where(targets != PAD, mean, 0.0)


def _log_probs_of_model(model, inputs, targets):
    """Return log-probabilities [B, T] of targets; logits come in chunks."""
    batch = one_sentence_per_row(inputs, targets)
    states = model.hidden_states(batch).states
    states = tf.reshape(states, (-1, states.shape[-1]))  # [B * T, E]
    ids = tf.reshape(targets, (-1,))
    size = max(MAX_LOGITS // model.vocab_size, 1)

    def append_chunk(start, found):
        chunk = slice(start, start + size)
        log_probs = tf.nn.log_softmax(model.output_layer.logits(states[chunk]))
        log_probs = tf.gather(log_probs, ids[chunk], batch_dims=1)
        return start + size, tf.concat([found, log_probs], 0)

    _, found = tf.while_loop(
        lambda start, _: start < tf.size(ids),
        append_chunk,
        (tf.constant(0), tf.zeros(0)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,
    )
    return tf.reshape(found, tf.shape(targets))


def cross_attention(
    model: Seq2Seq,
    inputs: tf.Tensor,
    targets: tf.Tensor,
    leads_outputs: bool = False,
) -> tf.Tensor:
    """Return the cross-attention weights of given outputs.

    Args:
        model: one of the models that found the outputs.
        inputs: as in subword_log_probs().
        targets: as in subword_log_probs(), but with their first id.
        leads_outputs: as in subword_log_probs(). The first id of `inputs` has
            the weight 0.

    Returns:
        [layers, B, H, T, L] float32; rows of PAD are undefined.
    """
    if leads_outputs:
        inputs, _ = split_language(inputs)
        weights = cross_attention(model, inputs, targets)
        return tf.roll(weights, 1, -1)  # the last one is of PAD
    return model.attention_weights(one_sentence_per_row(inputs, targets)).cross


def attention_of_models(
    models: Sequence[Seq2Seq],
    inputs: tf.Tensor,
    targets: tf.Tensor,
    leads_outputs: bool = False,
    by_head: bool = False,
) -> tf.Tensor:
    """Return cross_attention() of all models: their heads, or the mean.

    The arguments are those of cross_attention().

    Args:
        by_head: whether the heads of all models are side by side; else H is 1.

    Returns:
        [B, layers, H, T, L] float32, 0 at padding of T or L. If models differ
        in their number of layers, there is one layer, the mean of all.
    """
    weights = [
        cross_attention(model, inputs, targets, leads_outputs)
        for model in models
    ]
    if not by_head:
        weights = [tf.reduce_mean(each, 2, keepdims=True) for each in weights]
    if len({each.shape[0] for each in weights}) > 1:
        weights = [tf.reduce_mean(each, 0, keepdims=True) for each in weights]
    heads = (
        tf.concat(weights, 2) if by_head else tf.add_n(weights) / len(weights)
    )
    is_real = (targets != PAD)[:, :, None] & (inputs != PAD)[:, None]
    heads = tf.transpose(heads, (1, 0, 2, 3, 4))
    return tf.where(is_real[:, None, None], heads, 0.0)


# Rows of ids, and batches of rows of similar length.


def truncate_rows(ids: list[int], limit: int) -> list[int]:
    """Truncate to `limit` ids, EOS the last."""
    return ids if len(ids) <= limit else ids[: limit - 1] + [EOS]


def fragments(text: str, vocabulary: Vocabulary, limit: int) -> list[list[int]]:
    """Split a text, and return the ids of its fragments, at most `limit` each.

    Each fragment has the tag of the text.
    """
    tag, rest = vocabulary.split_tag(text)

    def encode(part):
        (row,) = vocabulary.encode([languages.join_tag(tag, part)])
        return row

    parts = long_lines.split(rest, lambda part: len(encode(part)) <= limit)
    # A single character may have more subwords than a very low limit.
    return [truncate_rows(encode(part), limit) for part in parts]


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


def pad_rows(rows: Sequence[Sequence[int]]) -> tf.Tensor:
    """Return lists of ids as [B, L] int32, PAD after each."""
    array = np.full((len(rows), max(map(len, rows))), PAD, np.int32)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return tf.constant(array)
