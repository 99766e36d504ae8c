"""Residual sublayers of the Transformer's layers, built from hparams.

Here `hparams` are a TransformerHParams of hparams/transformer.py, and
`parent` is the layer whose dtype policy a sublayer has.
"""

from typing import Any

import keras

from t2t_repro.layers import residual
from t2t_repro.layers.attention import MultiHeadAttention
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.layers.relative_attention import RelativeAttention


def self_attention(
    hparams: Any, parent: keras.layers.Layer
) -> residual.AttentionResidual:
    """Return self-attention within a residual."""
    settings = _attention_settings(hparams, parent)
    if hparams.max_relative_position:
        sublayer = RelativeAttention(hparams.max_relative_position, **settings)
    else:
        sublayer = MultiHeadAttention(**settings)
    return residual.AttentionResidual(
        sublayer, **residual_settings(hparams, "self_attention", parent)
    )


def cross_attention(
    hparams: Any, parent: keras.layers.Layer
) -> residual.AttentionResidual:
    """Return attention over the encoder's output, within a residual."""
    return residual.AttentionResidual(
        MultiHeadAttention(**_attention_settings(hparams, parent)),
        **residual_settings(hparams, "cross_attention", parent),
    )


def _attention_settings(
    hparams: Any, parent: keras.layers.Layer
) -> dict[str, Any]:
    """Return the arguments that all attentions of a model share."""
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


def feed_forward(hparams: Any, parent: keras.layers.Layer) -> residual.Residual:
    """Return a feed-forward network within a residual."""
    sublayer = FeedForward(
        hparams.hidden_size,
        hparams.filter_size,
        hparams.relu_dropout,
        hparams.ffn_activation,
        name="feed_forward",
        dtype=parent.dtype_policy,
    )
    return residual.Residual(
        sublayer, **residual_settings(hparams, "ffn", parent)
    )


def residual_settings(
    hparams: Any, name: str, parent: keras.layers.Layer
) -> dict[str, Any]:
    """Return the arguments that all residuals of a model share, and `name`."""
    return {
        "preprocess_sequence": hparams.layer_preprocess_sequence,
        "postprocess_sequence": hparams.layer_postprocess_sequence,
        "dropout_rate": hparams.layer_prepostprocess_dropout,
        "epsilon": hparams.norm_epsilon,
        "name": name,
        "dtype": parent.dtype_policy,
    }
