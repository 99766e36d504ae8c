"""Transformers in Hugging Face's format: OPUS-MT, M2M-100, mBART-50, BART, ….

    config.json                              sizes and special ids
    model.safetensors, pytorch_model.bin     one of them; or of their indices,
                                             NAME.index.json, with their parts
    generation_config.json                   search, if there is one

huggingface_vocabularies.py has the files of tokens, and huggingface_t5.py the
settings and arrays of T5 and mT5.

Hugging Face's code of Marian (transformers/models/marian/modeling_marian.py)
computes positions by the paper's formula with all sines first, while Marian, by
which OPUS-MT's models were trained, has tensor2tensor's: --hparams=pos=timing
restores that.
"""

import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from t2t_repro.importing import (
    arrays,
    fairseq,
    huggingface_t5,
    huggingface_vocabularies,
    imported,
    model_files,
    weights,
)
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.huggingface_vocabularies import Tokenizer
from t2t_repro.importing.imported import FoundVocabularies, Imported
from t2t_repro.importing.model_files import Setting
from t2t_repro.text.vocabulary import PAD

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
# Arrays that are not read; those of positions are copies of the formula.
_UNREAD_ARRAYS = (
    re.escape(_SHARED),
    r"model\.(en|de)coder\.(embed_positions\.weights|version)",
    huggingface_t5.UNREAD,
)
_POSITIONS_TOLERANCE = 1e-5
# Settings of MarianConfig, with its defaults; null is the default, too.
_SETTINGS = {
    "d_model": Setting(int, "hidden_size"),
    "encoder_ffn_dim": Setting(int),
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
# Settings that must have the values of others: the decoder's, and names of all
# configurations (attribute_map), which transformers 5 lets win.
_SAME = {
    "decoder_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
# Settings of generate(), with the defaults of GenerationConfig.
_SEARCH = {
    "num_beams": Setting(1, "beam_size", lowest=1),
    "length_penalty": Setting(1.0, "alpha"),
    "no_repeat_ngram_size": Setting(0, "no_repeat_ngram_size"),
    "min_length": Setting(0),
    "min_new_tokens": Setting(0),
    "renormalize_logits": Setting(False),
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
    exponential_decay_length_penalty forced_decoder_ids suppress_tokens
    begin_suppress_tokens sequence_bias force_words_ids constraints
    stop_strings guidance_scale penalty_alpha dola_layers watermarking_config
    """.split()
)
_FORCED = "forced_bos_token_id"
# generate() takes these ids from its own file where that has them.
_IDS = {
    "eos_token_id": "eos_token_id",
    "forced_eos_token_id": "eos_token_id",
    "pad_token_id": "pad_token_id",
    "decoder_start_token_id": "decoder_start_token_id",
}


def read(folder: pathlib.Path) -> Imported:
    """Read a model in the folder of these files."""
    file = model_files.find_file(folder, CONFIG)
    stored = model_files.without_null(model_files.read_json(file, dict))
    types = {"model_type": Setting("", values=tuple(_FAMILIES))}
    model_files.read_settings(stored, types, file)
    family = _FAMILIES[stored["model_type"]]
    config, hparams = family.read_settings(stored, file)
    weights_file = model_files.find_file(folder, *WEIGHTS)
    tensors, weights_files = arrays.read_weights(weights_file)
    if tensors.names(r"encoder\.layers\..*"):  # as BartModel saves them
        tensors = tensors.within(_NAMES.scope)
    search, first, is_without_pad, search_files = _read_search(
        folder, stored, config, family
    )
    tokenizer = folder / "tokenizer_config.json"
    is_there = tokenizer.is_file()
    settings = model_files.read_json(tokenizer, dict) if is_there else {}
    settings = {"tokenizer_class": stored.get("tokenizer_class")} | settings
    config |= {_FORCED: first}
    found = family.read_vocabularies(Tokenizer(folder, config, settings))
    model_weights = family.read_weights(tensors, config, hparams, found)
    if is_without_pad:
        count = len(model_weights["softmax/weight"])
        zeros = np.zeros(count, np.float32)
        model_weights.setdefault("softmax/bias", zeros)[PAD] = imported.PAD_BIAS
        hparams["softmax_bias"] = True
    return Imported(
        hparams,
        model_weights,
        found,
        search,
        (file, *weights_files, *found.files, *search_files),
        tensors.refuse_rest(_UNREAD_ARRAYS),
    )


def _read_matrices(tensors, config):
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


def _read_fsmt_matrices(tensors, config):
    """Return the same of an FSMT.

    In transformers 4 the last two are one, of which a file may have one name.
    """
    size = config["d_model"]
    source = tensors.take("model.encoder.embed_tokens.weight", -1, size)
    names = [
        f"model.decoder.{name}.weight"
        for name in ("embed_tokens", "output_projection")
    ]
    present = [name for name in names if name in tensors] or names
    found = [tensors.take(name, -1, size) for name in present]
    return source, found[0], found[-1]


class _Family(NamedTuple):
    """Models of a model_type, as transformers' code computes them."""

    read_vocabularies: Callable[[Tokenizer], FoundVocabularies]
    # Hparams that no setting stands for.
    hparams: Mapping[str, Any]
    # Settings that MarianConfig lacks, or has with another default.
    settings: Mapping[str, Setting]
    # Settings of older versions, and the values that the code now stands for.
    unread: Mapping[str, Any]
    # Whether an output may begin with a given token.
    forces_first: bool = False
    # Returns the embeddings of both sides, and the softmax.
    read_matrices: Callable[..., Any] = _read_matrices

    def read_settings(
        self, stored: Mapping[str, Any], file: pathlib.Path
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings of a config.json, and their hparams."""
        config, hparams = model_files.read_settings(
            stored, {**_SETTINGS, **self.settings}, file
        )
        model_files.require_same(file, stored, config, _SAME)
        model_files.require_fixed(file, stored, self.unread)
        hparams |= self.hparams
        if hparams["pos"] == "timing":  # numbers begin after that of PAD
            hparams["first_position"] = config["pad_token_id"] + 1
        return config, hparams | {
            **model_files.layer_counts(
                config["encoder_layers"], config["decoder_layers"]
            ),
            **model_files.filter_sizes(
                config["encoder_ffn_dim"], config["decoder_ffn_dim"]
            ),
            "attention_bias": True,
            "norm_epsilon": 1e-5,  # default of torch.nn.LayerNorm
        }

    def read_weights(
        self,
        tensors: Tensors,
        config: Mapping[str, Any],
        hparams: dict[str, Any],
        found: FoundVocabularies,
    ) -> dict[str, np.ndarray]:
        """Return all weights by their paths, and complete the hparams."""
        # No name keeps the file's matrices, which may be 1 GB, while the layers
        # are read.
        result = _embeddings(
            tensors, config, found, self.read_matrices(tensors, config)
        )
        result |= _positions(tensors, hparams, config["d_model"])
        hparams |= imported.sharing(result, found.pair)
        return result | weights.read_stacks(tensors, _NAMES, hparams)


def _defaults(**values):
    """Return settings with other defaults than MarianConfig's."""
    return {
        name: _SETTINGS[name]._replace(default=value)
        for name, value in values.items()
    }


_PRE_NORM = model_files.norm_order(pre_norm=True)
_LEARNED = {"pos": "emb", "embedding_norm": True}
_UNREAD = "normalize_before", "normalize_embedding", "add_final_layer_norm"
_OFFSET = {"static_position_embeddings": False, "extra_pos_embeddings": 2}
_FAMILIES: dict[str, _Family | huggingface_t5.T5] = {
    "marian": _Family(
        huggingface_vocabularies.read_marian,
        {"pos": "sines_then_cosines"},
        {},
        dict.fromkeys(_UNREAD, False),
    ),
    "m2m_100": _Family(
        huggingface_vocabularies.read_languages,
        {"pos": "timing"} | _PRE_NORM,
        {"vocab_size": Setting(128_112)}
        | _defaults(
            activation_function="relu",
            scale_embedding=True,
            attention_dropout=0.1,
        ),
        {},
        True,
    ),
    "mbart": _Family(
        huggingface_vocabularies.read_languages,
        _LEARNED | _PRE_NORM,
        {"vocab_size": Setting(50_265)},
        dict.fromkeys(_UNREAD, True) | _OFFSET,
        True,
    ),
    "fsmt": _Family(
        huggingface_vocabularies.read_fsmt,
        {"pos": "timing"},
        {
            "langs": Setting(list),
            "tie_word_embeddings": Setting(False, values=[False]),
            "decoder_start_token_id": Setting(2),  # of FSMTConfig
        }
        | _defaults(activation_function="relu", scale_embedding=True),
        {},
        read_matrices=_read_fsmt_matrices,
    ),
    "bart": _Family(
        huggingface_vocabularies.read_bart,
        _LEARNED,
        {"vocab_size": Setting(50_265)},
        dict.fromkeys(_UNREAD, False) | {"normalize_embedding": True} | _OFFSET,
        True,
    ),
    "pegasus": _Family(
        huggingface_vocabularies.read_pegasus,
        {"pos": "sines_then_cosines"} | _PRE_NORM,
        {"vocab_size": Setting(50_265)},
        dict.fromkeys(_UNREAD, True) | {"normalize_embedding": False},
    ),
    **dict.fromkeys(("t5", "mt5"), huggingface_t5.T5()),
}


def _embeddings(tensors, config, found, matrices):
    """Return embeddings and softmax, and the vector before all targets."""
    source, target, softmax = matrices
    lists = [f for f in found.files if f.suffix == ".json"] or found.files
    for name, array, order, file in (
        ("encoder's embedding", source, found.orders[0], lists[0]),
        ("decoder's embedding", target, found.orders[1], lists[-1]),
        ("softmax", softmax, found.orders[1], lists[-1]),
    ):
        count = max(order) + 1
        if len(array) != count:
            rule = f"that of rows of the {name}, {len(array):,}"
            raise model_files.refuse(file, "the number of tokens", rule, count)
    pad, eos = found.orders[1][:2]
    start = config["decoder_start_token_id"]
    is_below = f"below {len(target):,}, the number of tokens"
    for name, is_right, rule in (
        ("pad_token_id", config["pad_token_id"] == pad, f"{pad}, that of PAD"),
        ("eos_token_id", config["eos_token_id"] == eos, f"{eos}, that of EOS"),
        ("decoder_start_token_id", start < len(target), is_below),
    ):
        model_files.require(CONFIG, config, name, is_right, rule)
    bias = tensors.take_if_present("final_logits_bias", len(target))
    result = imported.matrices(found.orders, source, target, softmax, bias)
    if target[start].any():
        result["start"] = target[start].copy()  # no view that keeps all
    return result


def _positions(tensors, hparams, size):
    """Return learned positions, or compare stored ones with the formula.

    Older files have those.
    """
    pattern = "model.{side}.embed_positions.weight"
    if hparams["pos"] == "emb":
        first = fairseq.FIRST_POSITION
        return weights.take_positions(tensors, pattern, first, hparams)
    for side in weights.SIDES:
        name = pattern.replace("{side}", side)
        stored = tensors.take_if_present(name, -1, size)
        if stored is None:
            continue
        formula = weights.encode_positions(hparams["pos"], 0, stored.shape)
        first = hparams.get("first_position", 0)
        difference = np.abs(formula - stored)[first:].max(initial=0)
        if difference > _POSITIONS_TOLERANCE * len(stored):
            rule = "Hugging Face's sinusoids"
            raise model_files.refuse("the weights", name, rule, difference)
    return {}


def _read_search(folder, stored, config, family):
    """Return the settings of generate() as DecodeHParams, and more of it.

    The others are the token that begins all outputs, if it is known, whether
    PAD, whose logit is 0 in OPUS-MT, has no probability, and the files.

    generate() divides a log-probability by length^length_penalty, and counts
    EOS. Its max_length, 512 in OPUS-MT, is not taken: an output here has at
    most extra_length subwords more than its input.
    """
    file, files = folder / CONFIG, []
    if (folder / GENERATION).is_file():  # then generate() reads it alone
        file = folder / GENERATION
        files, stored = [file], model_files.read_json(file, dict)
    stored = model_files.without_null(stored)
    if not files and stored.get("force_bos_token_to_be_generated"):  # of BART
        stored = {_FORCED: stored.get("bos_token_id", 0)} | stored
    if files and "bos_token_id" in stored:  # begins outputs, if no other does
        stored = {"decoder_start_token_id": stored["bos_token_id"]} | stored
    for name, other in _IDS.items():
        wanted = config[other]
        is_right = stored.get(name) in (None, wanted, [wanted])
        rule = f"{wanted}, {other} of {CONFIG}"
        model_files.require(file, stored, name, is_right, rule)
    model_files.require_fixed(file, stored, _SEARCH_FIXED, [[]])
    if not family.forces_first:
        model_files.require_fixed(file, stored, {_FORCED: None})
    pad = [[config["pad_token_id"]]]  # of OPUS-MT; here PAD is no output
    model_files.require_fixed(file, stored, {"bad_words_ids": pad}, [[]])
    settings, search = model_files.read_settings(stored, _SEARCH, file)
    # Replaces the other, and does not count EOS.
    new = stored.get("min_new_tokens")
    shortest = settings["min_length"] if new is None else new and new + 1
    search |= {"length_penalty_offset": 0, "min_length": shortest}
    normalizes = settings[name := "renormalize_logits"]
    is_right = not (normalizes and (shortest or search["no_repeat_ngram_size"]))
    rule = "false with min_length, min_new_tokens or no_repeat_ngram_size"
    model_files.require(file, settings, name, is_right, rule)
    is_without_pad = normalizes and bool(stored.get("bad_words_ids"))
    return search, stored.get(_FORCED), is_without_pad, files
