"""Multi-head attention (section 3.2): masks, compatibility functions, layers.

Masks are True where a query may attend to a key. Segment ids number the
sentences of a packed row from 1; padding has the id 0. In decoding,
Cache.visible_mask of models/transformer_stack.py replaces them.

A compatibility function of queries and keys (section 3.2.1) is a layer, called
on query [B, H, T, K] and key [B, H, L, K], that returns the logits
[B, H, T, L]. Keys and values may have fewer heads, [B, G, L, K], which H / G
consecutive heads of queries share.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_repro.layers import dense, embedding
from t2t_repro.layers.dense import Projection
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.runtime import graph
from t2t_repro.runtime.keras_compat import Int, Tensor

MASKED = -1e9  # logit of a masked key: exp(-1e9) is 0 in float32


def same_segment_mask(query_segments: Tensor, key_segments: Tensor) -> Tensor:
    """Return a mask [B, 1, T, L] that is True within each sentence of a row.

    Segment ids are [B, T] and [B, L]; keys that are padding are masked.
    """
    same = query_segments[:, :, None] == key_segments[:, None, :]
    real = key_segments[:, None, :] > 0
    return ops.logical_and(same, real)[:, None]


def causal_mask(query_indices: Tensor, key_indices: Tensor) -> Tensor:
    """Return a mask [1, 1, T, L] that is True unless the key comes later.

    Indices in the row are [T] and [L].
    """
    return (query_indices[:, None] >= key_indices)[None, None]


def restricted_mask(
    query_indices: Tensor, key_indices: Tensor, reach: int
) -> Tensor:
    """Return a mask [1, 1, T, L] that is True where |i - j| < reach.

    This is the "restricted" self-attention of section 4. The paper's r is the
    size of the neighbourhood, here 2 reach - 1. Indices are [T] and [L].
    """
    distances = query_indices[:, None] - key_indices
    return (ops.absolute(distances) < reach)[None, None]


def has_key(mask: Tensor) -> Tensor:
    """Return [B, T] bool of a mask [B, 1, T, T]: whether a query has any key.

    In self-attention these are the queries that are not padding.
    """
    return ops.any(mask, axis=(1, 3))


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the masked softmax of logits [..., L], in float32.

    Sums of many exponentials lose their small terms in 16 bits, and float16
    ends at 65,504. (TensorFlow 2.21 would fuse a bias in place of the mask with
    the product and its scale, and the result has a wrong shape.)
    """
    return ops.softmax(ops.where(mask, ops.cast(logits, "float32"), MASKED))


def grouped_matmul(x: Tensor, y: Tensor) -> Tensor:
    """Multiply x [B, H, T, M] by y [B, G, M, N]; H / G heads share one of y."""
    heads, groups = x.shape[1], y.shape[1]
    if heads == groups:
        return ops.matmul(x, y)
    batch, _, length, size = ops.shape(x)  # no -1: M is 0 before the first step
    rows = ops.reshape(x, (batch, groups, heads // groups * length, size))
    return ops.reshape(
        ops.matmul(rows, y), (batch, heads, length, ops.shape(y)[3])
    )


def _transpose(x):
    """Return [B, H, T, K] -> [B, H, K, T]."""
    return ops.transpose(x, (0, 1, 3, 2))


class DotProduct(keras.layers.Layer):
    """Scaled dot product of equation 1: q · k / sqrt(K)."""

    products = 1  # K of them for a query and a key; each is 2 FLOPs

    def scale(self, query: Tensor) -> Tensor:
        """Return the query [B, H, T, K], scaled for the product with keys."""
        return query * query.shape[-1] ** -0.5

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        query = self.scale(query)
        if graph.shapes_are_fixed() and query.shape[1] == key.shape[1]:
            # XLA copies a transposed second factor: here the few queries of a
            # step rather than all keys.
            return _transpose(ops.matmul(key, _transpose(query)))
        return grouped_matmul(query, _transpose(key))


class UnscaledDotProduct(DotProduct):
    """q · k, of variance K for q and k of variance 1 (footnote 4)."""

    def scale(self, query: Tensor) -> Tensor:
        return query


class Additive(keras.layers.Layer):
    """v · tanh(q + k), with a weight vector v [K] for each head.

    Bahdanau et al. 2014 (arXiv 1409.0473), appendix A.1.2: their matrices W
    and U are the projections of queries and keys. The dot product is "much
    faster and more space-efficient": here each pair of a query and a key
    costs K hyperbolic tangents, which the backward pass reads again.
    """

    products = 2  # a sum, a tanh, and the product with v

    def build(self, query_shape: tuple, key_shape: tuple) -> None:
        _, heads, _, size = query_shape
        self.weight = self.add_weight(name="weight", shape=(heads, size))

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        if query.shape[1] != key.shape[1]:
            key = ops.repeat(key, query.shape[1] // key.shape[1], axis=1)
        sums = query[:, :, :, None] + key[:, :, None]  # [B, H, T, L, K]
        weight = ops.cast(self.weight, query.dtype)[:, None, None]
        # XLA fuses the sum with the tanh; it could not fuse a matrix product.
        return ops.sum(weight * ops.tanh(sums), axis=-1)


# Values of HParams.attention_type.
COMPATIBILITIES: dict[str, Any] = {
    "dot_product": DotProduct,
    "dot_product_unscaled": UnscaledDotProduct,
    "additive": Additive,
}


class KeyValues(NamedTuple):
    """Keys and values that lie in one array and that a step attends to."""

    key: Tensor  # [B, G, L, K]
    value: Tensor  # [B, G, L, K]
    length: Int  # L, computed once for all layers
    distances: Tensor | None = None  # [B, L] int32; None: not needed


class StepKernels(NamedTuple):
    """Projections of an attention in the steps of a search."""

    inputs: Projection  # to queries, or to queries, keys and values
    output: Projection


class MultiHeadAttention(dense.Composite):
    """Multi-head attention with projections per head (section 3.2.2).

    Queries come from x [B, T, D]. Keys and values come from `memory`
    [B, L, D], or in decoding from a cache that the caller keeps. Keys and
    values may differ in size, and have fewer heads than queries (grouped
    queries: Ainslie et al. 2023, arXiv 2305.13245). Without `use_bias`, the
    projections have no bias, as in tensor2tensor.

    Subclasses may override at_positions(), logits() and weighted_sum(), which
    the full pass and the steps of a search share.

    Masks are explicit arguments: bool, broadcast to [B, H, T, L], True where
    the query may attend to the key.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int | tuple[int, int],
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
            num_heads: H, or also the heads G of keys and values, a divisor.
            key_channels: total size of the queries of all heads, H * K.
            value_channels: total size of the outputs of all heads.
            attention_type: a key of COMPATIBILITIES.
            dropout_rate: share of the attention weights that is dropped.
            use_bias: whether the projections have biases.
        """
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        if isinstance(num_heads, int):
            num_heads = num_heads, num_heads
        self.num_heads, self.num_key_value_heads = num_heads
        self.key_channels = key_channels
        self.value_channels = value_channels
        self.attention_type = attention_type
        self.use_bias = use_bias
        # Widths of queries, keys and values of all their heads.
        self.channels = (
            key_channels,
            key_channels // self.num_heads * self.num_key_value_heads,
            value_channels // self.num_heads * self.num_key_value_heads,
        )
        for name, size in zip(
            ("query", "key", "value", "output_projection"),
            (*self.channels, hidden_size),
            strict=True,
        ):
            projection = self.new_layer(
                dense.Dense, size, use_bias=use_bias, name=name
            )
            setattr(self, name, projection)
        self.compatibility = self.new_layer(
            COMPATIBILITIES[attention_type], name="compatibility"
        )
        self.dropout = self.new_layer(Dropout, dropout_rate, name="dropout")

    def at_positions(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Return what represents queries or keys x [B, N, T, K] in logits().

        Positions [T] or [] are indices in the row; None in cross-attention.
        Within a sentence of a packed row, their differences are those of
        positions in the sentence.
        """
        return x

    def project_memory(
        self, memory: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values [B, G, L, K] of `memory` [B, L, D]."""
        length, groups = ops.shape(memory)[1], self.num_key_value_heads
        key = _split_heads(self.key(memory), length, groups)
        value = _split_heads(self.value(memory), length, groups)
        return self.at_positions(key, positions), value

    def logits(
        self, query: Tensor, key: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        """Return the logits [B, H, T, L] of queries and keys.

        `distances` [B, L] int32 are those from all queries to each key. None:
        both have the positions 0, 1, 2, …. Only subclasses read them.
        """
        return self.compatibility(query, key)

    def weighted_sum(
        self, weights: Tensor, value: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        """Return the values' sum [B, H, T, K], weighted by [B, H, T, L]."""
        return grouped_matmul(weights, value)

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
        length = ops.shape(x)[1]
        positions = ops.arange(length) if memory is None else None
        memory = x if memory is None else memory
        key, value = self.project_memory(memory, positions)
        query = _split_heads(self.query(x), length, self.num_heads)
        query = self.at_positions(query, positions)
        weights = masked_softmax(self.logits(query, key), mask)
        dropped = self.dropout(ops.cast(weights, value.dtype), rng=rng)
        context = self.weighted_sum(dropped, value)  # [B, H, T, K]
        batch, _, length, _ = ops.shape(context)
        context = ops.transpose(context, (0, 2, 1, 3))  # [B, T, H, K]
        context = ops.reshape(context, (batch, length, self.value_channels))
        return self.output_projection(context), weights

    def step_kernels(self, with_memory: bool) -> StepKernels:
        """Return the projections of steps, also of keys if `with_memory`."""
        layers = (self.query, self.key, self.value)
        return StepKernels(
            dense.join_kernels(*layers[: 3 if with_memory else 1]),
            dense.join_kernels(self.output_projection),
        )

    def project_step(
        self,
        x: Tensor,
        num_beams: Int,
        kernels: StepKernels,
        position: Tensor | None = None,
    ) -> list[Tensor]:
        """Return the query [B, H, W, K] of x [B * W, D], or also key and value.

        `position` [] is that of all queries; None in cross-attention, which
        projects the query alone. `kernels` are those of step_kernels().
        """
        outputs = dense.project_and_split(
            x, kernels.inputs, self.channels[: 1 if position is None else 3]
        )
        groups = self.num_key_value_heads
        query, *key_value = (
            _split_heads(x, num_beams, heads)
            for x, heads in zip(
                outputs, (self.num_heads, groups, groups), strict=False
            )
        )
        query = self.at_positions(query, position)
        if position is None:
            return [query]
        key, value = key_value
        return [query, self.at_positions(key, position), value]

    def step(
        self,
        query: Tensor,
        key_values: Sequence[KeyValues],
        mask: Tensor,
        kernels: StepKernels,
    ) -> tuple[Tensor, Tensor]:
        """Attend from one position: W beams are W queries of a sentence.

        The query is [B, H, W, K], and the mask [B, 1, W or 1, L] for the L keys
        of all `key_values`.

        Returns:
            output [B * W, D], weights [B, H, W, L] float32.
        """
        logits = [self.logits(query, kv.key, kv.distances) for kv in key_values]
        weights = masked_softmax(ops.concatenate(logits, axis=-1), mask)
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
        (output,) = dense.project_and_split(
            context, kernels.output, (self.hidden_size,)
        )
        return output, weights


class RelativeAttention(MultiHeadAttention):
    """Attention with a learned vector of each distance j - i.

    Equations 3 and 4 of Shaw et al. 2018 (arXiv 1803.02155). Row
    clip(j - i, -M, M) + M of one table [2 M + 1, K] is a_ij, of another table
    b_ij; all heads of a layer share both:

        logits_ij = q_i · (k_j + a_ij) / sqrt(K)
        output_i = sum_j weights_ij (v_j + b_ij)

    The compatibility function must be a dot product, which HParams check.
    Distances are those of indices in the row: within a sentence of a packed
    row, they equal those of positions.
    """

    def __init__(self, max_relative_position: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_relative_position = max_relative_position

    def build(self, x_shape: tuple) -> None:
        rows = 2 * self.max_relative_position + 1
        for name, channels in (
            ("relative_keys", self.key_channels),
            ("relative_values", self.value_channels),
        ):
            shape = (rows, channels // self.num_heads)
            setattr(self, name, self.add_weight(name=name, shape=shape))

    def logits(
        self, query: Tensor, key: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        table = self.relative_keys
        vectors, axes = self._distance_vectors(table, key, distances)
        scaled_query = self.compatibility.scale(query)
        relative = ops.einsum(f"bhtk,{axes}->bhtl", scaled_query, vectors)
        return super().logits(query, key) + relative

    def weighted_sum(
        self, weights: Tensor, value: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        table = self.relative_values
        vectors, axes = self._distance_vectors(table, value, distances)
        relative = ops.einsum(f"bhtl,{axes}->bhtk", weights, vectors)
        return super().weighted_sum(weights, value) + relative

    def _distance_vectors(
        self, table: Tensor, keys: Tensor, distances: Tensor | None
    ) -> tuple[Tensor, str]:
        """Return the table's rows for all distances, and their einsum axes.

        They are [B, L, K] and "blk", or [L, L, K] and "tlk" for the distances
        between L positions.
        """
        limit, axes = self.max_relative_position, "blk"
        if distances is None:
            indices = ops.arange(ops.shape(keys)[2])
            distances, axes = indices - indices[:, None], "tlk"
        rows = ops.clip(distances, -limit, limit) + limit
        # The gradient of a product with one-hot rows is a product too. That of
        # a look-up would add T * L vectors to 2 M + 1 rows one by one.
        one_hot = ops.one_hot(rows, 2 * limit + 1, dtype=keys.dtype)
        return ops.matmul(one_hot, ops.cast(table, keys.dtype)), axes


class RotaryAttention(MultiHeadAttention):
    """Self-attention whose queries and keys are rotated by their positions.

    Su et al. 2021 (arXiv 2104.09864), section 3.2.2: position p turns the pair
    of components i and i + K / 2 by p / 10000^(2i/K), so that the product of a
    query and a key depends on their distance. The paper pairs neighbours, which
    is the same up to the order of components. These are the pairs of Llama.
    """

    def at_positions(self, x: Tensor, positions: Tensor | None) -> Tensor:
        half = x.shape[-1] // 2
        angles = embedding.angles(
            positions, ops.arange(half, dtype="float32") / half
        )
        sine, cosine = ops.sin(angles), ops.cos(angles)
        first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
        rotated = ops.concatenate(
            [first * cosine - second * sine, second * cosine + first * sine],
            axis=-1,
        )
        return ops.cast(rotated, x.dtype)


def position_buckets(
    count: int, max_distance: int, is_causal: bool
) -> np.ndarray:
    """Return the bucket [2 M + 1] of each distance j - i from -M to M.

    Half of a direction's buckets are of one distance each, and the others of
    ranges whose ends grow exponentially up to M, in float32 as T5 computes
    them. Without `is_causal`, half of the buckets are of later positions.
    """
    count = count if is_causal else count // 2  # of a direction
    single = count // 2
    distances = np.arange(max_distance + 1)
    octaves = np.log(np.maximum(distances, single).astype("float32") / single)
    share = octaves / math.log(max_distance / single)
    ranges = single + (share * (count - single)).astype("int32")
    ranges = np.minimum(ranges, count - 1)
    buckets = np.where(distances < single, distances, ranges)
    later = 0 * buckets if is_causal else buckets + count
    return np.concatenate([buckets[::-1], later[1:]])


class PositionBuckets(keras.layers.Layer):
    """Learned bias of each head for buckets of distances between positions.

    Raffel et al. 2020 (arXiv 1910.10683), section 2.1: the layers of an encoder
    or of a decoder share one table [buckets, H].
    """

    def __init__(
        self,
        num_heads: int,
        count: int,
        max_distance: int,
        is_causal: bool,
        **kwargs: Any,
    ) -> None:
        """Store H; the others are those of position_buckets()."""
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.count = count
        self.max_distance = max_distance
        self.buckets = position_buckets(count, max_distance, is_causal)

    def build(self, distances_shape: tuple) -> None:
        shape = (self.count, self.num_heads)
        self.table = self.add_weight(name="table", shape=shape)

    def call(self, distances: Tensor) -> Tensor:
        """Return the bias [B, H, T, L] of distances j - i [B, T, L]."""
        limit = self.max_distance
        rows = ops.clip(distances, -limit, limit) + limit
        buckets = ops.take(self.buckets, rows, axis=0)
        # Its gradient is a product, too: see RelativeAttention.
        one_hot = ops.one_hot(buckets, self.count, dtype=self.compute_dtype)
        bias = ops.matmul(one_hot, ops.cast(self.table, self.compute_dtype))
        return ops.transpose(bias, (0, 3, 1, 2))


class BucketAttention(MultiHeadAttention):
    """Self-attention with the bias of PositionBuckets: q_i · k_j + b_ij."""

    def __init__(self, position_buckets: PositionBuckets, **kwargs: Any):
        super().__init__(**kwargs)
        self.position_buckets = position_buckets

    def logits(
        self, query: Tensor, key: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        if distances is None:
            indices = ops.arange(ops.shape(key)[2])
            between = (indices - indices[:, None])[None]
        else:
            between = distances[:, None]
        return super().logits(query, key) + self.position_buckets(between)


def _split_heads(x: Tensor, length: Int, heads: int) -> Tensor:
    """Split x [B, T, H * K] or [B * T, H * K] to [B, H, T, K].

    `length` is T, which may also count beams.
    """
    x = ops.reshape(x, (-1, length, heads, x.shape[-1] // heads))
    return ops.transpose(x, (0, 2, 1, 3))


def _split(x: Tensor, lengths: Sequence[Int]) -> list[Tensor]:
    """Split x [..., L] into parts of these lengths, whose sum is L."""
    if len(lengths) == 1:
        return [x]
    *ends, _ = itertools.accumulate(lengths)
    bounds = itertools.pairwise([None, *ends, None])
    return [x[..., start:end] for start, end in bounds]
