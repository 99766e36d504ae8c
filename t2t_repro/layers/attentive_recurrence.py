"""Recurrent layer that attends to the source at every step."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import dense, recurrence, recurrent_cell
from t2t_repro.layers.dropout import Dropout
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.source_attention import Source, SourceAttention
from t2t_repro.runtime.types import Tensor


class AttentiveLayer(keras.layers.Layer):
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
        """Create cell and attention.

        Args:
            cell_type: a key of recurrent_cell.TYPES.
            size: D, the size of the output.
            attention_size: A, of the projections of queries and keys.
            attention_type: a key of compatibility.TYPES.
            hops: attention hops in each step.
            dropout_rate: share of the cell's input that is dropped.
            **kwargs: arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.size = size
        self.dropout_rate = dropout_rate
        self.cell = recurrent_cell.TYPES[cell_type](
            size, name="cell", dtype=self.dtype_policy
        )
        self.context_projection = dense.Dense(
            self.cell.num_gates * size,
            use_bias=False,
            name="context_projection",
            dtype=self.dtype_policy,
        )
        self.attention = SourceAttention(
            attention_size,
            attention_type,
            hops,
            name="attention",
            dtype=self.dtype_policy,
        )
        self.dropout, self.context_dropout = (
            Dropout(dropout_rate, name=name, dtype=self.dtype_policy)
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
        """Run the layer on x [B, T, E].

        Args:
            x: inputs.
            memory: [B, L, C].
            mask: [B, L] bool, False at padding.
            rng: state of random numbers; None at inference.

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
        return recurrence.scan(step, gates, states)

    def step(
        self, x: Tensor, states: Sequence, source: Source
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """Run one step of W beams.

        Args:
            x: [B, W, E].
            states: of the cell, [B, W, D] each.
            source: result of attention.project().

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
