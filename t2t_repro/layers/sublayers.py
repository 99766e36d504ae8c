"""Feed-forward networks, and the residual connections around sublayers.

This is the only module that orders norm, dropout and addition. The orders have
the names of tensor2tensor's sequences: n for normalization, d for
dropout, a for the addition of x.

    before  after
    none    dan    LayerNorm(x + Dropout(Sublayer(x))), sections 3.1 and 5.4
    n       da     x + Dropout(Sublayer(LayerNorm(x))), "pre-norm"
    none    da     x + Dropout(Sublayer(x))
    n       dan    LayerNorm(x + Dropout(Sublayer(LayerNorm(x))))
"""

from typing import Any

import keras
from keras import ops

from t2t_repro import registry
from t2t_repro.layers import dense
from t2t_repro.layers.dense import Projection
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.runtime.keras_compat import Tensor

EPSILON = 1e-6  # default of layer normalization, as in tensor2tensor
ACTIVATIONS = {
    "relu": ops.relu,
    "gelu": lambda x: ops.gelu(x, approximate=False),
    # Hendrycks and Gimpel 2016, section 2, give both approximations.
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "gelu_sigmoid": lambda x: x * ops.sigmoid(1.702 * x),
    "silu": ops.silu,
}
# Activations of gates in gated linear units (Shazeer 2020, arXiv 2002.05202).
GATES = {
    "glu": ops.sigmoid,
    "reglu": ACTIVATIONS["relu"],
    "geglu": ACTIVATIONS["gelu"],
    "geglu_tanh": ACTIVATIONS["gelu_tanh"],
    "swiglu": ACTIVATIONS["silu"],
}


class FeedForward(dense.Composite):
    """Feed-forward network of equation 2: max(0, x W1 + b1) W2 + b2.

    Other activations may replace max(0, ·). A gated one replaces the hidden
    layer by activation(x W1 + b1) * (x V + c). Dropout acts on the hidden layer
    [B, T, F], as tensor2tensor's relu_dropout.
    """

    def __init__(
        self,
        hidden_size: int,
        filter_size: int,
        dropout_rate: float,
        activation: str = "relu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.filter = self.new_layer(
            dense.Dense,
            filter_size,
            activation=(ACTIVATIONS | GATES)[activation],
            name="filter",
        )
        self.linear = None
        if activation in GATES:
            self.linear = self.new_layer(
                dense.Dense, filter_size, name="linear"
            )
        self.dropout = self.new_layer(Dropout, dropout_rate, name="dropout")
        self.output_projection = self.new_layer(
            dense.Dense, hidden_size, name="output_projection"
        )

    def call(self, x: Tensor, rng: Rng | None = None) -> Tensor:
        hidden = self.filter(x)  # [B, T, F]
        if self.linear is not None:
            hidden = hidden * self.linear(x)
        return self.output_projection(self.dropout(hidden, rng=rng))

    def step_kernels(self) -> tuple[Projection, ...]:
        """Return the projections of steps, in the order of their use."""
        layers = self.filter, self.linear, self.output_projection
        return tuple(dense.join_kernels(each) for each in layers if each)

    def step(self, x: Tensor, kernels: tuple[Projection, ...]) -> Tensor:
        """Return the output of x [M, D], with the result of step_kernels()."""
        *inner, output = kernels
        size = (self.filter.units,)
        hidden, *linear = (
            dense.project_and_split(x, each, size)[0] for each in inner
        )
        hidden = self.filter.activation(hidden)
        if linear:
            hidden = hidden * linear[0]
        return dense.project_and_split(hidden, output, (self.hidden_size,))[0]


class Residual(dense.Composite):
    """Norms, dropout and addition around a sublayer.

    What the sublayer returns beside its output is returned, too: weights of
    attention, or losses of experts.
    """

    def __init__(
        self,
        sublayer: keras.layers.Layer,
        preprocess_sequence: str,
        postprocess_sequence: str,
        dropout_rate: float,
        epsilon: float = EPSILON,
        norm: str = "layer",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sublayer = sublayer
        self.input_norm = self.new_layer(
            norm_or_identity,
            preprocess_sequence == "n",
            epsilon,
            norm,
            name="input_norm",
        )
        self.norm = self.new_layer(
            norm_or_identity,
            "n" in postprocess_sequence,
            epsilon,
            norm,
            name="norm",
        )
        self.dropout = self.new_layer(Dropout, dropout_rate, name="dropout")

    def add(self, x: Tensor, y: Tensor, rng: Rng | None = None) -> Tensor:
        """Add the sublayer's output y to x, [B, T, D] both."""
        return self.norm(x + self.dropout(y, rng=rng))

    def call(
        self, x: Tensor, others: tuple = (), rng: Rng | None = None
    ) -> Any:
        """Run the sublayer on x [B, T, D] and other arguments."""
        y = self.sublayer(self.input_norm(x), *others, rng=rng)
        if not isinstance(y, tuple):
            return self.add(x, y, rng)
        y, more = y
        return self.add(x, y, rng), more


def norm_or_identity(
    use_norm: bool, epsilon: float, norm: str, **kwargs: Any
) -> keras.layers.Layer:
    """Return an identity layer, or the norm that `norm` names.

    It is the name of a registered class, which may have arguments:
    "name:key=value".
    """
    if not use_norm:
        return keras.layers.Identity(**kwargs)
    registry.norms.subclass(norm.partition(":")[0], keras.layers.Layer)
    return registry.norms.construct(
        norm, "hparam norm", epsilon=epsilon, **kwargs
    )


# Keras computes means and variances in float32 at least.


class LayerNorm(keras.layers.LayerNormalization):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, of each vector."""


class RmsNorm(keras.layers.RMSNormalization):
    """x / sqrt(mean of squares + epsilon) * scale, of each vector.

    Zhang and Sennrich 2019 (arXiv 1910.07467), equation 4.
    """
