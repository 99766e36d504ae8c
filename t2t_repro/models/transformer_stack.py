"""Encoder and decoder stacks (section 3.1): layers of residual sublayers.

Stack has layers, a layer has sublayers, and Cache has the keys and values of
self-attention in decoding. Here `hparams` are a TransformerHParams of
hparams/transformer.py.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import dense, sublayers
from t2t_repro.layers.attention import (
    KeyValues,
    MultiHeadAttention,
    StepKernels,
)
from t2t_repro.layers.dense import Projection
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.layers.sublayers import FeedForward
from t2t_repro.runtime import graph
from t2t_repro.runtime.keras_compat import Int, Tensor


class Parts(NamedTuple):
    """Classes of the sublayers of each layer.

    Each is called with the arguments of the class that it replaces, by name.
    Only `feed_forward` may lack step_kernels(): steps then call it.
    """

    self_attention: Callable[..., MultiHeadAttention] = MultiHeadAttention
    cross_attention: Callable[..., MultiHeadAttention] = MultiHeadAttention
    feed_forward: Callable[..., keras.layers.Layer] = FeedForward


class LayerKernels(NamedTuple):
    """Projections of a decoder layer in the steps of a search."""

    self_attention: StepKernels
    cross_attention: StepKernels
    ffn: tuple[Projection, ...]


class LayerCache(NamedTuple):
    """Keys and values that a decoder layer attends to in a step of a search."""

    past: KeyValues  # positions that no longer change
    recent: KeyValues  # the positions since, with empty entries
    memory: KeyValues  # the source
    position: Tensor  # [] int32, of the step


class _Layer(dense.Composite):
    """Layer of attentions and a feed-forward network, or what replaces it.

    Each is within a residual.
    """

    side: int  # 0 encoder, 1 decoder
    attentions: tuple[str, ...]
    self_attention: sublayers.Residual
    cross_attention: sublayers.Residual

    def __init__(self, hparams: Any, parts: Parts, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        size, heads = hparams.hidden_size, hparams.num_heads
        heads = heads, hparams.num_key_value_heads or heads
        for name in self.attentions:
            attention = self.new_layer(
                getattr(parts, name),
                hidden_size=size,
                num_heads=heads,
                key_channels=hparams.attention_key_channels or size,
                value_channels=hparams.attention_value_channels or size,
                attention_type=hparams.attention_type,
                dropout_rate=hparams.attention_dropout,
                use_bias=hparams.attention_bias,
                name="multihead_attention",
            )
            setattr(self, name, self._new_residual(hparams, name, attention))
        ffn = self._new_ffn(hparams, parts)
        self.ffn = self._new_residual(hparams, "ffn", ffn)

    def _new_ffn(self, hparams: Any, parts: Parts) -> keras.layers.Layer:
        return self.new_layer(
            parts.feed_forward,
            hidden_size=hparams.hidden_size,
            filter_size=hparams.filter_sizes[self.side],
            dropout_rate=hparams.relu_dropout,
            activation=hparams.ffn_activation,
            name="feed_forward",
        )

    def _new_residual(
        self, hparams: Any, name: str, sublayer: keras.layers.Layer
    ) -> sublayers.Residual:
        return self.new_layer(
            sublayers.Residual,
            sublayer,
            hparams.layer_preprocess_sequence,
            hparams.layer_postprocess_sequence,
            hparams.layer_prepostprocess_dropout,
            hparams.norm_epsilon,
            hparams.norm,
            name=name,
        )

    def _end(
        self, x: Tensor, self_mask: Tensor, weights: Any, rng: Rng | None
    ) -> tuple[Tensor, Any]:
        """Run the last sublayer; attention weights are the second output."""
        return self.ffn(x, rng=rng), weights


class EncoderLayer(_Layer):
    """Self-attention and feed-forward network."""

    side = 0
    attentions = ("self_attention",)

    def call(
        self, x: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run the layer on x [B, L, D] with mask [B, 1, L, L].

        Returns:
            output [B, L, D], weights [B, H, L, L].
        """
        x, weights = self.self_attention(x, (mask,), rng=rng)
        return self._end(x, mask, weights, rng)


class DecoderLayer(_Layer):
    """Self-attention, cross-attention and feed-forward network."""

    side = 1
    attentions = ("self_attention", "cross_attention")

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        self_mask: Tensor,
        cross_mask: Tensor,
        rng: Rng | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run the layer on x [B, T, D] and memory [B, L, D].

        Returns:
            output [B, T, D], weights of self-attention [B, H, T, T] and of
            cross-attention [B, H, T, L].
        """
        x, self_weights = self.self_attention(x, (self_mask,), rng=rng)
        x, cross_weights = self.cross_attention(
            x, (cross_mask, memory), rng=rng
        )
        return self._end(x, self_mask, (self_weights, cross_weights), rng)

    def step_kernels(self) -> LayerKernels:
        """Return what steps multiply with."""
        ffn = self.ffn.sublayer
        return LayerKernels(
            self.self_attention.sublayer.step_kernels(with_memory=True),
            self.cross_attention.sublayer.step_kernels(with_memory=False),
            ffn.step_kernels() if hasattr(ffn, "step_kernels") else (),
        )

    def step(
        self,
        x: Tensor,
        kernels: LayerKernels,
        cache: LayerCache,
        rows: Tensor,
        self_mask: Tensor,
        cross_mask: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        """Run the layer on one position: W beams are W queries of a sentence.

        Args:
            x: [B * W, D].
            kernels: result of step_kernels().
            cache: keys and values of previous positions and of the source.
            rows: [B * G, 1] int32, rows of `cache.recent` as an array
                [B * G * positions, W * K] to which this position is written.
            self_mask: [B, 1, W, L], where L counts past and recent entries.
            cross_mask: [B, 1, 1, L], where L counts source positions.

        Returns:
            output [B * W, D], key and value of `cache.recent` with this
            position's, cross-attention weights [B, H, W, L].
        """
        recent = cache.recent
        block, beams = self.self_attention, ops.shape(self_mask)[2]
        query, key, value = block.sublayer.project_step(
            block.input_norm(x),
            beams,
            kernels.self_attention,
            cache.position,
        )
        key = _write_rows(recent.key, key, rows, recent.length)
        value = _write_rows(recent.value, value, rows, recent.length)
        y, _ = block.sublayer.step(
            query,
            (cache.past, recent._replace(key=key, value=value)),
            self_mask,
            kernels.self_attention,
        )
        x = block.add(x, y)
        block = self.cross_attention
        (query,) = block.sublayer.project_step(
            block.input_norm(x), beams, kernels.cross_attention
        )
        y, weights = block.sublayer.step(
            query, (cache.memory,), cross_mask, kernels.cross_attention
        )
        x = self._ffn_step(block.add(x, y), kernels.ffn)
        return x, (key, value), weights

    def _ffn_step(self, x: Tensor, kernels: tuple[Projection, ...]) -> Tensor:
        if not kernels:
            y = self.ffn(x)  # a mixture of experts returns losses, too
            return y[0] if isinstance(y, tuple) else y
        y = self.ffn.sublayer.step(self.ffn.input_norm(x), kernels)
        return self.ffn.add(x, y)


def _write_rows(
    old: Tensor, new: Tensor, rows: Tensor, entries: Tensor | int
) -> Tensor:
    """Return a copy of `old` [B, G, S, K] with `new` [B, G, W, K] at `rows`.

    A row of S entries holds the W of one position. XLA updates a slice in
    place, but copies what it scatters to. (Elsewhere ops.slice_update would be
    an operation for which TF Serving has no kernel.)
    """
    _, heads, beams, size = ops.shape(new)
    if graph.shapes_are_fixed():
        return ops.slice_update(old, (0, 0, rows[0, 0] * beams, 0), new)
    width = beams * size
    written = ops.scatter_update(
        ops.reshape(old, (-1, width)), rows, ops.reshape(new, (-1, width))
    )
    return ops.reshape(written, (-1, heads, entries, size))


class Stack(dense.Composite):
    """Stack of norm and dropout of the embedded input, and layers.

    With pre-norm the stack normalizes the output of its last layer, as in
    tensor2tensor, since no layer follows that would.
    """

    def __init__(
        self,
        layer_classes: Sequence[type[keras.layers.Layer]],
        hparams: Any,
        parts: Parts,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_norm = self.new_layer(
            sublayers.norm_or_identity,
            hparams.embedding_norm,
            hparams.norm_epsilon,
            hparams.norm,
            name="input_norm",
        )
        self.dropout = self.new_layer(
            Dropout, hparams.layer_prepostprocess_dropout, name="dropout"
        )
        self.layers = [
            self.new_layer(layer_class, hparams, parts, name=f"layer_{i}")
            for i, layer_class in enumerate(layer_classes)
        ]
        self.norm = self.new_layer(
            sublayers.norm_or_identity,
            hparams.layer_preprocess_sequence == "n",
            hparams.norm_epsilon,
            hparams.norm,
            name="norm",
        )

    def call(
        self,
        x: Tensor,
        layer_args: tuple,
        rng: Rng | None = None,
        recompute_grad: bool = False,
    ) -> tuple[Tensor, list]:
        """Run the layers with further arguments on x [B, T, D].

        With `recompute_grad` the backward pass computes the activations within
        a layer again.

        Returns:
            output [B, T, D]; a list of each layer's second output, attention
            weights, empty if activations are recomputed.
        """
        x, weights = self.dropout(self.input_norm(x), rng=rng), []
        for layer in self.layers:
            if recompute_grad and rng is not None:
                x = _rematerialize(layer, x, layer_args, rng)
                continue
            x, layer_weights = layer(x, *layer_args, rng=rng)
            weights.append(layer_weights)
        return self.norm(x), weights


def _rematerialize(
    layer: keras.layers.Layer, x: Tensor, layer_args: tuple, rng: Rng
) -> Tensor:
    """Return the layer's output, and keep only its inputs for gradients.

    Arguments of keras.remat's function must have gradients. Masks and rng,
    which come last, are not floats, so the function captures them.
    """
    count = sum(keras.backend.is_float_dtype(a.dtype) for a in layer_args)

    def run(x: Tensor, *floats: Tensor) -> Tensor:
        return layer(x, *floats, *layer_args[count:], rng=rng)[0]

    return keras.remat(run)(x, *layer_args[:count])


_KeyValuePairs = tuple[tuple[Tensor, Tensor], ...]  # of each decoder layer


class Cache(NamedTuple):
    """Keys and values of all beams of a sentence, [B, …] each.

    An entry is the key and the value of a hypothesis at a position; S is the
    number of entries. An entry stays where it is: if a hypothesis continues in
    another beam, only its visibility [B, W, S] is reordered. W beams query the
    entries of all W under a mask.
    The first entries are the past, which is only read. After them come W
    entries for each recent position.
    """

    recent: _KeyValuePairs  # [B, G, recent entries, K]
    past: _KeyValuePairs  # [B, G, past entries, K]
    memory: _KeyValuePairs  # of the source, [B, G, L, K]
    positions: Tensor  # [B, S] int32, position of each entry, from 0
    memory_mask: Tensor  # [B, 1, 1, L] bool

    @classmethod
    def empty(
        cls,
        memory: Sequence[tuple[Tensor, Tensor]],
        memory_mask: Tensor,
        num_beams: Int,
        capacity: Int,
        dtype: str,
    ) -> tuple["Cache", Tensor]:
        """Create a cache without positions, and its visible [B, W, S] entries.

        Args:
            memory: keys and values of the source, one pair per layer.
            memory_mask: [B, 1, 1, L] bool.
            num_beams: W.
            capacity: number of recent positions before compact() is called.
            dtype: dtype of keys and values.
        """
        batch = ops.shape(memory_mask)[0]

        def zeros(count):
            key, value = (  # which may differ in size
                ops.zeros((batch, heads, count, size), dtype)
                for _, heads, _, size in map(ops.shape, memory[0])
            )
            return ((key, value),) * len(memory)

        first = ops.zeros((batch, 1), "int32")
        cache = cls(
            recent=zeros(capacity * num_beams),
            past=zeros(0),
            memory=tuple(memory),
            positions=_entry_positions(first, capacity, num_beams),
            memory_mask=memory_mask,
        )
        visible = ops.zeros((batch, num_beams, capacity * num_beams), "bool")
        return cache, visible

    def with_current(self, visible: Tensor, step: Tensor) -> Tensor:
        """Return visible entries [B, W, S] with each hypothesis's at `step`."""
        _, beams, count = ops.shape(visible)
        past = ops.shape(self.past[0][0])[2]
        current = (
            past + step % self._capacity(beams) * beams + ops.arange(beams)
        )
        is_current = ops.arange(count) == current[:, None]
        return ops.logical_or(visible, is_current)

    def visible_mask(
        self, visible: Tensor, step: Tensor, reach: int
    ) -> tuple[Tensor, Tensor]:
        """Return the mask of queries at `step`, and distances to the entries.

        They are [B, 1, W, S] bool and [B, S] int32. Entries at distances -reach
        and below are masked, unless reach is 0.
        """
        distances = self.positions - step
        mask = visible[:, None]
        if reach:
            mask = ops.logical_and(mask, (distances > -reach)[:, None, None])
        return mask, distances

    def write_rows(self, step: Tensor, beams: int) -> Tensor:
        """Return the rows to which keys and values of `step` are written.

        They are [B * G, 1] of an array [B * G * recent positions, W * K].
        """
        batch, heads = ops.shape(self.recent[0][0])[:2]
        capacity = self._capacity(beams)
        return (ops.arange(batch * heads) * capacity + step % capacity)[:, None]

    def layers(self, distances: Tensor, step: Tensor) -> Iterator[LayerCache]:
        """Yield the LayerCache of each layer at `step`.

        Distances are those of visible_mask().
        """
        groups = self.past, self.recent, self.memory
        past, recent, source = (ops.shape(pairs[0][0])[2] for pairs in groups)
        of_past = past, distances[:, :past]
        of_recent = recent, distances[:, past:]
        for old, new, memory in zip(*groups, strict=True):
            yield LayerCache(
                KeyValues(*old, *of_past),
                KeyValues(*new, *of_recent),
                KeyValues(*memory, source),
                step,
            )

    def compact(self, visible: Tensor) -> tuple["Cache", Tensor]:
        """Move recent positions to the past, and empty the recent entries.

        A step copies the recent entries to write to them, but only reads the
        past. Entries that no hypothesis sees are dropped: all W hypotheses
        share their ancestor of a few steps ago, so that such a position needs
        one entry rather than W.

        Returns:
            Cache, visible [B, W, S] bool.
        """
        used = ops.cast(ops.any(visible, axis=1), "int32")  # [B, S]
        order = ops.argsort(-used, axis=1)  # used entries first
        if not graph.shapes_are_fixed():
            order = order[:, : ops.max(ops.sum(used, axis=1), initial=0)]
        batch, beams, _ = ops.shape(visible)
        visible = _take_entries(visible[..., None], order)[..., 0]
        positions = self.positions[:, None, :, None]
        positions = _take_entries(positions, order)[:, 0, :, 0]
        capacity = self._capacity(beams)
        unseen = ops.zeros((batch, beams, capacity * beams), "bool")
        recent = _entry_positions(self.positions[:, -1:] + 1, capacity, beams)
        cache = self._replace(
            past=keras.tree.map_structure(
                lambda *arrays: _take_entries(
                    ops.concatenate(arrays, axis=2), order
                ),
                self.past,
                self.recent,
            ),
            positions=ops.concatenate([positions, recent], axis=1),
        )
        return cache, ops.concatenate([visible, unseen], axis=2)

    def _capacity(self, beams: int) -> Int:
        """Return the number of recent positions."""
        return ops.shape(self.recent[0][0])[2] // beams


def _entry_positions(
    first: Tensor, capacity: Tensor | int, beams: int
) -> Tensor:
    """Return positions of recent entries [B, S] from `first` [B, 1] on."""
    return first + ops.repeat(ops.arange(capacity), beams)


def _take_entries(array: Tensor, order: Tensor) -> Tensor:
    """Take entries `order` [B, S'] of [B, N, S, K], giving [B, N, S', K].

    They are taken as rows of a matrix, which are copied whole.
    """
    batch, count, length, size = ops.shape(array)
    first = ops.reshape(ops.arange(batch * count) * length, (batch, count, 1))
    rows = ops.reshape(array, (-1, size))
    return ops.take(rows, first + order[:, None], axis=0)
