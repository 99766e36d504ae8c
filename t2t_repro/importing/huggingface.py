"""Transformers in Hugging Face's format: OPUS-MT, M2M-100 and NLLB-200.

    config.json                              sizes and special ids
    model.safetensors, pytorch_model.bin     one of them; or of their indices,
                                             NAME.index.json, with their parts
    vocab.json                               {token: id}
    target_vocab.json                        if the targets have their own ids
    source.spm, target.spm                   SentencePiece models
    generation_config.json                   search, if there is one

huggingface_languages.py has the files of tokens of models of many languages.

Hugging Face's code of Marian (transformers/models/marian/modeling_marian.py)
computes positions by the paper's formula with all sines first, while Marian, by
which OPUS-MT's models were trained, has tensor2tensor's: --hparams=pos=timing
restores that.
"""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_repro.importing import (
    arrays,
    fairseq,
    huggingface_languages,
    imported,
    model_files,
    weights,
)
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported
from t2t_repro.importing.model_files import Setting
from t2t_repro.layers.embedding import SinesThenCosines
from t2t_repro.text.vocabulary import SpecialTokens

CONFIG, GENERATION = "config.json", "generation_config.json"
# The first that is there has the weights, or names the files that have them.
WEIGHTS = (
    "model.safetensors",
    f"model.safetensors{arrays.INDEX}",
    "pytorch_model.bin",
    f"pytorch_model.bin{arrays.INDEX}",
)
_NAMES = fairseq.NAMES._replace(scope="model.")
_SHARED = "model.shared.weight"
# Copies of the formula, which are not read.
_POSITIONS = r"model\.(en|de)coder\.embed_positions\.weights"
_POSITIONS_TOLERANCE = 1e-5
# Settings of MarianConfig, with its defaults; null is the default, too.
_SETTINGS = {
    "model_type": Setting("", values=("marian", "m2m_100")),
    "d_model": Setting(int, "hidden_size"),
    "encoder_ffn_dim": Setting(int, "filter_size"),
    "encoder_attention_heads": Setting(int, "num_heads"),
    "encoder_layers": Setting(int),
    "decoder_layers": Setting(int),
    "decoder_attention_heads": Setting(int),
    "decoder_ffn_dim": Setting(int),
    "decoder_start_token_id": Setting(int),
    "pad_token_id": Setting(int),
    "eos_token_id": Setting(int),
    "activation_function": Setting(
        "gelu",
        "ffn_activation",
        {
            "relu": "relu",
            "gelu": "gelu",
            "gelu_new": "gelu_tanh",
            "quick_gelu": "gelu_sigmoid",
            "swish": "silu",
            "silu": "silu",
        },
    ),
    "scale_embedding": Setting(
        False, "multiply_embedding_mode", {True: "sqrt_depth", False: "none"}
    ),
    "tie_word_embeddings": Setting(True),
    "share_encoder_decoder_embeddings": Setting(True),
    "dropout": Setting(0.1, "layer_prepostprocess_dropout", below=1),
    "attention_dropout": Setting(0.0, "attention_dropout", below=1),
    "activation_dropout": Setting(0.0, "relu_dropout", below=1),
}
# M2M100Config has other defaults. Dense models of NLLB have it, too.
_M2M100 = {
    "vocab_size": Setting(128_112),
    "activation_function": _SETTINGS["activation_function"]._replace(
        default="relu"
    ),
    "scale_embedding": _SETTINGS["scale_embedding"]._replace(default=True),
    "attention_dropout": _SETTINGS["attention_dropout"]._replace(default=0.1),
}
_OF_DECODER = {
    "decoder_attention_heads": "encoder_attention_heads",
    "decoder_ffn_dim": "encoder_ffn_dim",
}
# Settings that Hugging Face's code of Marian does not read.
_UNREAD = "normalize_before", "normalize_embedding", "add_final_layer_norm"
# Settings of generate(), with the defaults of GenerationConfig.
_SEARCH = {
    "num_beams": Setting(1, "beam_size"),
    "length_penalty": Setting(1.0, "alpha", lowest=-model_files.LIMIT),
    "no_repeat_ngram_size": Setting(0, "no_repeat_ngram_size"),
    "min_length": Setting(0),
    "min_new_tokens": Setting(0),
    "early_stopping": Setting(
        False,
        "beam_search",
        {False: "huggingface", True: "huggingface_early_stopping"},
    ),
}
# Settings of generate() that change outputs and have no counterpart here, with
# the only value that is allowed; null is, too.
_SEARCH_FIXED: dict[str, Any] = {
    "do_sample": False,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "token_healing": False,
} | dict.fromkeys(
    """
    exponential_decay_length_penalty forced_bos_token_id forced_decoder_ids
    suppress_tokens begin_suppress_tokens sequence_bias force_words_ids
    constraints stop_strings guidance_scale penalty_alpha dola_layers
    watermarking_config
    """.split()
)
# generate() takes these ids from its own file where that has them.
_IDS = {
    "eos_token_id": "eos_token_id",
    "forced_eos_token_id": "eos_token_id",
    "pad_token_id": "pad_token_id",
    "decoder_start_token_id": "decoder_start_token_id",
}


def read(folder: pathlib.Path) -> Imported:
    """Read a model in the folder of these files."""
    stored, config, hparams = _read_settings(folder)
    weights_file = model_files.find_file(folder, *WEIGHTS)
    tensors, weights_files = arrays.read_weights(weights_file)
    tokenizer = folder / "tokenizer_config.json"
    is_there = tokenizer.is_file()
    languages = model_files.read_json(tokenizer, dict) if is_there else {}
    codes: tuple[str, ...] = ()
    if config["model_type"] == "marian":
        found = read_vocabularies(folder, config)
    else:
        found, codes = huggingface_languages.read(
            folder, languages, config["vocab_size"]
        )
    model_weights = _weights(tensors, config, hparams, found)
    left_over = tensors.refuse_rest([re.escape(_SHARED), _POSITIONS])
    search, search_files = _read_search(folder, stored, config)

    def of_side(*names):  # of Marian's tokenizers, and of others
        return str(next(filter(None, map(languages.get, names)), ""))

    return Imported(
        hparams,
        model_weights,
        found.pair,
        found.kind,
        search,
        (folder / CONFIG, *weights_files, *found.files, *search_files),
        (
            of_side("source_lang", "src_lang"),
            of_side("target_lang", "tgt_lang"),
        ),
        tokenizer,
        codes,
        left_over,
    )


def read_vocabularies(
    folder: pathlib.Path, config: Mapping[str, Any]
) -> FoundVocabularies:
    """Read the vocabularies of a folder with the settings of config.json.

    Raises:
        UserError: a file is missing or damaged, or lacks a special token.
    """
    lists = [model_files.find_file(folder, "vocab.json")] * 2
    if (folder / "target_vocab.json").is_file():
        lists[1] = folder / "target_vocab.json"
    models = [
        model_files.find_file(folder, f"{x}.spm") for x in ("source", "target")
    ]
    tokens = [model_files.read_tokens(file) for file in lists]
    special = [_special(names, config, folder / CONFIG) for names in tokens]
    return imported.map_pieces(models, tokens, special, lists, True)


def _special(tokens, config, file):
    """Return the names of the special tokens that have ids in config.json."""
    rule = f"below the number of tokens ({len(tokens):,})"
    model_files.require(
        file,
        config,
        *(
            (name, 0 <= config[name] < len(tokens), rule)
            for name in sorted({*_IDS.values()})
        ),
    )
    eos, pad = tokens[config["eos_token_id"]], tokens[config["pad_token_id"]]
    return SpecialTokens(eos, "<unk>", pad)


def _weights(
    tensors: Tensors,
    config: Mapping[str, Any],
    hparams: dict[str, Any],
    found: FoundVocabularies,
) -> dict[str, np.ndarray]:
    """Return all weights by their paths, and complete the hparams."""
    result = _embeddings(tensors, config, found)
    for side in weights.SIDES:
        _check_positions(tensors, side, config["d_model"])
    hparams |= {
        "softmax_bias": "softmax/bias" in result,
        "learned_start": "start" in result,
        **imported.sharing(result, found.pair),
    }
    return result | weights.read_stacks(tensors, _NAMES, hparams)


def _embeddings(tensors, config, found):
    """Return embeddings and softmax, and the vector before all targets."""
    source, target, softmax = _matrices(tensors, config)
    lists = [file for file in found.files if file.suffix == ".json"]
    for name, array, order, file in (
        ("encoder's embedding", source, found.orders[0], lists[0]),
        ("decoder's embedding", target, found.orders[1], lists[-1]),
        ("softmax", softmax, found.orders[1], lists[-1]),
    ):
        count = max(order) + 1
        if len(array) != count:
            rule = f"that of rows of the {name}, {len(array):,}"
            raise model_files.refuse(file, "the number of tokens", rule, count)
    bias = tensors.take_if_present("final_logits_bias", len(target))
    result = imported.matrices(found.orders, source, target, softmax, bias)
    start = target[config["decoder_start_token_id"]]
    if start.any():
        result["start"] = start.copy()  # not a view that keeps all of them
    return result


def _matrices(tensors, config):
    """Return the embeddings of both sides, and the softmax.

    A file may have a shared matrix under several names. Without
    tie_word_embeddings, transformers 5 writes model.shared.weight and never
    reads it.
    """
    share, tie = "share_encoder_decoder_embeddings", "tie_word_embeddings"
    sides = [f"model.{side}.embed_tokens.weight" for side in weights.SIDES]
    head, size = "lm_head.weight", config["d_model"]
    tied = [head] if config[tie] else []
    if config[share] and (
        config[tie] or not all(side in tensors for side in sides)
    ):
        names = [_SHARED, *sides, *tied]
        reason = f"{share} and {tie}"
        source = target = tensors.take_one(names, reason, -1, size)
    else:
        source = tensors.take(sides[0], -1, size)
        target = tensors.take_one([sides[1], *tied], tie, -1, size)
    if config[tie]:
        return source, target, target
    if head not in tensors:
        rule = f"true where the weights have no {head}"
        raise model_files.refuse(CONFIG, tie, rule, False)
    return source, target, tensors.take(head, -1, size)


def _check_positions(tensors, side, size):
    """Compare stored positions with the formula: older files have them."""
    name = f"model.{side}.embed_positions.weight"
    stored = tensors.take_if_present(name, -1, size)
    if stored is None:
        return
    zeros = np.zeros((1, *stored.shape), np.float32)
    formula = SinesThenCosines()(zeros, np.arange(len(stored))[None])
    difference = np.abs(np.asarray(formula)[0] - stored).max(initial=0)
    if difference > _POSITIONS_TOLERANCE * len(stored):
        rule = "Hugging Face's sinusoids"
        raise model_files.refuse("the weights", name, rule, difference)


def _read_settings(folder):
    """Return config.json, the settings in it, and the hparams of these."""
    file = model_files.find_file(folder, CONFIG)
    stored = model_files.without_null(model_files.read_json(file, dict))
    is_marian = stored.get("model_type") != "m2m_100"
    table = _SETTINGS if is_marian else _SETTINGS | _M2M100
    config, hparams = model_files.read_settings(stored, table, file)
    if is_marian:
        positions = {"pos": "sines_then_cosines"}
        model_files.require_off(
            file, stored, _UNREAD, "false: its code does not read it"
        )
    else:  # the numbers of positions begin after that of PAD
        positions = {
            "pos": "timing",
            "first_position": config["pad_token_id"] + 1,
            **model_files.norm_order(pre_norm=True),
        }
    model_files.require_same(file, stored, config, _OF_DECODER)
    return (
        stored,
        config,
        hparams
        | {
            **model_files.layer_counts(
                config["encoder_layers"], config["decoder_layers"]
            ),
            "attention_bias": True,
            "norm_epsilon": 1e-5,  # default of torch.nn.LayerNorm
            **positions,
        },
    )


def _read_search(folder, stored, config):
    """Return the settings of generate() as DecodeHParams, and their files.

    generate() divides a log-probability by length^length_penalty, and counts
    EOS. Its max_length, 512 in OPUS-MT, is not taken: an output here has at
    most extra_length subwords more than its input.
    """
    file, files = folder / CONFIG, []
    if (folder / GENERATION).is_file():
        file = folder / GENERATION
        files = [file]
        stored = stored | model_files.read_json(file, dict)
    stored = model_files.without_null(stored)
    model_files.require(
        file,
        stored,
        *(
            (
                name,
                stored.get(name) in (None, config[other], [config[other]]),
                f"{config[other]}, {other} of {CONFIG}",
            )
            for name, other in _IDS.items()
        ),
    )
    model_files.require_fixed(file, stored, _SEARCH_FIXED, [[]])
    pad = [[config["pad_token_id"]]]  # of OPUS-MT; here PAD is no output
    model_files.require_fixed(file, stored, {"bad_words_ids": pad}, [[]])
    settings, search = model_files.read_settings(stored, _SEARCH, file)
    new = settings["min_new_tokens"]  # without EOS
    shortest = max(settings["min_length"], new + 1 if new else 0)
    return search | {
        "length_penalty_offset": 0,
        "min_length": shortest,
    }, files
