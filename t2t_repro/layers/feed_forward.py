"""Position-wise feed-forward network (section 3.3)."""

from typing import Any

from keras import ops

from t2t_repro.layers import dense, randomness
from t2t_repro.layers.dense import Projection
from t2t_repro.layers.randomness import Rng
from t2t_repro.runtime.keras_compat import Tensor

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
        self.filter = dense.Dense(
            filter_size,
            activation=(ACTIVATIONS | GATES)[activation],
            name="filter",
            dtype=self.dtype_policy,
        )
        self.linear = None
        if activation in GATES:
            self.linear = dense.Dense(
                filter_size, name="linear", dtype=self.dtype_policy
            )
        self.dropout = randomness.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )
        self.output_projection = dense.Dense(
            hidden_size, name="output_projection", dtype=self.dtype_policy
        )

    def call(self, x: Tensor, rng: Rng | None = None) -> Tensor:
        hidden = self.filter(x)  # [B, T, F]
        if self.linear is not None:
            hidden = hidden * self.linear(x)
        return self.output_projection(self.dropout(hidden, rng=rng))

    def step_kernels(self) -> tuple[Projection, ...]:
        """Return the projections of steps, in the order of their use."""
        filter_ = dense.join_kernels(self.filter)
        # Further columns of the hidden layer meet rows of zeros.
        output = dense.join_kernels(
            self.output_projection, rows=filter_.kernel.shape[1]
        )
        if self.linear is None:
            return filter_, output
        return filter_, dense.join_kernels(self.linear), output

    def step(self, x: Tensor, kernels: tuple[Projection, ...]) -> Tensor:
        """Return the output of x [M, D], with the result of step_kernels()."""
        hidden = self.filter.activation(dense.project_step(x, kernels[0]))
        if self.linear is not None:
            hidden = hidden * dense.project_step(x, kernels[1])
        (output,) = dense.project_and_split(
            hidden, kernels[-1], (self.hidden_size,)
        )
        return output
