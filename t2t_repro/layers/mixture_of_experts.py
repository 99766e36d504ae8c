"""Mixture of experts (Shazeer et al. 2017, arXiv 1701.06538, section 2).

Noisy top-k gating with its balancing losses chooses experts. A token's gates
depend on this token alone, so that a sentence's result is independent of its
batch. (The strictly balanced gates of appendix F are not.)

An expert gets any number of tokens, so that no token is dropped. Its tokens
fill whole blocks of static shape, and the last one in part:

    experts of 4 tokens  0 2 | 0 1 | 0 2 | 0 1       k = 2, E = 3
    blocks of 2          0: a c | 0: e g | 1: d h | 2: b f

Σ ceil(n_i / size) over the experts is at most A / size + E for A assignments,
a bound that does not depend on the choice. The operations are sorts, gathers
and scatters, which TensorFlow computes without XLA, too.
"""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import randomness
from t2t_repro.layers.randomness import Rng
from t2t_repro.runtime.keras_compat import Tensor

# Smallest standard deviation of the noise: softplus underflows to 0, by which
# equation 9 divides. The paper states none; tensor2tensor adds this number.
MIN_NOISE = 1e-2

# Full blocks of an expert if all get the same: with 2, there are A / 2 empty
# rows. More blocks copy an expert's matrices more often. 2 was the fastest of
# 1, 2 and 4 for 8 experts, 128 wide, on a CPU.
_FULL_BLOCKS = 2


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
        """Choose experts for x […, D], or [B, T, D] if there is an rng.

        `is_real` […] bool is False at padding; None: all are real.
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
        `clean` are logits without noise, `noise` is its standard deviation;
        these and the result are […, E]. `top` […, k + 1] are the highest
        logits, descending.
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


class MixtureOfExperts(keras.layers.Layer):
    """Sum of the chosen experts of each token, weighted by its gates.

    Equation 1: y = Σ G(x)_i E_i(x), over the k experts with G(x)_i > 0. Each
    expert has one hidden layer: max(0, x W1 + b1) W2 + b2. Only chosen experts
    compute, and no token is dropped, however many choose the same expert.
    """

    def __init__(
        self,
        num_experts: int,
        experts_per_token: int,
        filter_size: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_experts = num_experts
        self.experts_per_token = experts_per_token
        self.filter_size = filter_size
        self.gating = NoisyTopKGating(
            num_experts, experts_per_token, name="gating", dtype="float32"
        )

    def build(self, x_shape: tuple, *_: Any) -> None:
        hidden, inner = x_shape[-1], self.filter_size
        # Glorot's, of each expert alone.
        limit = math.sqrt(6 / (hidden + inner))
        for name, shape in (
            ("filter_kernel", (hidden, inner)),
            ("filter_bias", (inner,)),
            ("output_kernel", (inner, hidden)),
            ("output_bias", (hidden,)),
        ):
            uniform = keras.initializers.RandomUniform(-limit, limit)
            weight = self.add_weight(
                name=name,
                shape=(self.num_experts, *shape),
                initializer="zeros" if name.endswith("bias") else uniform,
            )
            setattr(self, name, weight)

    def call(
        self, x: Tensor, is_real: Tensor | None = None, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Return y […, D] of x and losses; the arguments are the gating's.

        y is 0 at padding.
        """
        gates = self.gating(x, is_real, rng=rng)
        k = self.experts_per_token
        flat = ops.reshape(x, (-1, x.shape[-1]))  # [N, D]
        blocks = group_by_expert(
            ops.reshape(gates.experts, (-1,)), self.num_experts
        )
        tokens = ops.take(flat, blocks.assignments // k, axis=0)
        outputs = ops.reshape(
            self._run_experts(tokens, blocks.experts), (-1, x.shape[-1])
        )
        chosen = ops.reshape(
            ops.take(outputs, blocks.slots, axis=0), (-1, k, x.shape[-1])
        )
        values = ops.reshape(ops.cast(gates.values, x.dtype), (-1, k, 1))
        y = ops.sum(chosen * values, axis=1)
        return ops.reshape(y, ops.shape(x)), gates.losses

    def _run_experts(self, x: Tensor, experts: Tensor) -> Tensor:
        """Run one of experts [blocks] on each block of x [blocks, size, D]."""

        def linear(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
            kernel, bias = (
                ops.take(w, experts, axis=0) for w in (kernel, bias)
            )
            return ops.matmul(x, kernel) + bias[:, None]

        hidden = ops.relu(linear(x, self.filter_kernel, self.filter_bias))
        return linear(hidden, self.output_kernel, self.output_bias)


class Blocks(NamedTuple):
    """Assignments of tokens to experts, in blocks of one expert each.

    An assignment is one of the A = N k choices of experts for N tokens; a slot
    is one of the rows of all blocks.
    """

    experts: Tensor  # [blocks] int32, the expert of each block
    assignments: Tensor  # [blocks, size] int32; 0 in empty slots
    slots: Tensor  # [A] int32, the slot of each assignment


def num_blocks_and_size(
    num_assignments: Tensor | int, num_experts: int
) -> tuple[Tensor | int, Tensor | int]:
    """Return how many blocks suffice for any A assignments, and their size."""
    size = num_assignments // (_FULL_BLOCKS * num_experts) + 1
    # Padding fills blocks as one more expert would.
    bound = num_assignments // size + num_experts + 1
    if isinstance(num_assignments, int):
        return min(num_assignments, bound), size
    return ops.minimum(num_assignments, bound), size


def group_by_expert(experts: Tensor, num_experts: int) -> Blocks:
    """Put assignments to `experts` [A] int32 into blocks; E is padding."""
    num_assignments = ops.shape(experts)[0]
    num_blocks, size = num_blocks_and_size(num_assignments, num_experts)
    order = ops.cast(ops.argsort(experts), "int32")
    counts = ops.segment_sum(ops.ones_like(experts), experts, num_experts + 1)
    last_blocks = ops.cumsum((counts + size - 1) // size)
    first_slots = (last_blocks - (counts + size - 1) // size) * size
    # The i-th assignment in the order of experts, minus those of experts before
    # its own, is its number among its expert's.
    offsets = first_slots - (ops.cumsum(counts) - counts)
    sorted_slots = ops.arange(num_assignments, dtype="int32") + ops.take(
        offsets, ops.take(experts, order)
    )
    block_experts = ops.searchsorted(
        last_blocks, ops.arange(num_blocks, dtype="int32"), side="right"
    )
    num_slots = num_blocks * size
    return Blocks(
        # Blocks of padding, and those after, compute what no token reads.
        ops.minimum(ops.cast(block_experts, "int32"), num_experts - 1),
        ops.reshape(
            ops.scatter(sorted_slots[:, None], order, (num_slots,)),
            (num_blocks, size),
        ),
        ops.scatter(order[:, None], sorted_slots, (num_assignments,)),
    )
