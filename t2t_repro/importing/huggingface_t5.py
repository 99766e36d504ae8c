"""T5 in Hugging Face's format: versions 1.0 and 1.1, mT5 and MADLAD-400."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_repro.importing import (
    huggingface_vocabularies,
    imported,
    model_files,
    weights,
)
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies
from t2t_repro.importing.model_files import Setting

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
    "scale_decoder_outputs": Setting(False),
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
# As in huggingface.py.
_SAME = {
    "head_dim": "d_kv",
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
}


class T5:
    """Models of the types t5 and mt5, as transformers' code computes them."""

    forces_first = False  # no language begins an output
    read_vocabularies = staticmethod(huggingface_vocabularies.read_t5)

    def read_settings(
        self, stored: Mapping[str, Any], file: pathlib.Path
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings of a config.json, and their hparams."""
        # transformers 5 writes it; before, only the 1.0 has tied matrices. Its
        # mT5 does not read it.
        is_scaled = stored.get("model_type") == "t5" and stored.get(
            "scale_decoder_outputs", stored.get("tie_word_embeddings", True)
        )
        stored = {**stored, "scale_decoder_outputs": is_scaled}
        config, hparams = model_files.read_settings(stored, _SETTINGS, file)
        gate, _, activation = config["feed_forward_proj"].rpartition("-")
        if gate and activation == "gelu":
            activation = "gelu_new"
        model_files.require_same(file, stored, config, _SAME)
        derived = {"dense_act_fn": activation, "is_gated_act": bool(gate)}
        model_files.require_fixed(
            file, stored, derived | {"is_encoder_decoder": True}
        )
        encoder = config["num_layers"]
        decoder = config["num_decoder_layers"] or encoder
        channels = config["d_kv"] * config["num_heads"]
        return config, hparams | {
            **_HPARAMS,
            **model_files.layer_counts(encoder, decoder),
            "attention_key_channels": channels,
            "attention_value_channels": channels,
            "attention_dropout": config["dropout_rate"],
            "relu_dropout": config["dropout_rate"],
        }

    def read_weights(
        self,
        tensors: Tensors,
        config: Mapping[str, Any],
        hparams: dict[str, Any],
        found: FoundVocabularies,
    ) -> dict[str, np.ndarray]:
        """Return all weights by their paths, and complete the hparams."""
        size, rows = config["d_model"], config["vocab_size"]
        names = [f"{side}.embed_tokens.weight" for side in weights.SIDES]
        reason = "their use: T5 has one embedding"
        shared = tensors.take_one(["shared.weight", *names], reason, rows, size)
        softmax = tensors.take_if_present("lm_head.weight", rows, size)
        if softmax is None:
            rule = "true where the weights have no lm_head.weight"
            name = "tie_word_embeddings"
            model_files.require("config.json", config, name, config[name], rule)
            softmax = shared
        result = imported.matrices(found.orders, shared, shared, softmax)
        result["start"] = shared[config["decoder_start_token_id"]].copy()
        del shared, softmax  # gigabytes, before the layers are read
        hparams |= imported.sharing(result, found.pair)
        result |= weights.read_stacks(tensors, _NAMES, hparams)
        shape = hparams["position_buckets"], hparams["num_heads"]
        for side in weights.SIDES:
            path = f"{side}/layer_0/self_attention/multihead_attention"
            table = tensors.take(f"{side}.{_TABLE}", *shape)
            result[f"{path}/position_buckets/table"] = table
        if config["scale_decoder_outputs"]:
            scale = result["decoder/norm/scale"]  # only the softmax reads it
            result["decoder/norm/scale"] = scale * size**-0.5
        return result
