"""Residual connections: the only module that orders norm, dropout and addition.

The orders have the names of tensor2tensor's sequences: n for layer
normalization, d for dropout, a for the addition of x.

    before  after
    none    dan    LayerNorm(x + Dropout(Sublayer(x))), sections 3.1 and 5.4
    n       da     x + Dropout(Sublayer(LayerNorm(x))), "pre-norm"
    none    da     x + Dropout(Sublayer(x))
    n       dan    LayerNorm(x + Dropout(Sublayer(LayerNorm(x))))
"""

from typing import Any

import keras

from t2t_repro.layers import dense, randomness
from t2t_repro.layers.mixture_of_experts import BalanceLosses
from t2t_repro.layers.randomness import Rng
from t2t_repro.runtime.keras_compat import Tensor

EPSILON = 1e-6  # default of layer normalization, as in tensor2tensor


class _ResidualBase(dense.Composite):
    """Norms, dropout and addition around a sublayer, which subclasses call."""

    def __init__(
        self,
        sublayer: keras.layers.Layer,
        preprocess_sequence: str,
        postprocess_sequence: str,
        dropout_rate: float,
        epsilon: float = EPSILON,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sublayer = sublayer
        self.input_norm = norm_or_identity(
            preprocess_sequence == "n",
            epsilon,
            name="input_norm",
            dtype=self.dtype_policy,
        )
        self.dropout = randomness.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )
        self.norm = norm_or_identity(
            "n" in postprocess_sequence,
            epsilon,
            name="norm",
            dtype=self.dtype_policy,
        )

    def add(self, x: Tensor, y: Tensor, rng: Rng | None = None) -> Tensor:
        """Add the sublayer's output y to x, [B, T, D] both."""
        return self.norm(x + self.dropout(y, rng=rng))


class Residual(_ResidualBase):
    """Residual connection around a sublayer that takes x alone."""

    def call(self, x: Tensor, rng: Rng | None = None) -> Tensor:
        """Run the sublayer and its surroundings on x [B, T, D]."""
        y = self.sublayer(self.input_norm(x), rng=rng)
        return self.add(x, y, rng)


class AttentionResidual(_ResidualBase):
    """Residual connection around attention, which also returns its weights."""

    def call(
        self, x: Tensor, attention_args: tuple, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run attention and its surroundings on x [B, T, D].

        Args:
            x: queries' input.
            attention_args: mask and, optionally, memory.
            rng: state of random numbers; None at inference.

        Returns:
            output [B, T, D], weights [B, H, T, L] float32.
        """
        y, weights = self.sublayer(self.input_norm(x), *attention_args, rng=rng)
        return self.add(x, y, rng), weights


class MixtureResidual(_ResidualBase):
    """Residual connection around a mixture of experts."""

    def call(
        self, x: Tensor, is_real: Tensor | None = None, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Run the mixture and its surroundings on x [B, T, D].

        Args:
            x: tokens.
            is_real: [B, T] bool, False at padding; None: all are real.
            rng: state of random numbers; None at inference.

        Returns:
            output [B, T, D], losses of the mixture.
        """
        y, losses = self.sublayer(self.input_norm(x), is_real, rng=rng)
        return self.add(x, y, rng), losses


def norm_or_identity(
    use_norm: bool, epsilon: float, name: str, dtype: Any
) -> keras.layers.Layer:
    """Return a layer normalization, or an identity layer."""
    if not use_norm:
        return keras.layers.Identity(name=name, dtype=dtype)
    # Keras computes its mean and variance in float32 at least.
    return keras.layers.LayerNormalization(
        epsilon=epsilon, name=name, dtype=dtype
    )
