"""Recurrent cells: LSTM and GRU.

A cell computes a step from two halves: the projection of its input, which
does not depend on the recurrence and is computed for all positions at once,
and one matrix product with its output of the previous step.

    LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al.
    2000), gates in the order i, f, g, o of PyTorch and Keras:
        [i f g o] = W x + b + U h
        c' = sigmoid(f) c + sigmoid(i) tanh(g)
        h' = sigmoid(o) tanh(c')

    GRU (Cho et al. 2014), gates in the order r, z, n of PyTorch; Keras has
    z, r, n. The reset gate acts on U h, as in PyTorch and in Keras with
    reset_after=True; in the paper it acts on h, which would take a second
    product in each step.
        [r z n] = W x + b,   [r' z' n'] = U h
        z" = sigmoid(z + z')
        h' = (1 - z") tanh(n + sigmoid(r + r') (n' + b')) + z" h

States are float32 whatever the compute dtype: sums over many steps lose small
terms in 16 bits.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_repro.runtime.types import Tensor

# Logit of a gate that is closed at padding: its sigmoid is 0 in float32, and
# float16 can represent it.
_CLOSED = -1e4


class Cell(keras.layers.Layer):
    """Base class of cells, with the matrices W and U and the bias b.

    States are a tuple of tensors […, D]; the first one is the output h. There
    is no call(), in which Keras would cast them to the compute dtype.
    """

    num_gates: int
    num_states: int

    def __init__(self, size: int, **kwargs: Any) -> None:
        """Store D, the size of the output."""
        super().__init__(**kwargs)
        self.size = size

    def build(self, x_shape: tuple) -> None:
        width = self.num_gates * self.size
        self.kernel = self.add_weight(name="kernel", shape=(x_shape[-1], width))
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(self.size, width)
        )
        self.bias = self.add_weight(
            name="bias", shape=(width,), initializer=self.initial_bias
        )

    def initial_bias(self, shape: tuple, dtype: Any = None) -> Tensor:
        """Return the initial value of the bias b."""
        return ops.zeros(shape, dtype)

    def project(self, x: Tensor) -> Tensor:
        """Return the gates' part W x + b of inputs x […, E]."""
        bias = ops.cast(self.bias, self.compute_dtype)
        return _product(x, self.kernel) + bias

    def hold(self, gates: Tensor, mask: Tensor) -> Tensor:
        """Return gates with which an initial state remains zero at padding.

        Args:
            gates: result of project(), [B, T, gates].
            mask: [B, T] bool, False at padding.
        """
        closed = ops.cast(self.closed_gates(), gates.dtype)
        return ops.where(mask[..., None], gates, closed)

    def closed_gates(self) -> np.ndarray:
        """Return the gates of a step that leaves a state of zero."""
        raise NotImplementedError

    def initial_states(self, shape: Sequence) -> tuple[Tensor, ...]:
        """Return states of zero, [*shape, D] float32."""
        shape = (*shape, self.size)
        return tuple(
            ops.zeros(shape, "float32") for _ in range(self.num_states)
        )

    def step(self, gates: Tensor, states: Sequence) -> tuple[Tensor, ...]:
        """Return the next states.

        Args:
            gates: result of project() for one position, […, gates].
            states: states of the previous step, […, D] each.
        """
        raise NotImplementedError

    def output(self, states: Sequence) -> Tensor:
        """Return the output h […, D] in the compute dtype."""
        return ops.cast(states[0], self.compute_dtype)

    def _recurrence(self, states: Sequence) -> Tensor:
        """Return U h […, gates] float32."""
        product = _product(self.output(states), self.recurrent_kernel)
        return ops.cast(product, "float32")


class LstmCell(Cell):
    """Long short-term memory, with the states h and c."""

    num_gates = 4
    num_states = 2

    def initial_bias(self, shape: tuple, dtype: Any = None) -> Tensor:
        # An open forget gate at first: Gers et al. 2000, Jozefowicz et al.
        # 2015; the default of Keras.
        return ops.convert_to_tensor(np.repeat([0, 1, 0, 0], self.size), dtype)

    def closed_gates(self) -> np.ndarray:
        return np.repeat([_CLOSED, 0, 0, 0], self.size)

    def step(self, gates: Tensor, states: Sequence) -> tuple[Tensor, ...]:
        gates = ops.cast(gates, "float32") + self._recurrence(states)
        i, f, g, o = ops.split(gates, 4, axis=-1)
        memory = ops.sigmoid(f) * states[1] + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(memory), memory


class GruCell(Cell):
    """Gated recurrent unit, with the state h."""

    num_gates = 3
    num_states = 1

    def build(self, x_shape: tuple) -> None:
        super().build(x_shape)
        # Biases of the other two gates' products would only add to b.
        self.recurrent_bias = self.add_weight(
            name="recurrent_bias", shape=(self.size,), initializer="zeros"
        )

    def closed_gates(self) -> np.ndarray:
        return np.repeat([0, -_CLOSED, 0], self.size)

    def step(self, gates: Tensor, states: Sequence) -> tuple[Tensor, ...]:
        reset, update, new = ops.split(ops.cast(gates, "float32"), 3, axis=-1)
        past_reset, past_update, past = ops.split(
            self._recurrence(states), 3, axis=-1
        )
        past = past + ops.cast(self.recurrent_bias, "float32")
        update = ops.sigmoid(update + past_update)
        new = ops.tanh(new + ops.sigmoid(reset + past_reset) * past)
        return (new + update * (states[0] - new),)


def _product(x: Tensor, kernel: Tensor) -> Tensor:
    """Return x […, E] times kernel [E, G], as one product of matrices."""
    kernel = ops.cast(kernel, x.dtype)
    if len(x.shape) == 2:
        return ops.matmul(x, kernel)
    flat = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
    return ops.reshape(flat, (*ops.shape(x)[:-1], kernel.shape[-1]))


# Values of hparams.cell.
TYPES: dict[str, type[Cell]] = {"lstm": LstmCell, "gru": GruCell}
