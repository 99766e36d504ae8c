"""Settings of tensor2tensor's Transformers, in terms of our hparams."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

from t2t_repro.importing import imported

HPARAMS, FLAGS = "hparams.json", "flags.txt"
_SHAPE = {
    "hidden_size": int,
    "filter_size": int,
    "num_heads": int,
    "num_hidden_layers": int,
    "layer_preprocess_sequence": str,
    "layer_postprocess_sequence": str,
}
# Values of transformer_base_v1 for what hparams.json lacks. All that the model
# reads is here; what must have this value is not in _FREE.
_DEFAULTS: dict[str, Any] = {
    "num_encoder_layers": 0,
    "num_decoder_layers": 0,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "pos": "timing",
    "max_length": 256,
    "norm_epsilon": 1e-6,
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "shared_embedding_and_softmax_weights": True,
    "shared_embedding": False,
    "multiply_embedding_mode": "sqrt_depth",
    "vocab_divisor": 1,
    "use_target_space_embedding": True,
    "ffn_layer": "dense_relu_dense",
    "norm_type": "layer",
    "self_attention_type": "dot_product",
    "max_relative_position": 0,
    "attention_variables_3d": False,
    "proximity_bias": False,
    "causal_decoder_self_attention": True,
    "unidirectional_encoder": False,
    "hard_attention_k": 0,
    "num_area_layers": 0,
    "nbr_decoder_problems": 1,
    "prepend_mode": "none",
    "bottom": {},
    "top": {},
    "name": {},
}
_FREE = [*_DEFAULTS][:15]
_MAX_DIVISOR = 4096
_FFN_LAYERS = "dense_relu_dense", "conv_hidden_relu"
_PROBLEM = re.compile(
    r"^--problems?=['\"]?(\w*?translate_([a-z]{2})([a-z]{2})_\w+)", re.M
)


def read(file: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what hparams.json has, and the settings that the model reads.

    Raises:
        UserError: it cannot be read, or a setting cannot be represented.
    """
    found = imported.read_json(file, _SHAPE)
    return found, _settings(found, file)


def _settings(found, file):
    """Return the settings that the model reads; refuse others' values."""
    settings = {**_DEFAULTS, **{key: found[key] for key in _SHAPE}}
    for name, default in _DEFAULTS.items():
        value = found.get(name, default)
        settings[name] = value
        if type(value) is not type(default) and not (
            isinstance(default, float | bool) and isinstance(value, int | float)
        ):
            raise imported.refuse(
                file, name, f"of type {type(default).__name__}", value
            )
        if name not in _FREE and value != default:
            if name == "ffn_layer" and value in _FFN_LAYERS:
                continue
            raise imported.refuse(file, name, repr(default), value)
    norms = (
        settings["layer_preprocess_sequence"],
        settings["layer_postprocess_sequence"],
    )
    for name, is_right, rule in (
        (
            "layer_postprocess_sequence",
            norms in (("none", "dan"), ("n", "da")),
            "'dan' after 'none' (post-norm) or 'da' after 'n' (pre-norm)",
        ),
        (
            "vocab_divisor",
            1 <= settings["vocab_divisor"] <= _MAX_DIVISOR,
            f"from 1 to {_MAX_DIVISOR:,}",
        ),
        (
            "pos",
            settings["pos"] in ("timing", "emb", "none"),
            "'timing', 'emb' or 'none'",
        ),
    ):
        if not is_right:
            raise imported.refuse(file, name, rule, settings[name])
    return settings


def changes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hparams that differ from those of fine_tuning."""
    same = (
        *_SHAPE,
        "num_encoder_layers",
        "num_decoder_layers",
        "attention_key_channels",
        "attention_value_channels",
        "pos",
        "norm_epsilon",
        "layer_prepostprocess_dropout",
        "attention_dropout",
        "relu_dropout",
    )
    scaled = settings["multiply_embedding_mode"] == "sqrt_depth"
    result = {name: settings[name] for name in same}
    if settings["pos"] == "emb":
        # A multiple of 8 that has a row for positions beyond the table.
        result["max_length"] = (settings["max_length"] // 8 + 1) * 8
    return result | {
        "multiply_embedding_mode": "sqrt_depth" if scaled else "none",
        "inputs_bias": bool(settings["use_target_space_embedding"]),
    }


def languages(
    folder: pathlib.Path,
) -> tuple[tuple[str, str], tuple[pathlib.Path, ...]]:
    """Return the languages, by the problem in flags.txt, and the file."""
    file = folder / FLAGS
    if not file.is_file():
        return ("", ""), ()
    problem = _PROBLEM.search(file.read_text("utf-8", "replace"))
    if problem is None:
        return ("", ""), (file,)
    first, second = problem[2], problem[3]
    if "_rev" in problem[1]:
        first, second = second, first
    return (first, second), (file,)
