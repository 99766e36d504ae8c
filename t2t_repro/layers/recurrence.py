"""Recurrent cells (LSTM and GRU) and layers, also with attention to a source.

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

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_repro.layers import attention, dense
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.runtime.keras_compat import Tensor

# Logit of a gate that is closed at padding: its sigmoid is 0 in float32, and
# float16 can represent it.
_CLOSED = -1e4


class Cell(keras.layers.Layer):
    """Base class of cells, with the matrices W and U and the bias b.

    States are a tuple of tensors […, D]; the first one is the output h. There
    is no call(), in which Keras would cast them to the compute dtype.
    """

    num_states: int
    initial_bias: tuple[int, ...]  # of each gate
    closed_gates: tuple[float, ...]  # they leave a state of zero

    def __init__(self, size: int, **kwargs: Any) -> None:
        """Store D, the size of the output."""
        super().__init__(**kwargs)
        self.size = size
        self.num_gates = len(self.closed_gates)

    def build(self, x_shape: tuple) -> None:
        width = self.num_gates * self.size
        self.kernel = self.add_weight(name="kernel", shape=(x_shape[-1], width))
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(self.size, width)
        )
        bias = np.repeat(self.initial_bias, self.size)
        self.bias = self.add_weight(
            name="bias",
            shape=(width,),
            initializer=lambda _, dtype: ops.convert_to_tensor(bias, dtype),
        )

    def project(self, x: Tensor) -> Tensor:
        """Return the gates' part W x + b of inputs x […, E]."""
        bias = ops.cast(self.bias, self.compute_dtype)
        return _product(x, self.kernel) + bias

    def hold(self, gates: Tensor, mask: Tensor) -> Tensor:
        """Return gates [B, T, gates] whose initial state remains 0 at padding.

        `mask` [B, T] bool is False there.
        """
        closed = np.repeat(self.closed_gates, self.size)
        closed = ops.cast(closed, gates.dtype)
        return ops.where(mask[..., None], gates, closed)

    def initial_states(self, shape: Sequence) -> tuple[Tensor, ...]:
        """Return states of zero, [*shape, D] float32."""
        shape = (*shape, self.size)
        return tuple(
            ops.zeros(shape, "float32") for _ in range(self.num_states)
        )

    def step(self, gates: Tensor, states: Sequence) -> tuple[Tensor, ...]:
        """Return the next states, […, D] each.

        `gates` […, gates] are the result of project() for one position.
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

    num_states = 2
    # An open forget gate at first: Gers et al. 2000, Jozefowicz et al. 2015;
    # the default of Keras.
    initial_bias = (0, 1, 0, 0)
    closed_gates = (_CLOSED, 0, 0, 0)

    def step(self, gates: Tensor, states: Sequence) -> tuple[Tensor, ...]:
        gates = ops.cast(gates, "float32") + self._recurrence(states)
        i, f, g, o = ops.split(gates, 4, axis=-1)
        memory = ops.sigmoid(f) * states[1] + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(memory), memory


class GruCell(Cell):
    """Gated recurrent unit, with the state h."""

    num_states = 1
    initial_bias = (0, 0, 0)
    closed_gates = (0, -_CLOSED, 0)

    def build(self, x_shape: tuple) -> None:
        super().build(x_shape)
        # Biases of the other two gates' products would only add to b.
        self.recurrent_bias = self.add_weight(
            name="recurrent_bias", shape=(self.size,), initializer="zeros"
        )

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
CELLS: dict[str, type[Cell]] = {"lstm": LstmCell, "gru": GruCell}


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

    The step is a function of an input [B, …] and states, which returns a nest
    of outputs [B, …] and the next states. From x [B, T, …] the result is a nest
    [B, T, …].
    """
    loop = keras.layers.RNN(_Step(step), return_sequences=True)
    _, outputs, _ = loop.inner_loop(x, tuple(states), mask=None)
    return outputs


class RecurrentLayer(dense.Composite):
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
        """Create the cell, of a type in CELLS, for outputs of size D.

        Dropout is that of the input. In reverse, the last position comes first.
        """
        super().__init__(**kwargs)
        self.reverse = reverse
        self.cell = self.new_layer(CELLS[cell_type], size, name="cell")
        self.dropout = self.new_layer(Dropout, dropout_rate, name="dropout")

    def build(self, x_shape: tuple) -> None:
        self.cell.build(x_shape)  # before the loop, whose tensors are its own

    def call(
        self, x: Tensor, mask: Tensor | None = None, rng: Rng | None = None
    ) -> Tensor:
        """Return the outputs [B, T, D] of inputs x [B, T, E].

        `mask` [B, T] bool is False at padding, and only read in reverse.
        """
        gates = self.cell.project(self.dropout(x, rng=rng))
        return self.run(gates, mask)

    def run(self, gates: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return call()'s outputs of cell.project()'s result [B, T, gates]."""
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
        """Return the output […, D] of x […, E] at one position, next states."""
        states = self.cell.step(self.cell.project(x), states)
        return self.cell.output(states), states


class BidirectionalLayer(dense.Composite):
    """Two recurrent layers, forward and in reverse, side by side."""

    def __init__(
        self, cell_type: str, size: int, dropout_rate: float, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.forward, self.backward = (
            self.new_layer(
                RecurrentLayer,
                cell_type,
                size,
                dropout_rate,
                reverse=name == "backward",
                name=name,
            )
            for name in ("forward", "backward")
        )

    def call(self, x: Tensor, mask: Tensor, rng: Rng | None = None) -> Tensor:
        """Return the outputs [B, T, 2 D] of inputs x [B, T, E].

        `mask` [B, T] bool is False at padding.
        """
        forward = self.forward(x, mask, rng=rng)
        backward = self.backward(x, mask, rng=rng)
        return ops.concatenate([forward, backward], axis=-1)


class Source(NamedTuple):
    """Encoded sentences, as a decoder reads them."""

    memory: Tensor  # [B, L, C], the encoder's final states
    keys: Tensor  # [B, L, A], their projections
    mask: Tensor  # [B, L] bool, False at padding


class SourceAttention(dense.Parent, keras.layers.Layer):
    """Attention of a decoder whose values are the memory itself.

    Bahdanau et al. 2014 (arXiv 1409.0473), appendix A.1.2, if `attention_type`
    is "additive": logits v · tanh(W q + U m).

    With several hops the query of hop k + 1 is the query of hop k plus its
    context, and all hops share their weights: end-to-end memory networks,
    Sukhbaatar et al. 2015 (arXiv 1503.08895), section 2.2, with the layer-wise
    weight tying of an RNN. The context is that of the last hop.
    """

    def __init__(
        self, size: int, attention_type: str, hops: int = 1, **kwargs: Any
    ) -> None:
        """Create the sublayers.

        Args:
            size: A, the size of the projections of queries and keys.
            attention_type: a key of attention.COMPATIBILITIES.
            hops: number of hops; several need queries as wide as the memory.
        """
        super().__init__(**kwargs)
        self.size = size
        self.hops = hops
        self.query, self.key = (
            self.new_layer(dense.Dense, size, use_bias=False, name=name)
            for name in ("query", "key")
        )
        self.compatibility = self.new_layer(
            attention.COMPATIBILITIES[attention_type], name="compatibility"
        )

    def build(self, queries_shape: tuple, memory_shape: tuple) -> None:
        self.query.build(queries_shape)
        self.key.build(memory_shape)
        # Not every type has weights: a call builds those that have.
        vector = ops.zeros((1, 1, 1, self.size), self.compute_dtype)
        self.compatibility(vector, vector)

    def project(self, memory: Tensor, mask: Tensor) -> Source:
        """Return what all queries share, for memory [B, L, C]."""
        return Source(memory, self.key(memory), mask)

    def attend(self, queries: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """Attend from queries [B, W, D].

        Returns:
            contexts [B, W, C]; weights [B, hops, W, L] float32.
        """
        contexts, weights = self._hop(queries, source)
        weights_of_hops = [weights]
        for _ in range(self.hops - 1):
            queries = queries + contexts
            contexts, weights = self._hop(queries, source)
            weights_of_hops.append(weights)
        return contexts, ops.concatenate(weights_of_hops, axis=1)

    def _hop(self, queries, source):
        """Return contexts [B, W, C] and weights [B, 1, W, L] of one hop."""
        projected = self.query(queries)[:, None]  # [B, 1, W, A]
        logits = self.compatibility(projected, source.keys[:, None])
        # [B, 1, W, L]
        weights = attention.masked_softmax(logits, source.mask[:, None, None])
        rounded = ops.cast(weights[:, 0], source.memory.dtype)
        return ops.matmul(rounded, source.memory), weights


class AttentiveLayer(dense.Parent, keras.layers.Layer):
    """A cell whose input is x and the context of its previous output.

    At step i the layer attends with its output of step i - 1, zero at first,
    and its cell's input is [x; context]. The product with x is computed for all
    steps at once, that with the context within the loop.
    """

    def __init__(
        self,
        cell_type: str,
        size: int,
        attention_size: int,
        attention_type: str,
        hops: int,
        dropout_rate: float,
        **kwargs: Any,
    ) -> None:
        """Create the cell, of a type in CELLS, and the SourceAttention.

        `size` is D, that of the output. Dropout is that of the cell's input.
        """
        super().__init__(**kwargs)
        self.size = size
        self.dropout_rate = dropout_rate
        self.cell = self.new_layer(CELLS[cell_type], size, name="cell")
        self.context_projection = self.new_layer(
            dense.Dense,
            self.cell.num_gates * size,
            use_bias=False,
            name="context_projection",
        )
        self.attention = self.new_layer(
            SourceAttention,
            attention_size,
            attention_type,
            hops,
            name="attention",
        )
        self.dropout, self.context_dropout = (
            self.new_layer(Dropout, dropout_rate, name=name)
            for name in ("dropout", "context_dropout")
        )

    def build(self, x_shape: tuple, memory_shape: tuple) -> None:
        # All before the loop, whose tensors are its own.
        self.cell.build(x_shape)
        self.context_projection.build(memory_shape)
        queries_shape = (*x_shape[:-1], self.size)
        self.attention.build(queries_shape, memory_shape)

    def call(
        self, x: Tensor, memory: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the layer on x [B, T, E], memory [B, L, C] and mask [B, L].

        Returns:
            outputs [B, T, D], contexts [B, T, C] before dropout, weights
            [B, T, hops, L] float32.
        """
        source = self.attention.project(memory, mask)
        gates = self.cell.project(self.dropout(x, rng=rng))
        width = gates.shape[-1]
        if rng is not None and self.dropout_rate:
            # Factors of the contexts of all steps: the loop has one input.
            shape = (*ops.shape(x)[:2], memory.shape[-1])
            factors = self.context_dropout(ops.ones(shape, x.dtype), rng=rng)
            gates = ops.concatenate([gates, factors], axis=-1)

        def step(gates: Tensor, states: Sequence) -> tuple:
            query = self.cell.output(states)[:, None]
            context, weights = self.attention.attend(query, source)
            context, weights = context[:, 0], weights[:, :, 0]
            gates, factors = gates[:, :width], gates[:, width:]
            dropped = context * factors if factors.shape[-1] else context
            gates = gates + self.context_projection(dropped)
            states = self.cell.step(gates, states)
            return (self.cell.output(states), context, weights), states

        states = self.cell.initial_states((ops.shape(x)[0],))
        return scan(step, gates, states)

    def step(
        self, x: Tensor, states: Sequence, source: Source
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """Run one step of W beams on x [B, W, E] and the cell's states.

        Returns:
            output [B, W, D], context [B, W, C], weights [B, hops, W, L], next
            states.
        """
        query = self.cell.output(states)
        context, weights = self.attention.attend(query, source)
        states = self.cell.step(self.gates(x, context), states)
        return self.cell.output(states), context, weights, states

    def gates(self, x: Tensor, context: Tensor) -> Tensor:
        """Return the projections […, gates] of x and its contexts […, C]."""
        return self.cell.project(x) + self.context_projection(context)
