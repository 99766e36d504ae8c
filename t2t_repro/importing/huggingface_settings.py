"""Settings of Hugging Face's Marian models, and what they are here."""

import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_repro.importing import imported, model_files
from t2t_repro.io import json_files

_MODEL_TYPE = "marian"
CONFIG, GENERATION = "config.json", "generation_config.json"
_SHAPE = {
    "d_model": int,
    "encoder_layers": int,
    "decoder_layers": int,
    "encoder_attention_heads": int,
    "decoder_attention_heads": int,
    "encoder_ffn_dim": int,
    "decoder_ffn_dim": int,
    "vocab_size": int,
    "decoder_start_token_id": int,
    "pad_token_id": int,
    "eos_token_id": int,
}
# Defaults of MarianConfig and GenerationConfig; null is a default, too.
_DEFAULTS = {
    "activation_function": "gelu",
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "share_encoder_decoder_embeddings": True,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}
_SEARCH_DEFAULTS = {
    "num_beams": 1,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": 0,
}
# Settings of generate() that change outputs and have no counterpart here, with
# the only value that is allowed; null is, too.
_SEARCH_FIXED = {
    "do_sample": False,
    "early_stopping": False,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "forced_decoder_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "force_words_ids": None,
    "constraints": None,
    "stop_strings": None,
    "guidance_scale": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "watermarking_config": None,
    "token_healing": False,
}
# generate() takes these ids from its own file where that has them.
_IDS = {
    "eos_token_id": "eos_token_id",
    "forced_eos_token_id": "eos_token_id",
    "pad_token_id": "pad_token_id",
    "decoder_start_token_id": "decoder_start_token_id",
}
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "swish": "silu",
    "silu": "silu",
}
# Settings that Hugging Face's code does not read.
_FALSE = ("normalize_before", "normalize_embedding", "add_final_layer_norm")
_EPSILON = 1e-5  # default of torch.nn.LayerNorm


def read(folder: pathlib.Path) -> dict[str, Any]:
    """Read and check config.json, with defaults.

    Raises:
        UserError: it is damaged, or has a setting that cannot be represented.
    """
    file = model_files.find(folder, CONFIG)
    stored = imported.read_json(file, dict)
    if (kind := stored.get("model_type")) != _MODEL_TYPE:
        raise imported.refuse(file, "model_type", repr(_MODEL_TYPE), kind)
    config = _with_defaults(stored, _SHAPE, _DEFAULTS, file)
    _check(config, file)
    return config


def hparams(config: Mapping[str, Any], has_bias: bool) -> dict[str, Any]:
    """Return the hparams that differ from those of fine_tuning."""
    return {
        "hidden_size": config["d_model"],
        "filter_size": config["encoder_ffn_dim"],
        "num_heads": config["encoder_attention_heads"],
        **imported.layer_counts(
            config["encoder_layers"], config["decoder_layers"]
        ),
        "attention_bias": True,
        "ffn_activation": _ACTIVATIONS[config["activation_function"]],
        "norm_epsilon": _EPSILON,
        "pos": "sines_then_cosines",
        "multiply_embedding_mode": "sqrt_depth"
        if config["scale_embedding"]
        else "none",
        "softmax_bias": has_bias,
        "layer_prepostprocess_dropout": float(config["dropout"]),
        "attention_dropout": float(config["attention_dropout"]),
        "relu_dropout": float(config["activation_dropout"]),
    }


def search(
    folder: pathlib.Path, config: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[pathlib.Path, ...]]:
    """Return the settings of generate() as DecodeHParams, and their files.

    generate() divides a log-probability by length^length_penalty, and counts
    EOS. Its max_length, 512 in OPUS-MT, is not taken: an output here has at
    most extra_length subwords more than its input.

    Raises:
        UserError: a setting has no counterpart here.
    """
    file = folder / GENERATION
    stored = dict(config)
    if file.is_file():
        stored |= imported.read_json(file, dict)
    else:
        file = folder / CONFIG
    for name, id_name in _IDS.items():
        only = config[id_name]
        if (value := stored.get(name)) not in (None, only, [only]):
            rule = f"{only}, {id_name} of {CONFIG}"
            raise imported.refuse(file, name, rule, value)
    _check_search(stored, file)
    stored = _with_defaults(stored, {}, _SEARCH_DEFAULTS, file)
    new = stored["min_new_tokens"]  # without EOS
    return {
        "beam_size": stored["num_beams"],
        "alpha": float(stored["length_penalty"]),
        "length_penalty_offset": 0,
        "beam_search": "huggingface",
        "no_repeat_ngram_size": stored["no_repeat_ngram_size"],
        "min_length": max(stored["min_length"], new + 1 if new else 0),
    }, ((file,) if file.name == GENERATION else ())


def _check_search(stored: Mapping[str, Any], file: pathlib.Path) -> None:
    for name, only in _SEARCH_FIXED.items():
        if (value := stored.get(name)) not in (None, only, []):
            rule = "null" if only is None else repr(only)
            raise imported.refuse(file, name, rule, value)
    pad = [[stored["pad_token_id"]]]  # of OPUS-MT; here PAD is no output
    if (value := stored.get("bad_words_ids")) not in (None, [], pad):
        raise imported.refuse(file, "bad_words_ids", repr(pad), value)


def _with_defaults(
    values: Mapping[str, Any],
    shape: Mapping[str, type],
    defaults: Mapping[str, Any],
    file: pathlib.Path,
) -> dict[str, Any]:
    """Return values with defaults; refuse values of another type.

    Args:
        values: content of the file.
        shape: types of the values that it must have.
        defaults: values of those that it may lack; null is one, too.
        file: its path.
    """
    given = {name: x for name, x in values.items() if x is not None}
    types = {**shape, **{name: type(x) for name, x in defaults.items()}}
    remedy = "Such a model cannot be imported."
    json_files.require_shape(file, {**defaults, **given}, types, remedy)
    return {**defaults, **given}


def _check(config: Mapping[str, Any], file: pathlib.Path) -> None:
    """Refuse settings that cannot be represented."""
    heads = config["encoder_attention_heads"]
    width = config["encoder_ffn_dim"]
    for name, is_right, rule in (
        *(
            (name, not config.get(name), "false: its code does not read it")
            for name in _FALSE
        ),
        (
            "activation_function",
            config["activation_function"] in _ACTIVATIONS,
            f"one of {', '.join(_ACTIVATIONS)}",
        ),
        (
            "decoder_attention_heads",
            config["decoder_attention_heads"] == heads,
            f"encoder_attention_heads ({heads})",
        ),
        (
            "decoder_ffn_dim",
            config["decoder_ffn_dim"] == width,
            f"encoder_ffn_dim ({width})",
        ),
    ):
        if not is_right:
            raise imported.refuse(file, name, rule, config.get(name))
