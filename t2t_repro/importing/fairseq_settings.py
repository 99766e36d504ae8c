"""Settings of fairseq's Transformers, in terms of our hparams.

Sources: models/transformer/transformer_config.py, transformer_legacy.py.
"""

import re
from collections.abc import Mapping
from typing import Any

from t2t_repro import errors
from t2t_repro.importing import imported

_ARCHITECTURES = re.compile(r"transformer(_(tiny|align|iwslt|wmt|vaswani)\w*)?")
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
}
# What the model reads, with the values of base_architecture().
_DEFAULTS: dict[str, Any] = {
    "encoder_embed_dim": 512,
    "encoder_ffn_embed_dim": 2048,
    "encoder_attention_heads": 8,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_normalize_before": False,
    "encoder_learned_pos": False,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "relu_dropout": 0.0,
    "activation_fn": "relu",
    "no_scale_embedding": False,
    "layernorm_embedding": False,
    "no_token_positional_embeddings": False,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
}
# These must be as the encoder's.
_OF_DECODER = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_attention_heads": "encoder_attention_heads",
    "decoder_input_dim": "encoder_embed_dim",
    "decoder_output_dim": "encoder_embed_dim",
    "decoder_normalize_before": "encoder_normalize_before",
    "decoder_learned_pos": "encoder_learned_pos",
}
# No hparam stands for these; they must be false, 0 or absent.
_REFUSED = (
    "adaptive_softmax_cutoff",
    "adaptive_input",
    "cross_self_attention",
    "no_cross_attention",
    "merge_src_tgt_embed",
    "char_inputs",
    "no_decoder_final_norm",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "encoder_layers_to_keep",
    "decoder_layers_to_keep",
    "quant_noise_pq",
    "quant_noise_scalar",
    "base_layers",
    "scale_attn",
    "scale_heads",
    "scale_fc",
    "scale_resids",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
)
# Multilingual tasks add tokens of languages to inputs and outputs.
_TASK = "translation"
# Types of settings; other objects, such as arrays, are not compared.
_VALUES = (bool, int, float, str, list, dict, type(None))
_MAX_SIZE = 10**6
_NESTED = "encoder", "decoder", "quant_noise"


def read(
    checkpoint: Mapping[str, Any], file: Any, languages: str = ""
) -> dict[str, Any]:
    """Return the settings of a checkpoint, with defaults for what it lacks.

    Args:
        checkpoint: result of model_files.read_checkpoint().
        file: its path.
        languages: "en-de", where the settings name none.

    Raises:
        UserError: there are none, or one cannot be represented.
    """
    found = {
        key: value if isinstance(value, _VALUES) else errors.shown(value)
        for key, value in _flat(checkpoint, file).items()
    }
    name = found.get("arch") or found.get("_name") or ""
    if not isinstance(name, str) or not _ARCHITECTURES.fullmatch(name):
        raise imported.refuse(
            file, "arch", "transformer, or transformer_wmt_… and alike", name
        )
    task = found.get("task") or _TASK
    if task != _TASK:
        rule = f"{_TASK!r}: others give the model more than the sentence"
        raise imported.refuse(file, "task", rule, task)
    settings = {}
    for key, default in _DEFAULTS.items():
        settings[key] = value = found.get(key, default)
        wanted = (int, float) if isinstance(default, float) else type(default)
        if not isinstance(value, wanted):
            raise imported.refuse(
                file, key, f"of type {type(default).__name__}", value
            )
        limit = 1 if isinstance(default, float) else _MAX_SIZE
        if not isinstance(default, str) and not 0 <= value < limit:
            rule = f"at least 0, and below {limit:,}"
            raise imported.refuse(file, key, rule, value)
    for key, same in _OF_DECODER.items():
        value = found.get(key, settings[same])
        if value != settings[same]:
            raise imported.refuse(
                file, key, f"{same} ({settings[same]!r})", value
            )
    for key in _REFUSED:
        if found.get(key):
            raise imported.refuse(file, key, "false or 0", found[key])
    if settings["activation_fn"] not in _ACTIVATIONS:
        raise imported.refuse(
            file,
            "activation_fn",
            f"one of {', '.join(_ACTIVATIONS)}",
            settings["activation_fn"],
        )
    pair = [found.get(f"{side}_lang") for side in ("source", "target")]
    if languages and not all(map(_is_word, pair)):
        pair = [*languages.split("-")]
    if not all(map(_is_word, pair)) or len(pair) != 2:
        raise errors.UserError(
            f"{file} must name the languages as in dict.en.txt and "
            f"dict.de.txt; got {pair}. Say --languages=en-de."
        )
    settings["source_lang"], settings["target_lang"] = pair
    settings["tokenizer"] = found["tokenizer"]
    return settings


def _is_word(value):
    return isinstance(value, str) and re.fullmatch(r"[\w-]+", value) is not None


def _flat(checkpoint, file):
    """Return args, or the parts of cfg as they would be in args."""
    args, config = checkpoint.get("args"), checkpoint.get("cfg")
    if isinstance(args, Mapping):
        return {"tokenizer": args.get("tokenizer")} | dict(args)
    model = config.get("model") if isinstance(config, Mapping) else None
    if not isinstance(model, Mapping):
        raise errors.UserError(
            f"{file} is not a checkpoint of fairseq: it has neither args nor "
            f"cfg.model, but {errors.shown(list(checkpoint))}."
        )
    flat = dict(model)
    for name in _NESTED:
        if isinstance(part := flat.get(name), Mapping):
            flat |= {f"{name}_{key}": value for key, value in part.items()}
    task = config.get("task")
    tokenizer = config.get("tokenizer")
    if isinstance(task, Mapping):
        flat |= {k: v for k, v in task.items() if str(k).endswith("_lang")}
        flat["task"] = task.get("_name")
    if isinstance(tokenizer, Mapping):
        tokenizer = tokenizer.get("_name")
    return flat | {"tokenizer": tokenizer}


def changes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hparams that differ from those of fine_tuning.

    Those of embeddings and of learned positions depend on the arrays.
    """
    pre_norm = settings["encoder_normalize_before"]
    positions = "emb" if settings["encoder_learned_pos"] else "timing"
    if settings["no_token_positional_embeddings"]:
        positions = "none"
    inner = settings["activation_dropout"] or settings["relu_dropout"]
    return {
        "hidden_size": settings["encoder_embed_dim"],
        "filter_size": settings["encoder_ffn_embed_dim"],
        "num_heads": settings["encoder_attention_heads"],
        **imported.layer_counts(
            settings["encoder_layers"], settings["decoder_layers"]
        ),
        "attention_bias": True,
        "ffn_activation": _ACTIVATIONS[settings["activation_fn"]],
        "norm_epsilon": 1e-5,  # of torch.nn.LayerNorm
        **imported.norm_order(pre_norm),
        "multiply_embedding_mode": "none"
        if settings["no_scale_embedding"]
        else "sqrt_depth",
        "embedding_norm": settings["layernorm_embedding"],
        "learned_start": True,  # fairseq starts with </s>
        "pos": positions,
        # Positions begin with the id after that of padding.
        "first_position": 2 if positions == "timing" else 0,
        "layer_prepostprocess_dropout": float(settings["dropout"]),
        "attention_dropout": float(settings["attention_dropout"]),
        "relu_dropout": float(inner),
    }
