"""Rules that every search has, and those that its settings enable."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.decoding.rules import (
    FORBIDDEN,
    Bound,
    Rule,
    SearchStep,
    Sentences,
)
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS, PAD

_MIN_COVERAGE = np.finfo(np.float32).tiny  # its logarithm is finite


def enabled(decode_hparams: DecodeHParams) -> list[Rule]:
    """Return the built-in rules of a search with these settings."""
    rules: list[Rule] = [LengthLimit(), Prefix()]
    if decode_hparams.min_length > 1:
        rules.append(MinLength(decode_hparams.min_length))
    if decode_hparams.no_repeat_ngram_size:
        rules.append(NoRepeatNgrams(decode_hparams.no_repeat_ngram_size))
    if decode_hparams.coverage_penalty:
        rules.append(CoveragePenalty(decode_hparams.coverage_penalty))
    return rules


class LengthLimit(Rule):
    """EOS at the limit of a sentence at the latest."""

    def forced(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        more = step.position + 1 < step.sentences.limits
        return tf.where(more, PAD, EOS)[:, None]


class Prefix(Rule):
    """Prefix with which the outputs of a sentence begin."""

    def forced(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        prefixes = tf.pad(step.sentences.prefixes, ((0, 0), (0, 1)))
        last = tf.shape(prefixes)[1] - 1
        index = tf.minimum(step.position, last)
        return tf.gather(prefixes, index, axis=1)[:, None]


class MinLength(Rule):
    """Minimum length of outputs, EOS included."""

    def __init__(self, length: int) -> None:
        self._length = length

    def excluded(self, step: SearchStep, state: Any) -> Sequence[tf.Tensor]:
        return [tf.where(step.position + 1 < self._length, EOS, PAD)]


class NoRepeatNgrams(Rule):
    """No n-gram of `size` subwords twice in an output."""

    def __init__(self, size: int) -> None:
        self._size = size

    def score(
        self, logits: tf.Tensor, step: SearchStep, state: Any
    ) -> tf.Tensor:
        size = self._size
        batch, beams, length = tf.unstack(tf.shape(step.ids))
        padded = tf.pad(step.ids, ((0, 0), (0, 0), (0, size)))
        # `same` is where n-grams of the output begin whose first n - 1 subwords
        # are the last n - 1 of the hypothesis.
        same = tf.range(length) + size <= step.position
        same = tf.broadcast_to(same, (batch, beams, length))
        for j in range(size - 1):
            recent = tf.maximum(step.position - size + 1 + j, 0)
            same &= padded[:, :, j : j + length] == padded[:, :, recent, None]
        last = padded[:, :, size - 1 : size - 1 + length]
        # PAD stands for no subword: it is forbidden anyway.
        repeated = tf.where(same, last, PAD)
        shape = (batch * beams, length)
        rows = tf.broadcast_to(tf.range(batch * beams)[:, None], shape)
        indices = tf.stack([rows, tf.reshape(repeated, shape)], axis=-1)
        flat = tf.reshape(logits, (batch * beams, logits.shape[-1]))
        flat = tf.tensor_scatter_nd_update(
            flat, indices, tf.fill(shape, FORBIDDEN)
        )
        return tf.reshape(flat, tf.shape(logits))


class CoveragePenalty(Rule):
    """GNMT's coverage penalty (Wu et al. 2016, section 7, equation 14).

    The rule adds beta * sum_i log(min(sum_j p_ij, 1)) to an output's score,
    where p_ij is the attention of its subword j, EOS included, to the subword i
    of the source. It is negative if source subwords were not attended to.
    """

    needs_attention = True
    name = "coverage_penalty"

    def __init__(self, beta: float) -> None:
        self._beta = beta

    def start(self, sentences: Sentences, num_hypotheses: int) -> Any:
        """Return the coverage [B, W, L]; padding counts as covered."""
        padding = tf.cast(sentences.inputs == PAD, tf.float32)
        return tf.repeat(padding[:, None], num_hypotheses, axis=1)

    def advance(self, step: SearchStep, state: Any) -> Any:
        return state + step.attention

    def final_score(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        coverage = tf.clip_by_value(state, _MIN_COVERAGE, 1.0)
        return self._beta * tf.reduce_sum(tf.math.log(coverage), -1)

    def upper_bound(self, step: SearchStep, state: Any) -> Bound:
        return 0.0  # the logarithm of 1
