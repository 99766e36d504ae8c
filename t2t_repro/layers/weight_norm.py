"""Linear layers with weight normalization (arXiv 1602.07868)."""

import math
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from t2t_repro.runtime.types import Tensor


class WeightNormDense(keras.layers.Layer):
    """Linear layer whose weight is w = g v / ||v|| for each of its units.

    `direction` is v [units, input_size], `gain` is g [units]. The norm is
    computed in float32 whatever the compute dtype. g begins as ||v||, so that
    initially w = v.
    """

    def __init__(
        self,
        input_size: int,
        units: int,
        initial_variance: float = 1.0,
        **kwargs: Any,
    ) -> None:
        """Store the arguments.

        Args:
            input_size: n, inputs of each unit.
            units: outputs.
            initial_variance: n times the variance of initial weights: that of
                a unit's output if its inputs have mean 0 and variance 1.
            **kwargs: arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.input_size = input_size
        self.units = units
        self.initial_variance = initial_variance

    def build(self, input_shape: tuple | None = None) -> None:
        deviation = math.sqrt(self.initial_variance / self.input_size)
        self.direction = self.add_weight(
            name="direction",
            shape=(self.units, self.input_size),
            initializer=keras.initializers.RandomNormal(stddev=deviation),
            autocast=False,
        )
        self.gain = self.add_weight(
            name="gain",
            shape=(self.units,),
            initializer=lambda shape, dtype: self._norm(),
            autocast=False,
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.units,), initializer="zeros"
        )

    def _norm(self) -> Tensor:
        return ops.sqrt(ops.sum(ops.square(self.direction), axis=1))

    @property
    def weight(self) -> Tensor:
        """Normalized weight w [units, input_size] float32."""
        return self.direction * (self.gain / self._norm())[:, None]

    def kernel(self) -> Tensor:
        """Return w [input_size, units], a copy in the compute dtype."""
        return ops.transpose(ops.cast(self.weight, self.compute_dtype))

    def call(
        self, x: Tensor, kernels: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return w x + b, […, units] of x […, input_size].

        Args:
            x: inputs.
            kernels: {path: kernel()} of several layers, if many calls share
                them.
        """
        kernel = self.kernel() if kernels is None else kernels[self.path]
        return ops.matmul(x, kernel) + ops.cast(self.bias, x.dtype)

    def logits(
        self, x: Tensor, kernels: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return w x + b in float32, as an output layer."""
        kernel = self.kernel() if kernels is None else kernels[self.path]
        product = ops.matmul(ops.cast(x, self.compute_dtype), kernel)
        return ops.cast(product, "float32") + ops.cast(self.bias, "float32")
