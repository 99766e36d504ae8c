"""Transformers of fairseq, as those of WMT that it publishes.

    model.pt, checkpoint_best.pt  weights and settings
    dict.en.txt, dict.de.txt      "subword count", ids from 4 on
    bpecodes, code                codes of subword-nmt or fastBPE; or instead
    sentencepiece.bpe.model       or spm.model

Sources: models/transformer/, modules/transformer_layer.py,
modules/multihead_attention.py, sequence_generator.py and data/dictionary.py.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_repro import errors
from t2t_repro.importing import arrays, imported, model_files, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported, Side
from t2t_repro.importing.model_files import Setting
from t2t_repro.text.vocabulary import SpecialTokens

_FILES = "model.pt", "checkpoint_best.pt", "checkpoint_last.pt"
# Hugging Face's models have these names, too. Old versions of fairseq have one
# array for the projections of queries, keys and values, and numbers of norms.
NAMES = weights.Names(
    {
        "norm": "{side}.layer_norm.?",
        "input_norm": "{side}.layernorm_embedding.?",
    },
    {
        "self_attention/{query key value}": (
            "self_attn.{q k v}_proj.?",
            "self_attn.in_proj_?",
        ),
        "self_attention/output_projection": "self_attn.out_proj.?",
        "self_attention/norm": ("self_attn_layer_norm.?", "layer_norms.0.?"),
        "cross_attention/{query key value}": (
            "encoder_attn.{q k v}_proj.?",
            "encoder_attn.in_proj_?",
        ),
        "cross_attention/output_projection": "encoder_attn.out_proj.?",
        "cross_attention/norm": (
            "encoder_attn_layer_norm.?",
            "layer_norms.1.?",
        ),
        "ffn/filter": "fc1.?",
        "ffn/output_projection": "fc2.?",
        # The last number is that of an encoder's layer.
        "ffn/norm": (
            "final_layer_norm.?",
            "layer_norms.2.?",
            "layer_norms.1.?",
        ),
    },
    at="{side}.layers.{i}.",
    dense=("weight", "bias"),
    norm=("weight", "bias"),
    is_transposed=True,
)
# Tables of the formula of positions; copies that fairseq 0.12 makes of an
# encoder layer's weights when it loads them; numbers of versions.
_IGNORED = (
    r"(en|de)coder\.embed_positions\.(weights|_float_tensor)",
    r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
    r"(en|de)coder\.version",
)
_VERSION_WITH_FINAL_NORM = 3
# Defaults of fairseq-generate, which no file has; its min_len=1 does not count
# EOS.
_SEARCH = {
    "beam_size": 5,
    "alpha": 1.0,
    "length_penalty_offset": 0,
    "min_length": 2,
}
# What the model reads, with the values of base_architecture(), from
# models/transformer/transformer_config.py and transformer_legacy.py.
_SETTINGS = {
    "encoder_embed_dim": Setting(512, "hidden_size"),
    "encoder_ffn_embed_dim": Setting(2048),
    "decoder_ffn_embed_dim": Setting(0),  # 0: the encoder's
    "encoder_attention_heads": Setting(8, "num_heads"),
    "encoder_layers": Setting(6),
    "decoder_layers": Setting(6),
    "encoder_normalize_before": Setting(False),
    "encoder_learned_pos": Setting(False),
    "no_token_positional_embeddings": Setting(False),
    "dropout": Setting(0.1, "layer_prepostprocess_dropout", below=1),
    "attention_dropout": Setting(0.0, "attention_dropout", below=1),
    "activation_dropout": Setting(0.0, below=1),
    "relu_dropout": Setting(0.0, below=1),
    "activation_fn": Setting(
        "relu",
        "ffn_activation",
        {
            "relu": "relu",
            "gelu": "gelu",
            "gelu_accurate": "gelu_tanh",
            "gelu_fast": "gelu_tanh",
            "swish": "silu",
        },
    ),
    "no_scale_embedding": Setting(
        False, "multiply_embedding_mode", {False: "sqrt_depth", True: "none"}
    ),
    "layernorm_embedding": Setting(False, "embedding_norm"),
    "share_all_embeddings": Setting(False),
    "share_decoder_input_output_embed": Setting(False),
}
# These must be as the encoder's.
_OF_DECODER = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_attention_heads": "encoder_attention_heads",
    "decoder_input_dim": "encoder_embed_dim",
    "decoder_output_dim": "encoder_embed_dim",
    "decoder_normalize_before": "encoder_normalize_before",
    "decoder_learned_pos": "encoder_learned_pos",
}
# No hparam stands for these; they must be false, 0 or absent.
_REFUSED = """
    adaptive_softmax_cutoff adaptive_input cross_self_attention
    no_cross_attention merge_src_tgt_embed char_inputs no_decoder_final_norm
    encoder_layerdrop decoder_layerdrop encoder_layers_to_keep
    decoder_layers_to_keep quant_noise_pq quant_noise_scalar base_layers
    scale_attn scale_heads scale_fc scale_resids encoder_xformers_att_config
    decoder_xformers_att_config moses_no_dash_splits moses_no_escape
""".split()
_ARCHITECTURES = re.compile(r"transformer(_(tiny|align|iwslt|wmt|vaswani)\w*)?")
# Multilingual tasks add tokens of languages to inputs and outputs.
_TASK = "translation"
# Types of settings; other objects, such as arrays, are not compared.
_VALUES = (bool, int, float, str, list, dict, type(None))
_NESTED = "encoder", "decoder", "quant_noise"
# The first ids.
FIRST = ["<s>", "<pad>", "</s>", "<unk>"]
_EOS_ID = 2
FIRST_POSITION = 2  # after the id of padding
SPECIAL = SpecialTokens("</s>", "<unk>", "<pad>")
_OVERWRITE = "#fairseq:overwrite"
_CODES = "bpecodes", "code", "codes"
_TOKENIZERS = "none", "moses"
_PIECES = "sentencepiece.bpe.model", "spm.model"


def read(
    path: pathlib.Path, tokenizer: str = "", languages: str = ""
) -> Imported:
    """Read a model.

    Args:
        path: folder of the files above, or the file of weights in it.
        tokenizer: "moses" or "none", what fairseq's --tokenizer was; "": as
            the settings say.
        languages: "en-de", where the settings name none.
    """
    file = path
    if path.is_dir():
        found = [file.name for file in path.glob("*.pt")]
        names = found if len(found) == 1 else _FILES
        file = model_files.find_file(path, *names)
    checkpoint = arrays.read_checkpoint(file)
    return convert(checkpoint, file, tokenizer, languages)


def convert(
    checkpoint: Mapping[str, Any],
    file: pathlib.Path,
    tokenizer: str = "",
    languages: str = "",
) -> Imported:
    """Convert a checkpoint of arrays.read_checkpoint(), as read().

    The vocabularies are beside its file.
    """
    flat = {
        key: value if isinstance(value, _VALUES) else errors.shown(value)
        for key, value in _flat(checkpoint, file).items()
    }
    settings, hparams = _read_settings(flat, file)
    pair = _languages(flat, languages, file)
    state = checkpoint.get("model")
    if not isinstance(state, Mapping):
        raise errors.UserError(f"{file} has no weights under `model`.")
    tensors = Tensors(state, str(file))
    tokenizer = tokenizer or str(flat["tokenizer"] or "")
    found = _read_vocabularies(file.parent, pair, tokenizer)
    if settings["share_all_embeddings"] and found.orders[0] != found.orders[1]:
        name, rule = "both dictionaries", "equal with share_all_embeddings"
        raise model_files.refuse(file, name, rule, list(map(str, found.files)))
    model_weights = _weights(tensors, settings, hparams, found)
    return Imported(
        hparams,
        model_weights,
        found._replace(languages=pair),
        _SEARCH,
        (file, *dict.fromkeys(found.files)),
        tensors.refuse_rest(_IGNORED),
    )


def _weights(
    tensors: Tensors,
    settings: Mapping[str, Any],
    hparams: dict[str, Any],
    found: FoundVocabularies,
) -> dict[str, Any]:
    """Return all weights by their paths, and complete the hparams."""
    source, target, softmax = _matrices(tensors, settings, found.orders)
    result = imported.matrices(found.orders, source, target, softmax)
    result["start"] = target[_EOS_ID]  # fairseq starts with </s>
    # fairseq stores the copies of what it shares.
    hparams |= imported.sharing(result, found.pair)
    if hparams["pos"] == "emb":
        # fairseq refuses positions beyond its tables.
        name = "{side}.embed_positions.weight"
        result |= weights.take_positions(tensors, name, FIRST_POSITION, hparams)
    if settings["encoder_normalize_before"]:
        _require_final_norms(tensors)
    return result | weights.read_stacks(tensors, NAMES, hparams)


def _matrices(tensors, settings, orders):
    """Return the embeddings of both sides, and the softmax.

    fairseq stores a shared matrix under each of its names.
    """
    size, rows = settings["encoder_embed_dim"], [len(o) for o in orders]
    share, tie = "share_all_embeddings", "share_decoder_input_output_embed"
    sides = [f"{side}.embed_tokens.weight" for side in weights.SIDES]
    heads = ["decoder.output_projection.weight", "decoder.embed_out"]
    if settings[share]:
        one = tensors.take_one([*sides, *heads], share, rows[0], size)
        return one, one, one
    source = tensors.take(sides[0], rows[0], size)
    if settings[tie]:
        target = tensors.take_one([sides[1], *heads], tie, rows[1], size)
        return source, target, target
    target = tensors.take(sides[1], rows[1], size)
    reason = "their use: both are the softmax"
    return source, target, tensors.take_one(heads, reason, rows[1], size)


def _require_final_norms(tensors):
    for side in weights.SIDES:
        name = f"{side}.version"
        version = tensors.take_if_present(name, 1)
        if version is None or version[0] < _VERSION_WITH_FINAL_NORM:
            raise model_files.refuse(
                "the weights",
                name,
                f"{_VERSION_WITH_FINAL_NORM} where layers are normalized "
                "before: earlier versions have no norm after them",
                None if version is None else float(version[0]),
            )


def _read_settings(found, file):
    """Return the settings of a checkpoint, and their hparams."""
    name = found.get("arch") or found.get("_name") or ""
    is_known = isinstance(name, str) and _ARCHITECTURES.fullmatch(name)
    task = found.get("task") or _TASK
    if not is_known:
        rule = "transformer, or transformer_wmt_… and alike"
        raise model_files.refuse(file, "arch", rule, name)
    if task != _TASK:
        rule = f"{_TASK!r}: others give the model more than the sentence"
        raise model_files.refuse(file, "task", rule, task)
    settings, hparams = model_files.read_settings(found, _SETTINGS, file)
    model_files.require_same(file, found, settings, _OF_DECODER)
    model_files.require_off(file, found, _REFUSED)
    positions = "emb" if settings["encoder_learned_pos"] else "timing"
    if settings["no_token_positional_embeddings"]:
        positions = "none"
    return settings, hparams | {
        **model_files.layer_counts(
            settings["encoder_layers"], settings["decoder_layers"]
        ),
        **model_files.filter_sizes(
            settings["encoder_ffn_embed_dim"],
            settings["decoder_ffn_embed_dim"],
        ),
        **model_files.norm_order(settings["encoder_normalize_before"]),
        "attention_bias": True,
        "norm_epsilon": 1e-5,  # of torch.nn.LayerNorm
        "pos": positions,
        "first_position": FIRST_POSITION if positions == "timing" else 0,
        "relu_dropout": settings["activation_dropout"]
        or settings["relu_dropout"],
    }


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
        flat |= {f"moses_{key}": value for key, value in tokenizer.items()}
        tokenizer = tokenizer.get("_name")
    return flat | {"tokenizer": tokenizer}


def _languages(flat, languages, file):
    """Return the languages of both sides; `languages` where flat has none."""
    pair = [flat.get(f"{side}_lang") for side in ("source", "target")]
    if languages and not all(map(_is_word, pair)):
        pair = [*languages.split("-")]
    if not all(map(_is_word, pair)) or len(pair) != 2:
        raise errors.UserError(
            f"{file} must name the languages as in dict.en.txt and "
            f"dict.de.txt; got {errors.shown(pair)}. Say --languages=en-de."
        )
    return tuple(pair)


def _is_word(value):
    return isinstance(value, str) and re.fullmatch(r"[\w-]+", value) is not None


def _read_vocabularies(
    folder: pathlib.Path, languages: Sequence[str], tokenizer: str
) -> FoundVocabularies:
    """Read the vocabularies of a folder, with SentencePiece or with codes."""
    files = [folder / f"dict.{language}.txt" for language in languages]
    for file in files:
        if not file.is_file():
            raise errors.UserError(
                f"There is no {file}. Copy it from the data of the training: "
                "fairseq-preprocess writes it."
            )
    sides = [Side(_tokens(file), SPECIAL, file) for file in files]
    text_file = model_files.find_file(folder, *_PIECES, *_CODES)
    if text_file.name in _PIECES:
        return imported.map_pieces([text_file] * 2, sides)
    if tokenizer not in _TOKENIZERS:
        raise errors.UserError(
            f"Nothing in {folder} says how text is tokenized before "
            f"{text_file.name}; got {tokenizer!r}. Say --tokenizer=moses, as "
            "for fairseq's models of WMT, or --tokenizer=none."
        )
    return imported.map_codes(
        text_file,
        text_file.read_text("utf-8", "replace"),
        tokenizer,
        languages,
        sides,
    )


def _tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a dictionary by their ids."""
    tokens, known = list(FIRST), set(FIRST)
    for number, line in enumerate(model_files.read_lines(file), 1):
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
