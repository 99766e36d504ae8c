"""Conversion of the Transformer to a specification of CTranslate2.

The decoder's first input is a zero vector or a learned one. CTranslate2
requires a subword there, so each embedding gets one more row, START, with a
logit so low that no search chooses it.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np

from t2t_repro import errors
from t2t_repro.layers.attention import MultiHeadAttention, RelativeAttention
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.sublayers import Residual, RmsNorm
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.models.transformer_stack import Stack

# Name of that row, which is never an output. Subwords have no spaces.
START = "<zero vector>"
START_LOGIT = -1e9
MODEL_CARD = "model_card.json"  # beside a converted model
# CTranslate2's names of the activations of the feed-forward network.
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "gelu_sigmoid": "GELUSigmoid",
    "silu": "SWISH",
}


def convert(model: Seq2Seq, specs: ModuleType, max_positions: int) -> Any:
    """Convert a Transformer to a TransformerSpec without a vocabulary.

    `specs` is the module ctranslate2.specs, and `max_positions` the maximum
    length of inputs and outputs.

    Raises:
        UserError: CTranslate2 does not support an hparam; names it.
    """
    hparams = model.hparams
    _check_supported(hparams)
    settings = _settings(model, specs)
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(
            num_layers=hparams.encoder_layers, **settings
        ),
        specs.TransformerDecoderSpec(
            num_layers=hparams.decoder_layers, **settings
        ),
    )
    start = np.zeros(hparams.hidden_size, np.float32)
    if model.start is not None:
        start = model.start.numpy()
    # CTranslate2's encoder has a list: one embedding for each input feature.
    _embedding(spec.encoder.embeddings[0], model.inputs_embedding, start)
    _embedding(spec.decoder.embeddings, model.targets_embedding, start)
    _embedding(spec.decoder.projection, model.softmax, start)
    bias = model.softmax.bias
    bias = np.zeros(model.vocab_size) if bias is None else bias.numpy()
    spec.decoder.projection.bias = np.append(bias, START_LOGIT).astype(
        np.float32
    )
    for side, layer, bias in (
        (spec.encoder, model.inputs_positions, model.inputs_bias),
        (spec.decoder, model.targets_positions, None),
    ):
        side.scale_embeddings = hparams.multiply_embedding_mode != "none"
        if hasattr(side, "position_encodings"):
            encodings = _positions(layer, max_positions, hparams.hidden_size)
            if bias is not None:  # added to all positions
                encodings += bias.numpy()
            side.position_encodings.encodings = encodings
    _stack(spec.encoder, model.encoder)
    _stack(spec.decoder, model.decoder)
    spec.config.layer_norm_epsilon = hparams.norm_epsilon
    return spec


def _settings(model: Seq2Seq, specs: ModuleType) -> dict[str, Any]:
    """Return the arguments of encoder and decoder, without their layers."""
    hparams = model.hparams
    attention = model.encoder.layers[0].self_attention.sublayer
    settings = {
        "num_heads": hparams.num_heads,
        "pre_norm": hparams.layer_preprocess_sequence == "n",
        "layernorm_embedding": hparams.embedding_norm,
        "relative_position": hparams.max_relative_position > 0,
        "head_dim": _head_size(attention),
        "rms_norm": hparams.norm == "rms",
        "num_heads_kv": hparams.num_key_value_heads or None,
        "activation": getattr(
            specs.common_spec.Activation, _ACTIVATIONS[hparams.ffn_activation]
        ),
    }
    if hparams.pos == "rotary":  # the keys' own size, without padding
        settings |= {
            "rotary_dim": attention.key_channels // hparams.num_heads,
            "rotary_interleave": False,
        }
    return settings


def _check_supported(hparams: Any) -> None:
    """Raise a UserError if CTranslate2 does not support an hparam."""
    norms = (
        hparams.layer_preprocess_sequence,
        hparams.layer_postprocess_sequence,
    )
    for name, is_supported, rule in (
        ("model", hparams.model == "transformer", "'transformer'"),
        (
            "ffn_activation",
            hparams.ffn_activation in _ACTIVATIONS,
            f"one of {tuple(_ACTIVATIONS)}",
        ),
        (
            "attention_type",
            hparams.attention_type != "additive",
            "a dot product",
        ),
        ("restricted_attention", not hparams.restricted_attention, "0"),
        ("norm", hparams.norm in ("layer", "rms"), "'layer' or 'rms'"),
        ("pos", hparams.pos != "buckets", "another one"),
        (
            "pos",
            hparams.pos == "none" or not hparams.max_relative_position,
            "'none' where positions are relative",
        ),
        (
            "inputs_bias",
            not hparams.inputs_bias
            or not (hparams.max_relative_position or hparams.pos == "rotary"),
            "false where positions are relative or rotary",
        ),
        (
            "layer_postprocess_sequence",
            norms in (("none", "dan"), ("n", "da")),
            "'dan' after 'none' (post-norm) or 'da' after 'n' (pre-norm)",
        ),
    ):
        if not is_supported:
            raise errors.UserError(
                f"CTranslate2 has no such model: hparam {name} must be {rule}; "
                f"got {getattr(hparams, name)!r}. Export a SavedModel instead."
            )


def _embedding(spec: Any, layer: Embedding, start: np.ndarray) -> None:
    """Copy the weight [V, D] as [V + 1, D], with START's [D] last."""
    spec.weight = np.concatenate([layer.weight.numpy(), start[None]])


def _positions(layer: keras.layers.Layer, count: int, size: int) -> np.ndarray:
    """Return the encodings [count, D] of a layer of layers/embedding.py."""
    zeros = np.zeros((1, count, size), np.float32)
    return np.array(layer(zeros, np.arange(count)[None])[0])


def _stack(spec: Any, stack: Stack) -> None:
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _attention(
            layer_spec.self_attention,
            layer.self_attention,
            [("query", "key", "value")],
        )
        if hasattr(layer, "cross_attention"):
            _attention(
                layer_spec.attention,
                layer.cross_attention,
                [("query",), ("key", "value")],
            )
        ffn = layer.ffn.sublayer
        _residual_norm(layer_spec.ffn, layer.ffn)
        _dense(layer_spec.ffn.linear_0, ffn.filter)
        _dense(layer_spec.ffn.linear_1, ffn.output_projection)
    if stack.input_norm.weights:
        _norm(spec.layernorm_embedding, stack.input_norm)
    if stack.norm.weights:
        _norm(spec.layer_norm, stack.norm)


def _residual_norm(spec: Any, block: Residual) -> None:
    """Copy a residual's only norm, before or after its sublayer."""
    (norm,) = (n for n in (block.input_norm, block.norm) if n.weights)
    _norm(spec.layer_norm, norm)


def _norm(spec: Any, norm: keras.layers.Layer) -> None:
    if isinstance(norm, RmsNorm):
        spec.gamma = norm.scale.numpy()
    else:
        spec.gamma, spec.beta = norm.gamma.numpy(), norm.beta.numpy()


def _dense(spec: Any, dense: keras.layers.Layer) -> None:
    spec.weight = dense.kernel.numpy().T  # CTranslate2: [outputs, inputs]
    spec.bias = dense.bias.numpy()


def _attention(
    spec: Any, block: Residual, products: Sequence[Sequence[str]]
) -> None:
    """Copy norm and projections; CTranslate2 computes several in one product.

    `products` are the names of the projections that share one.
    """
    _residual_norm(spec, block)
    attention = block.sublayer
    size, heads = _head_size(attention), attention.num_heads
    groups = attention.num_key_value_heads
    *inputs, output = spec.linear
    for linear, names in zip(inputs, products, strict=True):
        layers = [
            (getattr(attention, name), heads if name == "query" else groups)
            for name in names
        ]
        kernels = [
            _pad_heads(layer.kernel.numpy(), count, size)
            for layer, count in layers
        ]
        linear.weight = np.concatenate(kernels, axis=1).T
        if attention.use_bias:
            biases = [
                _pad_heads(layer.bias.numpy()[None], count, size)[0]
                for layer, count in layers
            ]
            linear.bias = np.concatenate(biases)
    kernel = attention.output_projection.kernel.numpy()
    output.weight = _pad_heads(kernel.T, heads, size)
    if attention.use_bias:
        output.bias = attention.output_projection.bias.numpy()
    channels = attention.key_channels // attention.num_heads
    unscaled = attention.attention_type == "dot_product_unscaled"
    spec.queries_scale = 1.0 if unscaled else channels**-0.5
    if isinstance(attention, RelativeAttention):
        keys, values = attention.relative_keys, attention.relative_values
        spec.relative_position_keys = _pad_heads(keys.numpy(), 1, size)
        spec.relative_position_values = _pad_heads(values.numpy(), 1, size)


def _head_size(attention: MultiHeadAttention) -> int:
    """Return the larger of key and value size: CTranslate2 has one size."""
    channels = max(attention.key_channels, attention.value_channels)
    return channels // attention.num_heads


def _pad_heads(array: np.ndarray, num_heads: int, size: int) -> np.ndarray:
    """Pad each head of [N, H * K] to `size`; zeros change no product."""
    heads = array.reshape(len(array), num_heads, -1)
    padding = size - heads.shape[-1]
    padded = np.pad(heads, ((0, 0), (0, 0), (0, padding)))
    return padded.reshape(len(array), -1)
