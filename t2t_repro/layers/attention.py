"""Multi-head attention (section 3.2)."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras import ops

from t2t_repro.layers import (
    compatibility,
    composite,
    dense,
    dropout,
    masks,
    step_projection,
)
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.step_projection import Projection
from t2t_repro.runtime.types import Tensor


class KeyValues(NamedTuple):
    """Keys and values that lie in one array and that a step attends to."""

    key: Tensor  # [B, H, L, K]
    value: Tensor  # [B, H, L, K]
    length: Tensor | int  # L, computed once for all layers
    distances: Tensor | None = None  # [B, L] int32; None: not needed


class StepKernels(NamedTuple):
    """Projections of an attention in the steps of a search."""

    inputs: Projection  # to queries, or to queries, keys and values
    output: Projection


class MultiHeadAttention(composite.Composite):
    """Multi-head attention with projections per head (section 3.2.2).

    Queries come from x [B, T, D]. Keys and values come from `memory`
    [B, L, D], or in decoding from a cache that the caller keeps. Keys and
    values may differ in size. Without `use_bias`, the projections have no
    bias, as in tensor2tensor.

    Masks are explicit arguments: bool, broadcast to [B, H, T, L], True where
    the query may attend to the key.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        key_channels: int,
        value_channels: int,
        attention_type: str,
        dropout_rate: float,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        """Create the sublayers.

        Args:
            hidden_size: D.
            num_heads: H.
            key_channels: total size of the keys of all heads, H * K.
            value_channels: total size of the values of all heads.
            attention_type: a key of compatibility.TYPES.
            dropout_rate: share of the attention weights that is dropped.
            use_bias: whether the projections have biases.
            **kwargs: arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.key_channels = key_channels
        self.value_channels = value_channels
        self.attention_type = attention_type
        self.dropout_rate = dropout_rate
        self.use_bias = use_bias
        for name, size in (
            ("query", key_channels),
            ("key", key_channels),
            ("value", value_channels),
            ("output_projection", hidden_size),
        ):
            projection = dense.Dense(
                size, use_bias=use_bias, name=name, dtype=self.dtype_policy
            )
            setattr(self, name, projection)
        self.compatibility = compatibility.TYPES[attention_type](
            name="compatibility", dtype=self.dtype_policy
        )
        self.dropout = dropout.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )

    def split_heads(self, x: Tensor) -> Tensor:
        """Split the channels of x [B, T, H * K] to [B, H, T, K]."""
        batch, length, channels = ops.shape(x)
        head_size = channels // self.num_heads
        x = ops.reshape(x, (batch, length, self.num_heads, head_size))
        return ops.transpose(x, (0, 2, 1, 3))

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values [B, H, L, K] of `memory` [B, L, D]."""
        key = self.split_heads(self.key(memory))
        return key, self.split_heads(self.value(memory))

    def logits(
        self, query: Tensor, key: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        """Return the logits [B, H, T, L] of queries and keys.

        Args:
            query: [B, H, T, K].
            key: [B, H, L, K].
            distances: [B, L] int32, from all queries to each key. None: both
                have the positions 0, 1, 2, …. Only subclasses read it.
        """
        return self.compatibility(query, key)

    def weighted_sum(
        self, weights: Tensor, value: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        """Return the values' weighted sum [B, H, T, K].

        Args:
            weights: [B, H, T, L].
            value: [B, H, L, K].
            distances: as in logits().
        """
        return ops.matmul(weights, value)

    def call(
        self,
        x: Tensor,
        mask: Tensor,
        memory: Tensor | None = None,
        rng: Rng | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend from x to `memory`, or to x itself.

        Computes equation 1, or another compatibility function instead.

        Returns:
            output [B, T, D]; weights [B, H, T, L] float32, before dropout.
        """
        memory = x if memory is None else memory
        key, value = self.project_memory(memory)
        query = self.split_heads(self.query(x))
        context, weights = self.attend(query, key, value, mask, rng)
        batch, _, length, _ = ops.shape(context)
        context = ops.transpose(context, (0, 2, 1, 3))  # [B, T, H, K]
        context = ops.reshape(context, (batch, length, self.value_channels))
        return self.output_projection(context), weights

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor,
        rng: Rng | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the context of each query, and the attention weights.

        Args:
            query: [B, H, T, K].
            key: [B, H, L, K].
            value: [B, H, L, K].
            mask: bool, broadcast to [B, H, T, L].
            rng: state of random numbers; None at inference.

        Returns:
            context [B, H, T, K]; weights [B, H, T, L] float32, before dropout.
        """
        weights = masks.softmax(self.logits(query, key), mask)
        dropped = self.dropout(ops.cast(weights, value.dtype), rng=rng)
        return self.weighted_sum(dropped, value), weights

    def split_beams_and_heads(self, x: Tensor, num_beams: int) -> Tensor:
        """Split x [B * W, H * K] to [B, H, W, K]."""
        head_size = x.shape[-1] // self.num_heads
        x = ops.reshape(x, (-1, num_beams, self.num_heads, head_size))
        return ops.transpose(x, (0, 2, 1, 3))

    def step_kernels(self, with_memory: bool) -> StepKernels:
        """Return the projections of steps.

        Args:
            with_memory: whether steps also project keys and values.
        """
        layers = (self.query, self.key, self.value)
        return StepKernels(
            step_projection.join(*layers[: 3 if with_memory else 1]),
            step_projection.join(self.output_projection),
        )

    def project_step(
        self, x: Tensor, num_beams: int, kernels: StepKernels, with_memory: bool
    ) -> list[Tensor]:
        """Return the query [B, H, W, K] of x [B * W, D], or also key and value.

        Args:
            x: one position of W beams.
            num_beams: W.
            kernels: result of step_kernels(with_memory).
            with_memory: whether to return the key and the value, too.
        """
        sizes = (self.key_channels, self.key_channels, self.value_channels)
        outputs = step_projection.project_and_split(
            x, kernels.inputs, sizes[: 3 if with_memory else 1]
        )
        return [self.split_beams_and_heads(x, num_beams) for x in outputs]

    def step(
        self,
        query: Tensor,
        key_values: Sequence[KeyValues],
        mask: Tensor,
        kernels: StepKernels,
    ) -> tuple[Tensor, Tensor]:
        """Attend from one position: W beams are W queries of a sentence.

        Args:
            query: [B, H, W, K].
            key_values: one KeyValues per array; together they have L keys.
            mask: [B, 1, W or 1, L].
            kernels: result of step_kernels().

        Returns:
            output [B * W, D], weights [B, H, W, L] float32.
        """
        logits = [self.logits(query, kv.key, kv.distances) for kv in key_values]
        weights = masks.softmax(ops.concatenate(logits, axis=-1), mask)
        parts = _split(
            ops.cast(weights, query.dtype), [kv.length for kv in key_values]
        )
        contexts = [
            self.weighted_sum(part, kv.value, kv.distances)
            for part, kv in zip(parts, key_values, strict=True)
        ]
        context = functools.reduce(ops.add, contexts)
        context = ops.transpose(context, (0, 2, 1, 3))  # [B, W, H, K]
        context = ops.reshape(context, (-1, self.value_channels))
        (output,) = step_projection.project_and_split(
            context, kernels.output, (self.hidden_size,)
        )
        return output, weights


def _split(x: Tensor, lengths: Sequence[Tensor | int]) -> list[Tensor]:
    """Split x [..., L] into parts of these lengths, whose sum is L."""
    if len(lengths) == 1:
        return [x]
    *ends, _ = itertools.accumulate(lengths)
    bounds = itertools.pairwise([None, *ends, None])
    return [x[..., start:end] for start, end in bounds]
