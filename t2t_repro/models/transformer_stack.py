"""Encoder and decoder stacks (section 3.1): layers of residual sublayers.

Here `hparams` are a TransformerHParams of hparams/transformer.py.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import composite, dropout, residual
from t2t_repro.layers.attention import KeyValues, StepKernels
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.step_projection import Projection
from t2t_repro.models import transformer_sublayers
from t2t_repro.runtime.types import Tensor


class LayerKernels(NamedTuple):
    """Projections of a decoder layer in the steps of a search."""

    self_attention: StepKernels
    cross_attention: StepKernels
    ffn: tuple[Projection, ...]


class EncoderLayer(composite.Composite):
    """Self-attention and feed-forward network, each within a residual."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.self_attention = transformer_sublayers.self_attention(
            hparams, self
        )
        self.ffn = self._new_ffn(hparams)

    def _new_ffn(self, hparams: Any) -> keras.layers.Layer:
        return transformer_sublayers.feed_forward(hparams, self)

    def call(
        self, x: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run the layer on x [B, L, D] with mask [B, 1, L, L].

        Returns:
            output [B, L, D], weights [B, H, L, L].
        """
        x, weights = self.self_attention(x, (mask,), rng=rng)
        return self.ffn(x, rng=rng), weights


class DecoderLayer(composite.Composite):
    """Self-attention, cross-attention and feed-forward network."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.self_attention = transformer_sublayers.self_attention(
            hparams, self
        )
        self.cross_attention = transformer_sublayers.cross_attention(
            hparams, self
        )
        self.ffn = self._new_ffn(hparams)

    def _new_ffn(self, hparams: Any) -> keras.layers.Layer:
        return transformer_sublayers.feed_forward(hparams, self)

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
        return self.ffn(x, rng=rng), (self_weights, cross_weights)

    def step_kernels(self) -> LayerKernels:
        """Return what steps multiply with."""
        return LayerKernels(
            self.self_attention.sublayer.step_kernels(with_memory=True),
            self.cross_attention.sublayer.step_kernels(with_memory=False),
            self._ffn_kernels(),
        )

    def _ffn_kernels(self) -> tuple[Projection, ...]:
        return self.ffn.sublayer.step_kernels()

    def step(
        self,
        x: Tensor,
        kernels: LayerKernels,
        past: KeyValues,
        recent: KeyValues,
        rows: Tensor,
        memory: KeyValues,
        self_mask: Tensor,
        cross_mask: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        """Run the layer on one position: W beams are W queries of a sentence.

        Args:
            x: [B * W, D].
            kernels: result of step_kernels().
            past: KeyValues of positions that no longer change.
            recent: KeyValues of the positions since, with empty entries.
            rows: [B * H, 1] int32, rows of `recent` as an array
                [B * H * positions, W * K] to which this position is written.
            memory: KeyValues of the source.
            self_mask: [B, 1, W, L], where L counts past and recent entries.
            cross_mask: [B, 1, 1, L], where L counts source positions.

        Returns:
            output [B * W, D], key and value of `recent` with this position's,
            cross-attention weights [B, H, W, L].
        """
        block, beams = self.self_attention, self_mask.shape[2]
        query, key, value = block.sublayer.project_step(
            block.input_norm(x), beams, kernels.self_attention, with_memory=True
        )
        key = _write_rows(recent.key, key, rows, recent.length)
        value = _write_rows(recent.value, value, rows, recent.length)
        y, _ = block.sublayer.step(
            query,
            (past, recent._replace(key=key, value=value)),
            self_mask,
            kernels.self_attention,
        )
        x = block.add(x, y)
        block = self.cross_attention
        (query,) = block.sublayer.project_step(
            block.input_norm(x),
            beams,
            kernels.cross_attention,
            with_memory=False,
        )
        y, weights = block.sublayer.step(
            query, (memory,), cross_mask, kernels.cross_attention
        )
        x = self._ffn_step(block.add(x, y), kernels.ffn)
        return x, (key, value), weights

    def _ffn_step(self, x: Tensor, kernels: tuple[Projection, ...]) -> Tensor:
        y = self.ffn.sublayer.step(self.ffn.input_norm(x), kernels)
        return self.ffn.add(x, y)


def _write_rows(
    old: Tensor, new: Tensor, rows: Tensor, entries: Tensor | int
) -> Tensor:
    """Return `old` [B, H, S, K] with `new` [B, H, W, K] at `rows`.

    A row holds the W entries of one position. (ops.slice_update would become an
    XLA operation in TensorFlow's graph, and TF Serving has no XLA compiler.)

    Args:
        old: array that is copied.
        new: keys or values of one position.
        rows: [B * H, 1] int32.
        entries: S.
    """
    heads, width = new.shape[1], new.shape[2] * new.shape[3]
    written = ops.scatter_update(
        ops.reshape(old, (-1, width)), rows, ops.reshape(new, (-1, width))
    )
    return ops.reshape(written, (-1, heads, entries, new.shape[3]))


class Stack(composite.Composite):
    """Stack of norm and dropout of the embedded input, and layers.

    With pre-norm the stack normalizes the output of its last layer, as in
    tensor2tensor, since no layer follows that would.
    """

    def __init__(
        self,
        layer_classes: Sequence[type[keras.layers.Layer]],
        hparams: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_norm = residual.norm_or_identity(
            hparams.embedding_norm,
            hparams.norm_epsilon,
            name="input_norm",
            dtype=self.dtype_policy,
        )
        self.dropout = dropout.Dropout(
            hparams.layer_prepostprocess_dropout,
            name="dropout",
            dtype=self.dtype_policy,
        )
        self.layers = [
            layer_class(hparams, name=f"layer_{i}", dtype=self.dtype_policy)
            for i, layer_class in enumerate(layer_classes)
        ]
        self.norm = residual.norm_or_identity(
            hparams.layer_preprocess_sequence == "n",
            hparams.norm_epsilon,
            name="norm",
            dtype=self.dtype_policy,
        )

    def call(
        self,
        x: Tensor,
        layer_args: tuple,
        rng: Rng | None = None,
        recompute_grad: bool = False,
    ) -> tuple[Tensor, list]:
        """Run the layers on x [B, T, D].

        Args:
            x: embedded input.
            layer_args: further arguments of each layer.
            rng: state of random numbers; None at inference.
            recompute_grad: whether the backward pass computes the activations
                within a layer again.

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

    Arguments of keras.remat's function must have gradients. Masks and rng are
    not floats, so the function captures them.
    """
    is_float = [keras.backend.is_float_dtype(arg.dtype) for arg in layer_args]

    def run(x: Tensor, *floats: Tensor) -> Tensor:
        remaining = iter(floats)
        args = [
            next(remaining) if float_arg else arg
            for float_arg, arg in zip(is_float, layer_args, strict=True)
        ]
        return layer(x, *args, rng=rng)[0]

    floats = [
        arg
        for float_arg, arg in zip(is_float, layer_args, strict=True)
        if float_arg
    ]
    return keras.remat(run)(x, *floats)
