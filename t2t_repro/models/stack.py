"""Encoder and decoder stacks (section 3.1): layers of residual sublayers."""

import keras
from keras import ops

from t2t_repro.layers import dropout, residual
from t2t_repro.layers.attention import MultiHeadAttention
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.layers.relative import RelativeAttention


class EncoderLayer(keras.layers.Layer):
    """Self-attention and feed-forward, each within a residual."""

    def __init__(self, hparams, **kwargs):
        super().__init__(**kwargs)
        self.self_attention = _self_attention(hparams, self)
        self.ffn = _ffn(hparams, self)

    def build(self, x_shape):
        """Leave it to the sublayers, as they are called: Keras would trace."""

    def call(self, x, mask, rng=None):
        """x [B, L, D], mask [B, 1, L, L] -> [B, L, D], weights."""
        x, weights = self.self_attention(x, (mask,), rng=rng)
        return self.ffn(x, rng=rng), weights


class DecoderLayer(keras.layers.Layer):
    """Self-attention, attention to the source and feed-forward."""

    def __init__(self, hparams, **kwargs):
        super().__init__(**kwargs)
        self.self_attention = _self_attention(hparams, self)
        self.cross_attention = _cross_attention(hparams, self)
        self.ffn = _ffn(hparams, self)

    def build(self, x_shape):
        """Leave it to the sublayers, as they are called: Keras would trace."""

    def call(self, x, memory, self_mask, cross_mask, rng=None):
        """x [B, T, D], memory [B, L, D] -> [B, T, D], both weights."""
        x, own = self.self_attention(x, (self_mask,), rng=rng)
        x, cross = self.cross_attention(x, (cross_mask, memory), rng=rng)
        return self.ffn(x, rng=rng), (own, cross)

    def step(self, x, past, recent, rows, memory, own_mask, cross_mask):
        """One position of W beams, which are W queries of a sentence.

        Args:
            x: [B * W, D].
            past: KeyValues of positions that do not change any more.
            recent: KeyValues of the positions since, and room for more.
            rows: [B * H, 1] int32, where in `recent` it is written, an array
                of [B * H * positions, W * K].
            memory: KeyValues of the source.
            own_mask: [B, 1, W, L], where L is that of past and recent.
            cross_mask: [B, 1, 1, L], where L is that of memory.

        Returns:
            [B * W, D], key and value of `recent` with this position's,
            weights of attention to the source [B, H, W, L].
        """
        block, beams = self.self_attention, own_mask.shape[2]
        normed = block.input_norm(x)
        key, value = (
            _written(
                old, block.sublayer.beam_heads(project(normed), beams), rows
            )
            for project, old in (
                (block.sublayer.key, recent.key),
                (block.sublayer.value, recent.value),
            )
        )
        seen = (past, recent._replace(key=key, value=value))
        y, _ = block.sublayer.step(normed, beams, seen, own_mask)
        x = block.add(x, y)
        block = self.cross_attention
        y, weights = block.sublayer.step(
            block.input_norm(x), beams, (memory,), cross_mask
        )
        return self.ffn(block.add(x, y)), (key, value), weights


def _written(old, new, rows):
    """`old` [B, H, slots, K] with `new` [B, H, W, K] at rows [B * H, 1].

    A position of W slots is a row. (ops.slice_update would be XLA's operation
    in TensorFlow's graph, and TF Serving has no compiler.)
    """
    width = new.shape[2] * new.shape[3]
    written = ops.scatter_update(
        ops.reshape(old, (-1, width)), rows, ops.reshape(new, (-1, width))
    )
    return ops.reshape(written, ops.shape(old))


def _self_attention(hparams, parent):
    settings = _settings(hparams, parent)
    if hparams.max_relative_position:
        sublayer = RelativeAttention(hparams.max_relative_position, **settings)
    else:
        sublayer = MultiHeadAttention(**settings)
    return residual.AttentionResidual(
        sublayer, **_surroundings(hparams, "self_attention", parent)
    )


def _cross_attention(hparams, parent):
    return residual.AttentionResidual(
        MultiHeadAttention(**_settings(hparams, parent)),
        **_surroundings(hparams, "cross_attention", parent),
    )


def _settings(hparams, parent):
    """What every attention of a model has in common."""
    size = hparams.hidden_size
    return {
        "hidden_size": size,
        "num_heads": hparams.num_heads,
        "key_channels": hparams.attention_key_channels or size,
        "value_channels": hparams.attention_value_channels or size,
        "attention_type": hparams.attention_type,
        "dropout_rate": hparams.attention_dropout,
        "use_bias": hparams.attention_bias,
        "name": "multihead_attention",
        "dtype": parent.dtype_policy,
    }


def _ffn(hparams, parent):
    sublayer = FeedForward(
        hparams.hidden_size,
        hparams.filter_size,
        hparams.relu_dropout,
        hparams.ffn_activation,
        name="feed_forward",
        dtype=parent.dtype_policy,
    )
    return residual.Residual(sublayer, **_surroundings(hparams, "ffn", parent))


def _surroundings(hparams, name, parent):
    """What every residual of a model has in common, and its name."""
    return {
        "preprocess_sequence": hparams.layer_preprocess_sequence,
        "postprocess_sequence": hparams.layer_postprocess_sequence,
        "dropout_rate": hparams.layer_prepostprocess_dropout,
        "epsilon": hparams.norm_epsilon,
        "name": name,
        "dtype": parent.dtype_policy,
    }


class Stack(keras.layers.Layer):
    """Dropout on the embedded input, then N layers of one kind.

    Where layers normalise what they are given, the stack normalises what the
    last one returns, as tensor2tensor does: nobody else would.
    """

    def __init__(self, layer_class, num_layers, hparams, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout.Dropout(
            hparams.layer_prepostprocess_dropout,
            name="dropout",
            dtype=self.dtype_policy,
        )
        self.layers = [
            layer_class(hparams, name=f"layer_{i}", dtype=self.dtype_policy)
            for i in range(num_layers)
        ]
        self.norm = residual.norm_or_identity(
            hparams.layer_preprocess_sequence == "n",
            hparams.norm_epsilon,
            name="norm",
            dtype=self.dtype_policy,
        )

    def build(self, x_shape):
        """Leave it to the sublayers, as they are called: Keras would trace."""

    def call(self, x, context, rng=None, recompute_grad=False):
        """Run the layers on x [B, T, D].

        Args:
            x: embedded input.
            context: the tuple that each layer takes beside it.
            rng: layers.counter_rng.Rng, or None at inference.
            recompute_grad: whether activations within a layer are computed
                again for gradients.

        Returns:
            [B, T, D], a list of what each layer tells of its weights: empty
            where layers are computed again for gradients.
        """
        x, weights = self.dropout(x, rng=rng), []
        for layer in self.layers:
            if recompute_grad and rng is not None:
                x = _rematerialized(layer, x, context, rng)
                continue
            x, of_layer = layer(x, *context, rng=rng)
            weights.append(of_layer)
        return self.norm(x), weights


def _rematerialized(layer, x, context, rng):
    """x as `layer` returns it; of the layer, nothing but its inputs is kept.

    Keras's remat takes what has a gradient as arguments; masks and rng, which
    have none and are no floats, come in from outside.
    """
    is_float = [keras.backend.is_float_dtype(c.dtype) for c in context]

    def run(x, *floats):
        rest = iter(floats)
        whole = [
            next(rest) if own else given
            for own, given in zip(is_float, context, strict=True)
        ]
        return layer(x, *whole, rng=rng)[0]

    floats = [c for own, c in zip(is_float, context, strict=True) if own]
    return keras.remat(run)(x, *floats)
