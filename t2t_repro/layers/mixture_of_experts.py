"""Mixture of experts (Shazeer et al. 2017, arXiv 1701.06538, section 2)."""

import math
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import expert_blocks, gating
from t2t_repro.layers.randomness import Rng
from t2t_repro.runtime.types import Tensor


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
        self.gating = gating.NoisyTopKGating(
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
    ) -> tuple[Tensor, gating.BalanceLosses]:
        """Mix experts for x […, D].

        Args:
            x: tokens; [B, T, D] if there is an rng.
            is_real: […] bool, False at padding, for which y is 0; None: all
                are real.
            rng: state of random numbers; None at inference.

        Returns:
            y […, D], losses of the tokens of x.
        """
        gates = self.gating(x, is_real, rng=rng)
        k = self.experts_per_token
        flat = ops.reshape(x, (-1, x.shape[-1]))  # [N, D]
        blocks = expert_blocks.group(
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
        """Run one expert on each block.

        Args:
            x: [blocks, size, D].
            experts: [blocks] int32.

        Returns:
            [blocks, size, D].
        """
        filter_kernel, filter_bias, output_kernel, output_bias = (
            ops.take(weight, experts, axis=0)
            for weight in (
                self.filter_kernel,
                self.filter_bias,
                self.output_kernel,
                self.output_bias,
            )
        )
        hidden = ops.matmul(x, filter_kernel) + filter_bias[:, None]
        return (
            ops.matmul(ops.relu(hidden), output_kernel) + output_bias[:, None]
        )
