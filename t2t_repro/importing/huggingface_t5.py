"""T5 in Hugging Face's format: versions 1.0 and 1.1, mT5 and MADLAD-400.

    spiece.model             segments text, and has the ids of its pieces
    tokenizer_config.json    the class of the tokenizer, and `extra_ids`

After the pieces come T5's sentinels, <extra_id_99> to <extra_id_0>. They are
read where SentencePieceVocabulary of T5's own code reads them, with the space
before them. Further rows of the embedding round its size up.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import imported, model_files, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies
from t2t_repro.importing.model_files import Setting
from t2t_repro.io import files
from t2t_repro.text import sentence_piece
from t2t_repro.text.sentence_piece import (
    LANGUAGE,
    SPACE,
    MappedSentencePiece,
)
from t2t_repro.text.vocabulary_pair import Vocabularies

# Settings of T5Config, with its defaults.
_SETTINGS = {
    "vocab_size": Setting(int),
    "d_model": Setting(int, "hidden_size"),
    "d_kv": Setting(int),
    "d_ff": Setting(int, "filter_size"),
    "num_heads": Setting(int, "num_heads"),
    "num_layers": Setting(int),
    "num_decoder_layers": Setting(0),  # as many as num_layers
    "decoder_start_token_id": Setting(0),
    "pad_token_id": Setting(0),
    "eos_token_id": Setting(1),
    "feed_forward_proj": Setting(
        "relu",
        "ffn_activation",
        {
            "relu": "relu",
            "gelu": "gelu",
            "gelu_new": "gelu_tanh",
            "silu": "silu",
            "gated-relu": "reglu",
            "gated-gelu": "geglu_tanh",
            "gated-gelu_new": "geglu_tanh",
            "gated-silu": "swiglu",
        },
    ),
    "relative_attention_num_buckets": Setting(32, "position_buckets"),
    "relative_attention_max_distance": Setting(128, "max_bucket_distance"),
    "layer_norm_epsilon": Setting(1e-6, "norm_epsilon"),
    "dropout_rate": Setting(0.1, "layer_prepostprocess_dropout", below=1),
    "tie_word_embeddings": Setting(True),
}
_HPARAMS = {
    "pos": "buckets",
    "norm": "rms",
    "attention_type": "dot_product_unscaled",
    "multiply_embedding_mode": "none",
    **model_files.norm_order(pre_norm=True),
}
# A table of older files, which transformers does not read either.
UNREAD = (
    r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias"
    r"\.weight"
)


def _of_ffn(name):
    """Return the names of a kernel in the decoder's layers, or the encoder's.

    It is the third sublayer there, and the second here.
    """
    return tuple(f"layer.{i}.DenseReluDense.{name}.?" for i in (2, 1))


_NAMES = weights.Names(
    {"norm": "{side}.final_layer_norm.?"},
    {
        "self_attention/{query key value}": "layer.0.SelfAttention.{q k v}.?",
        "self_attention/output_projection": "layer.0.SelfAttention.o.?",
        "self_attention/norm": "layer.0.layer_norm.?",
        "cross_attention/{query key value}": (
            "layer.1.EncDecAttention.{q k v}.?"
        ),
        "cross_attention/output_projection": "layer.1.EncDecAttention.o.?",
        "cross_attention/norm": "layer.1.layer_norm.?",
        "ffn/filter": (*_of_ffn("wi"), *_of_ffn("wi_0")),
        "ffn/linear": _of_ffn("wi_1"),
        "ffn/output_projection": _of_ffn("wo"),
        "ffn/norm": ("layer.2.layer_norm.?", "layer.1.layer_norm.?"),
    },
    at="{side}.block.{i}.",
    dense=("weight", "bias"),
    norm=("weight", "bias"),
    is_transposed=True,
    has_all_biases=False,
)
_TABLE = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
_TOKENIZERS = "T5Tokenizer", "MT5Tokenizer"
forces_first = False  # no language begins an output


def read_settings(
    stored: Mapping[str, Any], file: pathlib.Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a config.json, and their hparams.

    Args:
        stored: the settings in it that are not null.
        file: its path, for errors.

    Raises:
        UserError: a setting has no counterpart here.
    """
    is_scaled = stored.get("model_type") == "t5" and bool(
        stored.get("tie_word_embeddings", True)
    )
    # transformers 5 writes it; before, only the 1.0 has tied matrices.
    table = _SETTINGS | {"scale_decoder_outputs": Setting(is_scaled)}
    config, hparams = model_files.read_settings(stored, table, file)
    gate, _, activation = config["feed_forward_proj"].rpartition("-")
    if gate and activation == "gelu":
        activation = "gelu_new"
    derived = {"dense_act_fn": activation, "is_gated_act": bool(gate)}
    model_files.require_fixed(
        file, stored, derived | {"is_encoder_decoder": True}
    )
    layers, channels = (
        config["num_layers"],
        config["d_kv"] * config["num_heads"],
    )
    return config, hparams | {
        **_HPARAMS,
        **model_files.layer_counts(
            layers, config["num_decoder_layers"] or layers
        ),
        "attention_key_channels": channels,
        "attention_value_channels": channels,
        "attention_dropout": config["dropout_rate"],
        "relu_dropout": config["dropout_rate"],
    }


def read_weights(
    tensors: Tensors,
    config: Mapping[str, Any],
    hparams: dict[str, Any],
    found: FoundVocabularies,
) -> dict[str, np.ndarray]:
    """Return all weights by their paths, and complete the hparams.

    Raises:
        UserError: an array is missing, or has another shape.
    """
    size, rows = config["d_model"], config["vocab_size"]
    names = [f"{side}.embed_tokens.weight" for side in weights.SIDES]
    reason = "their use: T5 has one embedding"
    shared = tensors.take_one(["shared.weight", *names], reason, rows, size)
    softmax = tensors.take_if_present("lm_head.weight", rows, size)
    if softmax is None:
        rule = "true where the weights have no lm_head.weight"
        name = "tie_word_embeddings"
        model_files.require("config.json", config, (name, config[name], rule))
        softmax = shared
    result = imported.matrices(found.orders, shared, shared, softmax)
    result["start"] = shared[config["decoder_start_token_id"]].copy()
    del shared, softmax  # gigabytes, before the layers are read
    hparams |= {"learned_start": True, **imported.sharing(result, found.pair)}
    result |= weights.read_stacks(tensors, _NAMES, hparams)
    shape = hparams["position_buckets"], hparams["num_heads"]
    for side in weights.SIDES:
        path = f"{side}/layer_0/self_attention/multihead_attention"
        table = tensors.take(f"{side}.{_TABLE}", *shape)
        result[f"{path}/position_buckets/table"] = table
    if config["scale_decoder_outputs"]:  # the norm's only reader is the softmax
        result["decoder/norm/scale"] = result["decoder/norm/scale"] * size**-0.5
    return result


def read_vocabularies(
    folder: pathlib.Path,
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> FoundVocabularies:
    """Read the vocabulary of both sides, and MADLAD's languages.

    Args:
        folder: has the files.
        config: settings of config.json.
        settings: those of tokenizer_config.json.

    Raises:
        UserError: a file is missing or damaged, or the tokenizer is another.
    """
    model = _find_model(folder, settings)
    content = files.read_bytes(model)
    pieces = imported.named(str(model), sentence_piece.piece_names, content)
    count, size = len(pieces), config["vocab_size"]
    rule = f"at least {count:,}, the number of pieces"
    file = folder / "config.json"
    model_files.require(file, config, ("vocab_size", size >= count, rule))
    special = imported.special_tokens(pieces, config, file)
    codes = {
        piece: match[1]
        for piece in pieces
        if (match := LANGUAGE.fullmatch(piece.removeprefix(SPACE)))
    }
    # MADLAD's embedding has no rows for sentinels.
    tokens = (pieces + _sentinels(folder, settings, pieces))[:size]
    words = {*tokens[count:], *codes}
    unused = imported.with_rows(tokens, size)[len(tokens) :]
    tokens += unused
    imported.check_added(folder, settings, tokens)
    mapped = imported.named(
        str(model),
        sentence_piece.map_ids,
        content,
        tokens,
        special,
        False,
        unused,
        words,
    )
    return FoundVocabularies(
        Vocabularies.shared(MappedSentencePiece(mapped.model)),
        [mapped.order] * 2,
        [model],
        "mapped_sentence_piece",
        ("", "") if codes else imported.SIDES,
        tuple(codes.values()),
    )


def _find_model(folder, settings):
    """Return the file of the SentencePiece model of a T5Tokenizer."""
    imported.require_tokenizer(folder, settings, _TOKENIZERS, _TOKENIZERS[0])
    model = folder / "spiece.model"
    if not model.is_file():  # transformers 5 does not save it
        raise errors.UserError(
            f"{folder} has no {model.name}. Put that of the model that was "
            "trained further there: the vocabulary is the same."
        )
    return model


def _sentinels(folder, settings, pieces):
    """Return the names of T5's sentinels; mT5's are pieces."""
    table = {"extra_ids": Setting(100)}
    file = folder / "tokenizer_config.json"
    given, _ = model_files.read_settings(settings, table, file)
    last = given["extra_ids"] - 1
    names = [f"{SPACE}<extra_id_{i}>" for i in range(last, -1, -1)]
    return [] if names[-1:] == pieces[-1:] else names
