"""A model's folder for CTranslate2, a fast decoder of Transformers on CPUs.

    model.bin, config.json, shared_vocabulary.json    what CTranslate2 loads
    vocab.model                                       SentencePiece's
    model_card.json

CTranslate2 takes and gives SentencePiece's pieces, without EOS, which it adds;
it searches in its own way, as each call asks. Weights are float32;
``ctranslate2.Translator(folder, compute_type="int8")`` rounds them as it loads.
"""

import pathlib

import numpy as np

from t2t_repro import errors, files, json_files
from t2t_repro.data import manifest
from t2t_repro.layers import relative, residual
from t2t_repro.text.subwords import EOS

MODEL_CARD = "model_card.json"
# Our decoder's first input is no subword but a zero vector: one more row of
# zeros, which no output is. No piece has its name: pieces have no spaces.
START = "<zero vector>"
NEVER = -1e9  # its logit


def export(
    models, subwords, decode_hparams, export_dir, card, weights_dtype="float32"
) -> pathlib.Path:
    """Writes a folder that ``ctranslate2.Translator`` loads.

    It is written under another name and renamed.

    Args:
        models: one; CTranslate2 has no ensembles.
        subwords: the vocabulary.
        decode_hparams: DecodeHParams, of which the lengths are kept: there are
            as many positions as these may need.
        export_dir: the folder; absent or empty.
        card: what the model card is to say.
        weights_dtype: float32; CTranslate2 rounds as it loads.

    Returns:
        The folder.

    Raises:
        UserError: the folder is taken, the package is not installed, or
            CTranslate2 has no such model.
    """
    if weights_dtype != "float32":
        raise errors.UserError(
            "CTranslate2 rounds weights as it loads them (compute_type), and "
            f"is given float32; got --weights_dtype={weights_dtype}."
        )
    folder = files.path(export_dir).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise errors.UserError(
            f"{folder} is there already. Remove it, or name another "
            "--export_dir."
        )
    if len(models) > 1:
        raise errors.UserError(
            f"CTranslate2 has no ensembles; got {len(models)} checkpoints. "
            "Name one, or average them with avg_checkpoints."
        )
    positions = decode_hparams.max_input_length + decode_hparams.extra_length
    spec = convert(models[0], subwords, positions)
    card = card | {"weights_dtype": weights_dtype}
    with files.making_folder(folder) as temporary:
        spec.save(str(temporary))
        files.write_bytes(temporary / manifest.VOCABULARY, subwords.model)
        json_files.write(temporary / MODEL_CARD, card)
    return folder


def convert(model, subwords, positions):
    """A Transformer as a ctranslate2.specs.TransformerSpec, ready to save.

    Args:
        model: models.transformer.Transformer.
        subwords: its vocabulary.
        positions: the most that an input or an output may have.
    """
    specs, hparams = _specs(), model.hparams
    _refuse_what_is_lacking(hparams)
    attention = model.encoder.layers[0].self_attention.sublayer
    settings = {
        "num_layers": hparams.num_hidden_layers,
        "num_heads": hparams.num_heads,
        "pre_norm": hparams.layer_preprocess_sequence == "n",
        "relative_position": hparams.max_relative_position > 0,
        "head_dim": _head_size(attention),
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(**settings),
        specs.TransformerDecoderSpec(**settings),
    )
    # Theirs may have embeddings of several inputs, hence the list.
    _embedding(spec.encoder.embeddings[0], model.inputs_embedding)
    _embedding(spec.decoder.embeddings, model.targets_embedding)
    _embedding(spec.decoder.projection, model.softmax)
    spec.decoder.projection.bias = np.zeros(subwords.size + 1, np.float32)
    spec.decoder.projection.bias[-1] = NEVER
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
    _vocabulary(spec, subwords)
    spec.config.layer_norm_epsilon = residual.EPSILON
    spec.validate()
    spec.optimize()  # a shared matrix is written once
    return spec


def _specs():
    try:
        from ctranslate2 import specs
    except ImportError as error:
        raise errors.UserError(
            f"CTranslate2's package is needed to write its format ({error}). "
            "Install it: pip install 't2t_repro[ctranslate2]'."
        ) from error
    return specs


def _refuse_what_is_lacking(hparams):
    """Raises a UserError that names the hparam that CTranslate2 lacks."""
    norms = (
        hparams.layer_preprocess_sequence,
        hparams.layer_postprocess_sequence,
    )
    for name, is_there, rule in (
        ("model", hparams.model == "transformer", "'transformer'"),
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


def _vocabulary(spec, subwords):
    """Pieces by id, then START; and which of them are special."""
    pieces = subwords.pieces(range(subwords.size))
    spec.register_source_vocabulary([*pieces, START])
    spec.register_target_vocabulary([*pieces, START])
    spec.config.unk_token = pieces[subwords.unknown]
    spec.config.bos_token = START
    spec.config.decoder_start_token = START
    spec.config.eos_token = pieces[EOS]
    spec.config.add_source_eos = True


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
    size = _head_size(attention)
    inputs = {
        letter: _filled_up(dense.kernel.numpy(), attention.num_heads, size)
        for letter, dense in zip(
            "qkv",
            (attention.query, attention.key, attention.value),
            strict=True,
        )
    }
    *firsts, last = spec.linear
    for linear, letters in zip(firsts, products, strict=True):
        linear.weight = np.concatenate([inputs[x].T for x in letters])
    output = attention.output_projection.kernel.numpy()
    last.weight = _filled_up(output.T, attention.num_heads, size)
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
