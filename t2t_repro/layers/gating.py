"""Noisy top-k gating and its balancing losses (Shazeer et al. 2017).

Sections, equations and appendices are those of arXiv 1701.06538. A token's
gates depend on this token alone, so that a sentence's result is independent of
its batch. (The strictly balanced gates of appendix F are not.)
"""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import randomness
from t2t_repro.runtime.types import Tensor

# Smallest standard deviation of the noise: softplus underflows to 0, by which
# equation 9 divides. The paper states none; tensor2tensor adds this number.
MIN_NOISE = 1e-2


class BalanceLosses(NamedTuple):
    """Squared coefficients of variation over the experts, unweighted.

    Both are 0 if all experts get the same, and at most E - 1. They are not
    sums over tokens: those of a batch do not follow from those of its parts.
    """

    importance: Tensor  # [] float32, of the sums of gates: equation 7
    load: Tensor  # [] float32, of the expected numbers of tokens: equation 11


class Gates(NamedTuple):
    """The k chosen experts of each token."""

    values: Tensor  # […, k] float32, descending, sum 1; 0 for padding
    experts: Tensor  # […, k] int32; E, which is no expert, for padding
    losses: BalanceLosses


class NoisyTopKGating(keras.layers.Layer):
    """Choice of k of E experts for each token (section 2.1).

    Equations 3 to 5, for x of one token:

        G(x) = Softmax(KeepTopK(H(x), k))
        H(x) = x W_g + StandardNormal() * Softplus(x W_noise)

    Both matrices begin as zeros: no signal and some noise (appendix A). There
    is noise in training only.

    The layer computes in float32: its policy must be float32.
    """

    def __init__(
        self, num_experts: int, experts_per_token: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_experts = num_experts
        self.experts_per_token = experts_per_token

    def build(self, x_shape: tuple, *_: Any) -> None:
        shape = (x_shape[-1], self.num_experts)
        self.weight = self.add_weight(
            name="weight", shape=shape, initializer="zeros"
        )
        self.noise_weight = self.add_weight(
            name="noise_weight", shape=shape, initializer="zeros"
        )
        self._stream = randomness.stream_id(self.path)

    def call(
        self,
        x: Tensor,
        is_real: Tensor | None = None,
        rng: randomness.Rng | None = None,
    ) -> Gates:
        """Choose experts for x […, D].

        Args:
            x: tokens; [B, T, D] if there is an rng.
            is_real: […] bool, False at padding; None: all are real.
            rng: state of random numbers; None at inference.
        """
        k = self.experts_per_token
        clean = ops.matmul(x, self.weight)
        noise = ops.softplus(ops.matmul(x, self.noise_weight))
        noise = ops.maximum(noise, MIN_NOISE)
        logits = clean
        if rng is not None:
            normal = randomness.normal(rng, self._stream, ops.shape(clean))
            logits = clean + normal * noise
        # One more than k, for the load.
        top, experts = ops.top_k(logits, min(k + 1, self.num_experts))
        values = ops.softmax(top[..., :k])
        experts = ops.cast(experts[..., :k], "int32")
        load = self._load(clean, logits, noise, top)
        if is_real is not None:
            is_real = is_real[..., None]
            values = ops.where(is_real, values, 0.0)
            experts = ops.where(is_real, experts, self.num_experts)
            load = ops.where(is_real, load, 0.0)
        losses = BalanceLosses(
            squared_variation(self._importance(values, experts)),
            squared_variation(
                ops.sum(ops.reshape(load, (-1, self.num_experts)), 0)
            ),
        )
        return Gates(values, experts, losses)

    def _importance(self, values: Tensor, experts: Tensor) -> Tensor:
        """Return the sum of each expert's gates (equation 6), [E]."""
        return ops.segment_sum(
            ops.reshape(values, (-1,)),
            ops.reshape(experts, (-1,)),
            self.num_experts + 1,
        )[:-1]

    def _load(
        self, clean: Tensor, logits: Tensor, noise: Tensor, top: Tensor
    ) -> Tensor:
        """Return P(x, i), equations 8 and 9: the smooth load of each token.

        That is the probability that expert i is chosen if its noise alone is
        drawn again: that it exceeds the k-th highest of the other logits.

        Args:
            clean: […, E], logits without noise.
            logits: […, E], with it.
            noise: […, E], its standard deviation.
            top: […, k + 1], the highest logits, descending.

        Returns:
            […, E].
        """
        k = self.experts_per_token
        if k == self.num_experts:
            return ops.ones_like(clean)
        kth, next_one = top[..., k - 1 : k], top[..., k:]
        threshold = ops.where(logits > next_one, next_one, kth)
        return normal_cdf((clean - threshold) / noise)


def squared_variation(x: Tensor) -> Tensor:
    """Return the squared coefficient of variation of x [E]; 0 for zeros.

    It is the variance, of the population, over the square of the mean.
    """
    squared_mean = ops.square(ops.mean(x))
    # Far below the least mean of one token: 1 / E.
    return ops.var(x) / ops.maximum(squared_mean, 1e-12)


def normal_cdf(x: Tensor) -> Tensor:
    """Return the probability that a standard normal number is below x."""
    return 0.5 * (1.0 + ops.erf(x / math.sqrt(2.0)))
