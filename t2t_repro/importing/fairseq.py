"""Transformers of fairseq, as those of WMT that it publishes.

    model.pt, checkpoint_best.pt     weights and settings
    dict.en.txt, dict.de.txt         see fairseq_vocabularies.py
    bpecodes

Sources: models/transformer/, modules/transformer_layer.py,
modules/multihead_attention.py and sequence_generator.py of fairseq.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays, imported, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported
from t2t_repro.text import bpe_codes
from t2t_repro.text.bpe_codes import BpeCodes
from t2t_repro.text.sentence_piece import MappedSentencePiece
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

_NAMES = "model.pt", "checkpoint_best.pt", "checkpoint_last.pt"
# Tables of the formula of positions; copies that fairseq 0.12 makes of an
# encoder layer's weights when it loads them; numbers of versions.
_IGNORED = (
    r"(en|de)coder\.embed_positions\.(weights|_float_tensor)",
    r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
    r"(en|de)coder\.version",
)
_VERSION_WITH_FINAL_NORM = 3
_SIDES = "encoder", "decoder"


def read(
    path: pathlib.Path, tokenizer: str = "", languages: str = ""
) -> Imported:
    """Read a model.

    Args:
        path: folder of the files above, or the file of weights in it.
        tokenizer: "moses" or "none", what fairseq's --tokenizer was; "": as
            the settings say.
        languages: "en-de", where the settings name none.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    file = path
    if path.is_dir():
        found = sorted(path.glob("*.pt"))
        file = found[0] if len(found) == 1 else arrays.find_file(path, *_NAMES)
    checkpoint = arrays.read_checkpoint(file)
    return convert(checkpoint, file, tokenizer, languages)


def convert(
    checkpoint: Mapping[str, Any],
    file: pathlib.Path,
    tokenizer: str = "",
    languages: str = "",
) -> Imported:
    """Convert the content of a checkpoint.

    Args:
        checkpoint: result of model_files.read_checkpoint().
        file: its path, beside which the vocabularies are.
        tokenizer: as of read().
        languages: as of read().

    Raises:
        UserError: as of read().
    """
    settings = read_settings(checkpoint, file, languages)
    state = checkpoint.get("model")
    if not isinstance(state, Mapping):
        raise errors.UserError(f"{file} has no weights under `model`.")
    tensors = Tensors(state, str(file))
    found = read_vocabularies(file.parent, settings, tokenizer)
    changes = hparams_changes(settings)
    model_weights = _weights(tensors, settings, changes, found)
    left_over = tensors.refuse_rest(_IGNORED)
    return Imported(
        changes,
        model_weights,
        found.pair,
        found.kind,
        # Defaults of fairseq-generate, which no file has; its min_len=1 does
        # not count EOS.
        {
            "beam_size": 5,
            "alpha": 1.0,
            "length_penalty_offset": 0,
            "min_length": 2,
        },
        (file, *dict.fromkeys(found.files)),
        (settings["source_lang"], settings["target_lang"]),
        file,
        left_over,
    )


def _weights(
    tensors: Tensors,
    settings: Mapping[str, Any],
    changes: dict[str, Any],
    found: FoundVocabularies,
) -> weights.Weights:
    """Return all weights by their roles, and complete the changes."""
    source, target, softmax = _matrices(tensors, settings, found.orders)
    start = target[EOS_ID]
    source, target, softmax = imported.reorder(
        source, target, softmax, found.orders
    )
    # fairseq stores the copies of what it shares.
    changes |= imported.sharing(
        np.array_equal(softmax, target),
        np.array_equal(source, target) and found.pair.have_same_ids,
    )
    tables: Sequence[np.ndarray | None] = [None, None]
    if (
        settings["encoder_learned_pos"]
        and not settings["no_token_positional_embeddings"]
    ):
        # fairseq refuses positions beyond its tables.
        tables = positions = weights.pad_positions(
            [_positions(tensors, side, settings) for side in _SIDES]
        )
        changes["max_length"] = len(positions[0])
    return weights.Weights(
        _side(tensors, "encoder", source, settings, tables[0]),
        _side(tensors, "decoder", target, settings, tables[1]),
        softmax,
        start=start,
    )


def _matrices(tensors, settings, orders):
    """Return the embeddings of both sides, and the softmax.

    fairseq stores a shared matrix under each of its names.
    """
    size, rows = settings["encoder_embed_dim"], [len(o) for o in orders]
    everything, outputs = (
        "share_all_embeddings",
        "share_decoder_input_output_embed",
    )
    sides = [f"{side}.embed_tokens.weight" for side in _SIDES]
    heads = ["decoder.output_projection.weight", "decoder.embed_out"]
    if settings[everything]:
        one = tensors.take_one([*sides, *heads], everything, rows[0], size)
        return one, one, one
    source = tensors.take(sides[0], rows[0], size)
    if settings[outputs]:
        names = [sides[1], *heads]
        target = softmax = tensors.take_one(names, outputs, rows[1], size)
    else:
        target = tensors.take(sides[1], rows[1], size)
        reason = "their use: both are the softmax"
        softmax = tensors.take_one(heads, reason, rows[1], size)
    return source, target, softmax


def _positions(tensors, side, settings):
    """Return learned positions, from that of the first token on."""
    name = f"{side}.embed_positions.weight"
    table = tensors.take(name, -1, settings["encoder_embed_dim"])
    first = PAD_ID + 1
    if len(table) <= first:
        raise imported.refuse(
            "the weights", name, f"of more than {first} rows", len(table)
        )
    return table[first:]


def _side(tensors, side, embedding, settings, positions):
    size = settings["encoder_embed_dim"]

    def norm(name):
        return weights.Norm(
            tensors.take(f"{side}.{name}.weight", size),
            tensors.take(f"{side}.{name}.bias", size),
        )

    final_norm = embedding_norm = None
    if settings["encoder_normalize_before"]:
        version = tensors.take_if_present(f"{side}.version", 1)
        if version is None or version[0] < _VERSION_WITH_FINAL_NORM:
            raise imported.refuse(
                "the weights",
                f"{side}.version",
                f"{_VERSION_WITH_FINAL_NORM} where layers are normalized "
                "before: earlier versions have no norm after them",
                None if version is None else float(version[0]),
            )
        final_norm = norm("layer_norm")
    if settings["layernorm_embedding"]:
        embedding_norm = norm("layernorm_embedding")
    layers = [
        read_layer(
            tensors,
            f"{side}.layers.{i}",
            side == "decoder",
            size,
            settings["encoder_ffn_embed_dim"],
        )
        for i in range(settings[f"{side}_layers"])
    ]
    return weights.Side(
        embedding, layers, final_norm, embedding_norm, positions
    )


# Settings of fairseq's Transformers, in terms of our hparams.
#
# Sources: models/transformer/transformer_config.py, transformer_legacy.py.

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


def read_settings(
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


def hparams_changes(settings: Mapping[str, Any]) -> dict[str, Any]:
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


# Vocabularies of fairseq: dict.LANGUAGE.txt, with codes or SentencePiece.
#
#     dict.en.txt                  "subword count", ids from 4 on
#     bpecodes, code               codes of subword-nmt or fastBPE
#     sentencepiece.bpe.model      instead of codes; or spm.model
#
# Source: data/dictionary.py. The first ids are <s>, <pad>, </s>, <unk>.

_FIRST = ["<s>", "<pad>", "</s>", "<unk>"]
PAD_ID, EOS_ID = 1, 2
_OVERWRITE = "#fairseq:overwrite"
_CODES = "bpecodes", "code", "codes"
_PIECES = "sentencepiece.bpe.model", "spm.model"


def read_vocabularies(
    folder: pathlib.Path, settings: Mapping[str, Any], tokenizer: str
) -> FoundVocabularies:
    """Read the vocabularies of a folder.

    Args:
        folder: the model's folder.
        settings: result of fairseq_settings.read().
        tokenizer: "moses" or "none"; "": as the settings say.

    Raises:
        UserError: a file is missing or damaged, or nothing names the
            tokenizer.
    """
    files = _dictionary_files(folder, settings)
    tokens = [_tokens(file) for file in files]
    for name in _PIECES:
        if (folder / name).is_file():
            return _sentence_piece(folder / name, files, tokens)
    codes_file = arrays.find_file(folder, *_CODES, *_PIECES)
    tokenizer = tokenizer or settings["tokenizer"] or ""
    if tokenizer not in bpe_codes.TOKENIZERS:
        raise errors.UserError(
            f"Nothing in {folder} says how text is tokenized before "
            f"{codes_file.name}; got {tokenizer!r}. Say --tokenizer=moses, as "
            "for fairseq's models of WMT, or --tokenizer=none."
        )
    codes = codes_file.read_text("utf-8", "replace")
    orders = [[PAD_ID, EOS_ID, *_others(t)] for t in tokens]
    languages = _languages(files)
    vocabularies = []
    for names, order, language in zip(tokens, orders, languages, strict=True):
        try:
            model = bpe_codes.serialize(
                [names[i] for i in order],
                "<unk>",
                codes,
                tokenizer,
                language if tokenizer == "moses" else "",
            )
        except errors.UserError as error:
            raise errors.UserError(
                f"Cannot use {codes_file} with dict.{language}.txt. {error}"
            ) from error
        vocabularies.append(BpeCodes(model))
    pair = Vocabularies.of(*vocabularies)
    return FoundVocabularies(pair, "bpe_codes", orders, [*files, codes_file])


def _others(tokens):
    return [i for i in range(len(tokens)) if i not in (PAD_ID, EOS_ID)]


def _sentence_piece(spm, files, tokens):
    special = SpecialTokens("</s>", "<unk>", "<pad>")
    mapped = [
        imported.map_ids(spm, names, special, file)
        for names, file in zip(tokens, files, strict=True)
    ]
    return FoundVocabularies(
        Vocabularies.of(*(MappedSentencePiece(m.model) for m in mapped)),
        "mapped_sentence_piece",
        [m.order for m in mapped],
        [*files, spm],
    )


def _dictionary_files(folder, settings):
    """Return the dictionaries of source and target."""
    languages = settings["source_lang"], settings["target_lang"]
    files = [folder / f"dict.{language}.txt" for language in languages]
    for file in files:
        if not file.is_file():
            raise errors.UserError(
                f"There is no {file}. Copy it from the data of the training: "
                "fairseq-preprocess writes it."
            )
    return files


def _languages(files):
    return [file.name.split(".")[1] for file in files]


def _tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a dictionary by their ids."""
    try:
        lines = file.read_text("utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeError) as error:
        raise errors.UserError(f"Cannot read {file}: {error}.") from error
    tokens, known = list(_FIRST), set(_FIRST)
    for number, line in enumerate(lines, 1):
        token, _, count = line.rstrip().rpartition(" ")
        is_new = token not in known
        if count == _OVERWRITE:
            token, _, count = token.rpartition(" ")
            is_new = True
        if not token or not count.isdecimal() or not is_new:
            raise errors.UserError(
                f"Line {number} of {file} must be a new token and its count; "
                f"got {line!r:.80}."
            )
        tokens.append(token)
        known.add(token)
    return tokens


# Layers of fairseq's Transformers, whose names Hugging Face has, too.
#
# Old versions of fairseq have one array for the projections of queries, keys
# and values, and numbers in place of the names of norms.


def read_layer(
    tensors: Tensors, path: str, is_decoder: bool, size: int, width: int
) -> weights.Layer:
    """Read a layer of the encoder or of the decoder.

    Args:
        tensors: arrays of the model.
        path: name of the layer, as "encoder.layers.0".
        is_decoder: whether it has cross-attention.
        size: D.
        width: F.

    Raises:
        UserError: an array is missing, or has another shape.
    """

    def dense(name, inputs, outputs):
        kernel = tensors.take(f"{path}.{name}.weight", outputs, inputs)
        bias = tensors.take(f"{path}.{name}.bias", outputs)
        return weights.Dense(kernel.T, bias)

    def norm(name, old_number):
        old = f"{path}.layer_norms.{old_number}"
        at = old if f"{old}.weight" in tensors else f"{path}.{name}"
        return weights.Norm(
            tensors.take(f"{at}.weight", size), tensors.take(f"{at}.bias", size)
        )

    def attention(name):
        at = f"{path}.{name}"
        output = dense(f"{name}.out_proj", size, size)
        if f"{at}.in_proj_weight" not in tensors:
            inner = [dense(f"{name}.{k}_proj", size, size) for k in "qkv"]
            return weights.Attention(*inner, output)
        kernels = tensors.take(f"{at}.in_proj_weight", 3 * size, size)
        biases = tensors.take(f"{at}.in_proj_bias", 3 * size)
        inner = [
            weights.Dense(kernel.T, bias)
            for kernel, bias in zip(
                np.split(kernels, 3), np.split(biases, 3), strict=True
            )
        ]
        return weights.Attention(*inner, output)

    return weights.Layer(
        attention("self_attn"),
        norm("self_attn_layer_norm", 0),
        dense("fc1", size, width),
        dense("fc2", width, size),
        norm("final_layer_norm", 2 if is_decoder else 1),
        attention("encoder_attn") if is_decoder else None,
        norm("encoder_attn_layer_norm", 1) if is_decoder else None,
    )
