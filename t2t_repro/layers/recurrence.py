"""Recurrent layers: a cell applied to one position after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import composite, recurrent_cell
from t2t_repro.layers.dropout import Dropout
from t2t_repro.layers.randomness import Rng
from t2t_repro.runtime.types import Tensor


class _Step:
    """Function of an input and states, in the form of a cell of Keras."""

    state_size = ()

    def __init__(self, function: Callable) -> None:
        self.call = function

    def __call__(self, x: Tensor, states: Sequence) -> tuple:
        return self.call(x, states)


def scan(step: Callable, x: Tensor, states: Sequence) -> Any:
    """Apply a step to all positions in order, and return all outputs.

    The loop of keras.layers.RNN is used, without its casts of states and
    outputs to one dtype. (XLA cannot differentiate ops.scan on TensorFlow,
    since it does not bound the number of steps; JAX cannot differentiate
    ops.while_loop.)

    Args:
        step: function of an input [B, …] and states; it returns a nest of
            outputs [B, …] and the next states.
        x: inputs [B, T, …].
        states: tuple of tensors, the states before the first step.

    Returns:
        nest of outputs [B, T, …].
    """
    loop = keras.layers.RNN(_Step(step), return_sequences=True)
    _, outputs, _ = loop.inner_loop(x, tuple(states), mask=None)
    return outputs


class RecurrentLayer(keras.layers.Layer):
    """A cell applied to every position of x [B, T, E].

    In reverse, it begins at the last position that is not padding. Forward,
    padding comes last: no position that counts depends on it, and the mask is
    not read.
    """

    def __init__(
        self,
        cell_type: str,
        size: int,
        dropout_rate: float,
        reverse: bool = False,
        **kwargs: Any,
    ) -> None:
        """Create the cell.

        Args:
            cell_type: a key of recurrent_cell.TYPES.
            size: D, the size of the output.
            dropout_rate: share of the input that is dropped.
            reverse: whether the last position comes first.
            **kwargs: arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.reverse = reverse
        self.cell = recurrent_cell.TYPES[cell_type](
            size, name="cell", dtype=self.dtype_policy
        )
        self.dropout = Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )

    def build(self, x_shape: tuple) -> None:
        self.cell.build(x_shape)  # before the loop, whose tensors are its own

    def call(
        self, x: Tensor, mask: Tensor | None = None, rng: Rng | None = None
    ) -> Tensor:
        """Return the outputs [B, T, D] of inputs x [B, T, E].

        Args:
            x: inputs.
            mask: [B, T] bool, False at padding; only read in reverse.
            rng: state of random numbers; None at inference.
        """
        gates = self.cell.project(self.dropout(x, rng=rng))
        return self.run(gates, mask)

    def run(self, gates: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the outputs [B, T, D] of projected inputs.

        Args:
            gates: result of cell.project(), [B, T, gates].
            mask: [B, T] bool, False at padding; only read in reverse.
        """
        if self.reverse:
            gates = ops.flip(self.cell.hold(gates, mask), axis=1)

        def step(gates: Tensor, states: Sequence) -> tuple:
            states = self.cell.step(gates, states)
            return self.cell.output(states), states

        states = self.cell.initial_states((ops.shape(gates)[0],))
        outputs = scan(step, gates, states)
        return ops.flip(outputs, axis=1) if self.reverse else outputs

    def step(
        self, x: Tensor, states: Sequence
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the output […, D] for one position, and the next states.

        Args:
            x: […, E].
            states: of the cell, […, D] each.
        """
        states = self.cell.step(self.cell.project(x), states)
        return self.cell.output(states), states


class BidirectionalLayer(composite.Composite):
    """Two recurrent layers, forward and in reverse, side by side."""

    def __init__(
        self, cell_type: str, size: int, dropout_rate: float, **kwargs: Any
    ) -> None:
        """Create both layers, as RecurrentLayer does."""
        super().__init__(**kwargs)
        self.forward, self.backward = (
            RecurrentLayer(
                cell_type,
                size,
                dropout_rate,
                reverse=name == "backward",
                name=name,
                dtype=self.dtype_policy,
            )
            for name in ("forward", "backward")
        )

    def call(self, x: Tensor, mask: Tensor, rng: Rng | None = None) -> Tensor:
        """Return the outputs [B, T, 2 D] of inputs x [B, T, E].

        Args:
            x: inputs.
            mask: [B, T] bool, False at padding.
            rng: state of random numbers; None at inference.
        """
        sides = [
            layer(x, mask, rng=rng) for layer in (self.forward, self.backward)
        ]
        return ops.concatenate(sides, axis=-1)
