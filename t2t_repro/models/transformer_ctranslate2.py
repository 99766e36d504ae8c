"""The Transformer as a specification of CTranslate2's.

The decoder's first input is a zero vector. CTranslate2 has a subword there, so
each embedding has one more row of zeros, whose logit no search chooses.
"""

import numpy as np

from t2t_repro import errors
from t2t_repro.layers import relative

NEVER = -1e9  # logit of the added row
# CTranslate2's name of each activation of the feed-forward network.
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}


def convert(model, specs, positions):
    """Convert to a ctranslate2.specs.TransformerSpec without a vocabulary.

    Args:
        model: models.transformer.Transformer.
        specs: the module ctranslate2.specs.
        positions: the most that an input or an output may have.

    Raises:
        UserError: names the hparam that CTranslate2 lacks.
    """
    hparams = model.hparams
    _refuse_what_is_lacking(hparams)
    attention = model.encoder.layers[0].self_attention.sublayer
    settings = {
        "num_heads": hparams.num_heads,
        "pre_norm": hparams.layer_preprocess_sequence == "n",
        "relative_position": hparams.max_relative_position > 0,
        "head_dim": _head_size(attention),
        "activation": getattr(
            specs.common_spec.Activation, _ACTIVATIONS[hparams.ffn_activation]
        ),
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(
            num_layers=hparams.encoder_layers, **settings
        ),
        specs.TransformerDecoderSpec(
            num_layers=hparams.decoder_layers, **settings
        ),
    )
    # Theirs may have embeddings of several inputs, hence the list.
    _embedding(spec.encoder.embeddings[0], model.inputs_embedding)
    _embedding(spec.decoder.embeddings, model.targets_embedding)
    _embedding(spec.decoder.projection, model.softmax)
    bias = model.softmax.bias
    bias = np.zeros(model.vocab_size) if bias is None else bias.numpy()
    spec.decoder.projection.bias = np.append(bias, NEVER).astype(np.float32)
    if not hparams.max_relative_position:
        for side, layer in (
            (spec.encoder, model.inputs_positions),
            (spec.decoder, model.targets_positions),
        ):
            side.position_encodings.encodings = _positions(
                layer, positions, hparams.hidden_size
            )
    _stack(spec.encoder, model.encoder)
    _stack(spec.decoder, model.decoder)
    spec.config.layer_norm_epsilon = hparams.norm_epsilon
    return spec


def _refuse_what_is_lacking(hparams):
    """Raises a UserError that names the hparam that CTranslate2 lacks."""
    norms = (
        hparams.layer_preprocess_sequence,
        hparams.layer_postprocess_sequence,
    )
    for name, is_there, rule in (
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
        (
            "pos",
            hparams.pos == "none" or not hparams.max_relative_position,
            "'none' where positions are relative",
        ),
        (
            "layer_postprocess_sequence",
            norms in (("none", "dan"), ("n", "da")),
            "'dan' after 'none' (post-norm) or 'da' after 'n' (pre-norm)",
        ),
    ):
        if not is_there:
            raise errors.UserError(
                f"CTranslate2 has no such model: hparam {name} must be {rule}; "
                f"got {getattr(hparams, name)!r}. Export a SavedModel instead."
            )


def _embedding(spec, layer):
    """[V, D] -> [V + 1, D], START last."""
    spec.weight = np.pad(layer.weight.numpy(), ((0, 1), (0, 0)))


def _positions(layer, count, size):
    """[count, D], what a layer of layers/position.py adds."""
    nothing = np.zeros((1, count, size), np.float32)
    return np.array(layer(nothing, np.arange(count)[None])[0])


def _stack(spec, stack):
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        attention = layer.self_attention.sublayer
        _norm(layer_spec.self_attention.layer_norm, layer.self_attention)
        _attention(layer_spec.self_attention, attention, ["qkv"])
        if hasattr(layer, "cross_attention"):
            attention = layer.cross_attention.sublayer
            _norm(layer_spec.attention.layer_norm, layer.cross_attention)
            _attention(layer_spec.attention, attention, ["q", "kv"])
        ffn = layer.ffn.sublayer
        _norm(layer_spec.ffn.layer_norm, layer.ffn)
        _dense(layer_spec.ffn.linear_0, ffn.filter)
        _dense(layer_spec.ffn.linear_1, ffn.output_projection)
    if stack.norm.weights:
        _gamma_and_beta(spec.layer_norm, stack.norm)


def _norm(spec, block):
    """A residual's one norm, before its sublayer or after it."""
    (norm,) = (n for n in (block.input_norm, block.norm) if n.weights)
    _gamma_and_beta(spec, norm)


def _gamma_and_beta(spec, norm):
    spec.gamma, spec.beta = norm.gamma.numpy(), norm.beta.numpy()


def _dense(spec, dense):
    spec.weight = dense.kernel.numpy().T  # theirs is [outputs, inputs]
    spec.bias = dense.bias.numpy()


def _attention(spec, attention, products):
    """Projections, of which theirs computes several in one product.

    Args:
        spec: MultiHeadAttentionSpec.
        attention: MultiHeadAttention.
        products: the letters of what is computed together.
    """
    size, heads = _head_size(attention), attention.num_heads
    projections = {
        "q": attention.query,
        "k": attention.key,
        "v": attention.value,
    }
    inputs = {
        letter: _filled_up(dense.kernel.numpy(), heads, size)
        for letter, dense in projections.items()
    }
    biases = {}
    if attention.use_bias:
        biases = {
            letter: _filled_up(dense.bias.numpy()[None], heads, size)[0]
            for letter, dense in projections.items()
        }
    *firsts, last = spec.linear
    for linear, letters in zip(firsts, products, strict=True):
        linear.weight = np.concatenate([inputs[x].T for x in letters])
        if attention.use_bias:
            linear.bias = np.concatenate([biases[x] for x in letters])
    output = attention.output_projection.kernel.numpy()
    last.weight = _filled_up(output.T, heads, size)
    if attention.use_bias:
        last.bias = attention.output_projection.bias.numpy()
    channels = attention.key_channels // attention.num_heads
    unscaled = attention.attention_type == "dot_product_unscaled"
    spec.queries_scale = 1.0 if unscaled else channels**-0.5
    if isinstance(attention, relative.RelativeAttention):
        keys, values = attention.relative_keys, attention.relative_values
        spec.relative_position_keys = _filled_up(keys.numpy(), 1, size)
        spec.relative_position_values = _filled_up(values.numpy(), 1, size)


def _head_size(attention):
    """Theirs has one size of keys and values: here, the larger."""
    channels = max(attention.key_channels, attention.value_channels)
    return channels // attention.num_heads


def _filled_up(array, num_heads, size):
    """[…, H * K] -> […, H * size]: zeros change no product."""
    heads = array.reshape(len(array), num_heads, -1)
    more = size - heads.shape[-1]
    return np.pad(heads, ((0, 0), (0, 0), (0, more))).reshape(len(array), -1)
