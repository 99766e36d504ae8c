"""Marian models in Hugging Face's format, such as those of OPUS-MT.

    config.json                              sizes and special ids
    model.safetensors, pytorch_model.bin     one of them; or of their indices,
                                             NAME.index.json, with their parts
    vocab.json                               {token: id}
    target_vocab.json                        if the targets have their own ids
    source.spm, target.spm                   SentencePiece models
    generation_config.json                   search, if there is one

Hugging Face (transformers/models/marian/modeling_marian.py) computes positions
by the paper's formula with all sines first, while Marian, by which OPUS-MT's
models were trained, has tensor2tensor's: --hparams=pos=timing restores that.
"""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays, fairseq, imported, weights
from t2t_repro.importing.imported import Imported
from t2t_repro.io import files
from t2t_repro.layers.embedding import SinesThenCosines
from t2t_repro.text.sentence_piece import MappedSentencePiece
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

_POSITIONS_TOLERANCE = 1e-5
_SHARED = "model.shared.weight"


def read(folder: pathlib.Path) -> Imported:
    """Read a model.

    Args:
        folder: folder of the files above.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    config = read_settings(folder)
    names = "model.safetensors", "pytorch_model.bin"
    weights_file = arrays.find_file(
        folder, *names, *(f"{name}{arrays.INDEX}" for name in names)
    )
    tensors, weights_files = arrays.read_weights(weights_file)
    pair, orders, vocabulary_files = read_vocabularies(folder, config)
    changes = build_hparams(config, "final_logits_bias" in tensors)
    token_files = [f for f in vocabulary_files if f.suffix == ".json"]
    model_weights = _weights(tensors, config, changes, orders, token_files)
    left_over = tensors.refuse_rest([re.escape(_SHARED)])
    search, search_files = search_settings(folder, config)
    tokenizer = folder / "tokenizer_config.json"
    languages = (
        imported.read_json(tokenizer, dict) if tokenizer.is_file() else {}
    )
    return Imported(
        changes,
        model_weights,
        pair,
        "mapped_sentence_piece",
        search,
        (
            folder / CONFIG,
            *weights_files,
            *vocabulary_files,
            *search_files,
        ),
        (
            str(languages.get("source_lang") or ""),
            str(languages.get("target_lang") or ""),
        ),
        tokenizer,
        left_over,
    )


def read_vocabularies(
    folder: pathlib.Path, config: Mapping[str, Any]
) -> tuple[Vocabularies, list[list[int]], tuple[pathlib.Path, ...]]:
    """Return the vocabularies, their orders of ids, and the files."""
    files = [arrays.find_file(folder, "vocab.json")] * 2
    if (folder / "target_vocab.json").is_file():
        files[1] = folder / "target_vocab.json"
    pieces = [
        arrays.find_file(folder, f"{x}.spm") for x in ("source", "target")
    ]
    mapped = []
    for spm, vocab in zip(pieces, files, strict=True):
        tokens = _tokens(vocab)
        for name in ("eos_token_id", "pad_token_id", "decoder_start_token_id"):
            if not 0 <= config[name] < len(tokens):
                raise imported.refuse(
                    folder / CONFIG,
                    name,
                    f"below the number of tokens ({len(tokens):,})",
                    config[name],
                )
        special = SpecialTokens(
            tokens[config["eos_token_id"]],
            "<unk>",
            tokens[config["pad_token_id"]],
        )
        mapped.append(imported.map_ids(spm, tokens, special, vocab, True))
    source, target = (MappedSentencePiece(m.model) for m in mapped)
    return (
        Vocabularies(source, target),
        [m.order for m in mapped],
        (*dict.fromkeys(files), *pieces),
    )


def _tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a vocab.json by their ids."""
    ids = imported.read_json(file, {str: int})
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise errors.UserError(
            f"The ids in {file} must be 0, 1, 2, … {len(tokens) - 1:,}; some "
            "are missing or used twice."
        )
    return tokens


def _weights(tensors, config, changes, orders, token_files):
    """Return all weights by their roles."""
    size = config["d_model"]
    is_tied = config["tie_word_embeddings"]
    source, target, softmax = _matrices(tensors, config)
    bias = tensors.take_if_present("final_logits_bias", 1, len(target))
    imported.check_rows(
        {"encoder's embedding": source}, orders[0], token_files[0]
    )
    imported.check_rows(
        {"decoder's embedding": target, "softmax": softmax},
        orders[1],
        token_files[-1],
    )
    start = target[config["decoder_start_token_id"]]
    changes["learned_start"] = bool(start.any())
    for side in ("encoder", "decoder"):
        _check_positions(tensors, side, size)
    source, target, softmax = imported.reorder(source, target, softmax, orders)
    changes |= imported.sharing(
        is_tied,
        config["share_encoder_decoder_embeddings"]
        and np.array_equal(source, target),  # not with two lists of ids
    )
    return weights.Weights(
        weights.Side(source, _layers(tensors, "encoder", config)),
        weights.Side(target, _layers(tensors, "decoder", config)),
        softmax,
        None if bias is None else imported.rows(bias[0], orders[1]),
        start if changes["learned_start"] else None,
    )


def _matrices(tensors, config):
    """Return the embeddings of both sides, and the softmax.

    A file may have a shared matrix under several names. Without
    tie_word_embeddings, transformers 5 writes model.shared.weight and never
    reads it.
    """
    share, tie = "share_encoder_decoder_embeddings", "tie_word_embeddings"
    sides = [
        f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")
    ]
    head, size = "lm_head.weight", config["d_model"]
    if config[share] and (
        config[tie] or not all(side in tensors for side in sides)
    ):
        names = [_SHARED, *sides, *([head] if config[tie] else [])]
        source = target = tensors.take_one(
            names, f"{share} and {tie}", -1, size
        )
    else:
        source = tensors.take(sides[0], -1, size)
        names = [sides[1], *([head] if config[tie] else [])]
        target = tensors.take_one(names, tie, -1, size)
    if not config[tie] and head not in tensors:
        raise imported.refuse(
            "config.json", tie, f"true where the weights have no {head}", False
        )
    softmax = target if config[tie] else tensors.take(head, -1, size)
    return source, target, softmax


def _check_positions(tensors, side, size):
    """Compare stored positions with the formula: older files have them."""
    name = f"model.{side}.embed_positions.weight"
    stored = tensors.take_if_present(name, -1, size)
    if stored is None:
        return
    zeros = np.zeros((1, *stored.shape), np.float32)
    formula = SinesThenCosines()(zeros, np.arange(len(stored))[None])
    difference = np.abs(np.asarray(formula)[0] - stored).max()
    if difference > _POSITIONS_TOLERANCE * len(stored):
        raise imported.refuse(
            "the weights", name, "Hugging Face's sinusoids", difference
        )


def _layers(tensors, side, config):
    return [
        fairseq.read_layer(
            tensors,
            f"model.{side}.layers.{i}",
            side == "decoder",
            config["d_model"],
            config["encoder_ffn_dim"],
        )
        for i in range(config[f"{side}_layers"])
    ]


# Settings of Hugging Face's Marian models, and what they are here.

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


def read_settings(folder: pathlib.Path) -> dict[str, Any]:
    """Read and check config.json, with defaults.

    Raises:
        UserError: it is damaged, or has a setting that cannot be represented.
    """
    file = arrays.find_file(folder, CONFIG)
    stored = imported.read_json(file, dict)
    if (kind := stored.get("model_type")) != _MODEL_TYPE:
        raise imported.refuse(file, "model_type", repr(_MODEL_TYPE), kind)
    config = _with_defaults(stored, _SHAPE, _DEFAULTS, file)
    _check_settings(config, file)
    return config


def build_hparams(config: Mapping[str, Any], has_bias: bool) -> dict[str, Any]:
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


def search_settings(
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
    files.require_json_shape(file, {**defaults, **given}, types, remedy)
    return {**defaults, **given}


def _check_settings(config: Mapping[str, Any], file: pathlib.Path) -> None:
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
