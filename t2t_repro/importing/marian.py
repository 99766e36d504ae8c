"""Models in Marian's own format, .npz or .bin.

Names and shapes of weights are those of src/models/transformer.h, by which the
default type, transformer, is trained. The files:

    model.npz, model.bin      weights and options
    model.npz.decoder.yml,    names of vocabularies, and search settings; the
    decoder.yml, model.npz.yml    first that exists
    vocab.spm                 a SentencePiece model, whose ids are Marian's; or
    vocab.yml, vocab.json     {token: id}, with
    source.spm, target.spm        SentencePiece models for the text

Options of the model are in its array special:model.yml
(src/models/encoder_decoder.cpp, getModelParameters); one that an older version
did not store has the default of src/common/config_parser.cpp.
"""

import contextlib
import functools
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays, imported, model_files, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported, Side
from t2t_repro.importing.model_files import Setting
from t2t_repro.io.files import read_bytes
from t2t_repro.text import sentence_piece
from t2t_repro.text.vocabulary import SpecialTokens

_WEIGHTS = (".npz", ".bin")
# Files that Marian writes beside a model: states of training.
_STATES = (".optimizer.npz", ".orig.npz", ".progress.npz")
_LISTS = (".yml", ".yaml", ".json")  # src/data/default_vocab.cpp
_PIECES = ".spm"  # src/data/sentencepiece_vocab.cpp
# Settings of marian-decoder, src/common/config_parser.cpp. A score there is
# (log-probability - word-penalty * length) / length^normalize, and the length
# counts EOS (src/translator/history.h).
_SEARCH = {
    "beam-size": Setting(12, "beam_size", lowest=1, below=10_000),
    "normalize": Setting(0.0, "alpha", below=100),
    "word-penalty": Setting(0.0, values=(0,), lowest=-model_files.LIMIT),
}


class MarianFiles(NamedTuple):
    """Files of a model, and the search settings in them."""

    weights: pathlib.Path
    pieces: list[pathlib.Path]  # SentencePiece models of source and target
    lists: list[pathlib.Path]  # {token: id} of both; empty: the models' own ids
    search: Mapping[str, Any]  # fields of DecodeHParams
    all: tuple[pathlib.Path, ...]


def find_files(
    path: pathlib.Path, vocabularies: Sequence[pathlib.Path]
) -> MarianFiles:
    """Find the files of a model.

    Args:
        path: its folder, or its file of weights.
        vocabularies: files of --vocabularies, or none; a file that does not
            exist is sought beside the weights.

    Raises:
        UserError: a file is missing, or there are several that may be meant.
    """
    weights = _weights(path)
    folder = weights.parent
    name = weights.name
    beside = (f"{name}.decoder.yml", "decoder.yml", f"{name}.yml")
    file = next((folder / n for n in beside if (folder / n).is_file()), None)
    settings = typed(model_files.read_yaml(file, True) if file else {}, _SEARCH)
    given = [v if v.is_file() else folder / v.name for v in vocabularies]
    named = [
        model_files.named_file(folder, one)
        for one in _several(settings, "vocabs")
    ]
    pieces, lists = _sides(folder, given or named or _guess(folder))
    _, search = model_files.read_settings(settings, _SEARCH, file)
    used = [weights, *([file] if file else []), *pieces, *lists]
    return MarianFiles(
        weights,
        pieces,
        lists,
        search | {"length_penalty_offset": 0},
        tuple(dict.fromkeys(used)),
    )


def typed(
    texts: Mapping[str, Any], table: Mapping[str, Setting]
) -> dict[str, Any]:
    """Return options with the types of a table, without those that are null.

    Marian reads a number in quotes as a number, and a version as text even if
    it looks like a number.

    Args:
        texts: options by name; scalars are text.
        table: types of some of them. Text that is no such value stays text.
    """
    return {
        name: _value(text, type(table[name].default) if name in table else str)
        for name, text in texts.items()
        if text not in ("~", "null")
    }


def _value(text, kind):
    if isinstance(text, list):
        return [_value(one, int) for one in text]
    if kind is bool and text in ("true", "false"):
        return text == "true"
    if kind in (int, float):
        with contextlib.suppress(ValueError, TypeError):
            return kind(text)
    return text


def _weights(path):
    """Return the file of weights."""
    if path.suffix in _WEIGHTS and path.is_file():
        return path
    settings = [path / "decoder.yml", *sorted(path.glob("*.decoder.yml"))]
    named = set()
    for file in filter(pathlib.Path.is_file, settings):
        models = _several(model_files.read_yaml(file, True), "models")
        if len(models) > 1:
            raise errors.UserError(
                f"{file} has {len(models)} models, an ensemble. Import each "
                "alone: --input=FILE.npz. Then --checkpoint_path=a,b of "
                "`t2t decoder` makes the ensemble."
            )
        if models:
            named.add(model_files.named_file(path, models[0]))
            if file == settings[0] and os.path.isfile(*named):
                break  # decoder.yml decides, whatever the others name
    found = sorted(filter(os.path.isfile, named))
    for suffix in _WEIGHTS:
        found = found or [
            file
            for file in sorted(path.glob(f"*{suffix}"))
            if not file.name.endswith(_STATES)
        ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found[:5]) or "none is .npz or .bin"
    raise errors.UserError(
        f"{path} has {len(found)} models: {names}. Name the file of one, or a "
        "folder with one: --input=…."
    )


def _several(settings, name):
    """Return the texts of a list of a decoder.yml."""
    values = settings.get(name, [])
    values = values if isinstance(values, list) else [values]
    return [v for v in values if isinstance(v, str) and v]


def _guess(folder):
    """Return vocabulary files by their usual names."""
    lists = [
        file
        for suffix in _LISTS
        for file in sorted(folder.glob(f"*vocab{suffix}"))
    ]
    for names in (["vocab.spm"], ["source.spm", "target.spm"]):
        pieces = [folder / name for name in names]
        if all(file.is_file() for file in pieces):
            return pieces + (lists[:1] if names[1:] else [])
    raise errors.UserError(
        f"{folder} has neither decoder.yml, which names the vocabularies, nor "
        "vocab.spm. Name their files: --vocabularies=vocab.spm for one of both "
        "sides, --vocabularies=source.spm,target.spm for one of each, and with "
        "vocab.yml if that has the ids: --vocabularies="
        "source.spm,target.spm,vocab.yml."
    )


def _sides(folder, named):
    """Return the files of both sides.

    SentencePiece models and lists of ids may be mixed: of each kind, the first
    is of the source, and the last of the target.
    """
    pieces = [file for file in named if file.suffix == _PIECES]
    lists = [file for file in named if file.suffix in _LISTS]
    others = [file for file in named if file not in pieces + lists]
    if others or len(pieces) > 2 or len(lists) > 2:
        raise errors.UserError(
            "Vocabularies must be one or two SentencePiece models .spm, and "
            "with them at most two lists of ids, .yml or .json; got "
            f"{', '.join(map(str, named))}. Name others: --vocabularies=…."
        )
    if not pieces:
        pieces = [folder / "source.spm", folder / "target.spm"]
    for file in pieces + lists:
        if not file.is_file():
            raise errors.UserError(
                f"There is no {file}. A vocabulary needs a SentencePiece "
                "model (Moses and subword-nmt, source.bpe, are not "
                "supported). Name the files: --vocabularies=source.spm,"
                "target.spm,vocab.yml."
            )
    return [[side[0], side[-1]] if side else [] for side in (pieces, lists)]


# Marian's own format of weights, .bin, as src/common/binary.cpp writes it:
#
#     uint64             version, 1; 2: encrypted
#     uint64             number of arrays
#     4 uint64 an array  bytes of the name, type, dimensions, bytes of the data
#     names              each ends in a zero byte
#     int32              sizes of all dimensions, array by array
#     uint64, zeros      their number, up to a multiple of 256 bytes
#     data               array by array, padded to a multiple of 256 bytes

_VERSION = 1
_MAX_RANK = 8  # Marian's matrices have at most 4
# src/common/types.h, Type: a class of types, and the bytes of an entry.
_DTYPES = {
    0x101: np.int8,
    0x102: np.int16,
    0x104: np.int32,
    0x108: np.int64,
    0x201: np.uint8,
    0x202: np.uint16,
    0x204: np.uint32,
    0x208: np.uint64,
    0x402: np.float16,
    0x404: np.float32,
    0x408: np.float64,
}


def read_binary(file: pathlib.Path) -> dict[str, np.ndarray]:
    """Return {name: array} of a .bin.

    Raises:
        UserError: the file cannot be read, or its arrays are quantized.
    """
    content = model_files.Content(file)
    with model_files.reading(file, "a model of Marian"):
        version = content.number(np.uint64)
        if version != _VERSION:
            raise ValueError(
                f"its version is {version}, not {_VERSION} (import the .npz)"
            )
        count = content.number(np.uint64)
        headers = content.take(np.uint64, 4 * count).reshape(-1, 4).tolist()
        names = [
            content.take(np.uint8, length).tobytes().rstrip(b"\0").decode()
            for length, *_ in headers
        ]
        shapes = [
            content.take(np.int32, rank).tolist() for _, _, rank, _ in headers
        ]
        content.take(np.uint8, content.number(np.uint64))
        return {
            name: _array(content, name, kind, size, shape, file)
            for name, (_, kind, _, size), shape in zip(
                names, headers, shapes, strict=True
            )
        }


def _array(content, name, kind, size, shape, file):
    """Return the next array, without the padding after its data."""
    if kind not in _DTYPES:
        raise errors.UserError(
            f"{name} in {file} is quantized or packed (type {kind:#x}). Import "
            "the model that it was made from, a .npz file."
        )
    if len(shape) > _MAX_RANK:
        raise ValueError(f"{name} has {len(shape)} dimensions")
    entries = content.take(np.uint8, size)
    dtype = np.dtype(_DTYPES[kind])
    used = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or used > size:
        raise ValueError(f"{name} is too short for its shape {shape}")
    return entries[:used].view(dtype).reshape(shape)


# The model.

OPTIONS = "special:model.yml"
_NAMES = weights.Names(
    # postProcess() of a stack, and preProcess() of its inputs.
    {"norm": "{side}_top_ln_?", "input_norm": "{side}_emb_ln_?_pre"},
    {
        "self_attention/{query key value output_projection}": (
            "self_?{q k v o}"
        ),
        "self_attention/norm": "self_Wo_ln_?{order}",
        "cross_attention/{query key value output_projection}": (
            "context_?{q k v o}"
        ),
        "cross_attention/norm": "context_Wo_ln_?{order}",
        "ffn/{filter output_projection}": "ffn_?{1 2}",
        "ffn/norm": "ffn_ffn_ln_?{order}",
    },
    at="{side}_l{i}_",
    dense=("W", "b"),
    norm=("scale", "bias"),
    order=("", "_pre"),
)


def _only(*values: Any) -> Setting:
    return Setting(values[0], values=values)


_OPTIONS = {
    "type": Setting("amun", values=("transformer",)),
    "version": Setting(""),
    "dim-vocabs": Setting([0, 0]),
    "input-types": Setting([]),
    "dim-emb": Setting(512, "hidden_size", lowest=1),
    "enc-depth": Setting(1, lowest=1),
    "dec-depth": Setting(1, lowest=1),
    "tied-embeddings": Setting(False),
    "tied-embeddings-src": Setting(False),
    "tied-embeddings-all": Setting(False),
    "transformer-heads": Setting(8, "num_heads", lowest=1),
    "transformer-dim-ffn": Setting(2048, lowest=1),
    "transformer-decoder-dim-ffn": Setting(0),  # 0: the encoder's
    "transformer-ffn-activation": Setting(
        "swish", values=("relu", "swish", "gelu")
    ),
    "transformer-preprocess": Setting(""),
    "transformer-postprocess": Setting("dan"),
    "transformer-postprocess-emb": Setting("d"),
    "transformer-postprocess-top": Setting(""),
    "transformer-tied-layers": Setting([]),
    "transformer-disable-position-embeddings": Setting(False),
    # src/models/transformer.h reads the first name, and the command line has
    # the second: with that alone, the model has sinusoids and no array.
    "transformer-train-positions": Setting(False),
    "transformer-train-position-embeddings": Setting(False),
    "transformer-decoder-autoreg": _only("self-attention"),
    "transformer-ffn-depth": _only(2),
    "transformer-decoder-ffn-depth": _only(0, 2),
    "transformer-no-projection": _only(False),
    "transformer-pool": _only(False),
    "transformer-attention-mask": _only("default"),
    "transformer-no-bias": _only(False),
    "transformer-no-affine": _only(False),
    "right-left": _only(False),
    "ulr": _only(False),
    "lemma-dim-emb": _only(0),
    "lemma-dependency": _only(""),
    "factors-combine": _only("sum", ""),
}
# Options without effect on a model that passes the check of the others; depth
# scaling is of the first weights in training.
_WITHOUT_EFFECT = """
    transformer-aan-activation transformer-aan-depth transformer-aan-nogate
    transformer-alibi-shift transformer-alibi-trainable
    transformer-depth-scaling transformer-dim-aan transformer-dropout
    transformer-dropout-attention transformer-dropout-ffn
    transformer-guided-alignment-layer transformer-rnn-projection
""".split()
_KNOWN = *_OPTIONS, *_WITHOUT_EFFECT
_OFF: tuple[Any, ...] = ("false", "0", "", [])
# Marian's gelu was swish(1.702 x) before (src/graph/node_operators_unary.h).
_EXACT_GELU = (1, 12, 3)
# Keys and values of self-attention were not normalized before where
# transformer-preprocess is n (src/models/transformer.h, LayerAttention).
_NORMALIZED_KEYS = (1, 11, 0)
# src/data/types.h: names of special tokens, and those of Nematus.
_EOS, _UNKNOWN = ("</s>", "eos"), ("<unk>", "UNK")


def read(
    path: pathlib.Path, vocabularies: Sequence[pathlib.Path] = ()
) -> Imported:
    """Read a model.

    Args:
        path: its folder, or its file of weights.
        vocabularies: vocabulary files, where the files do not name them.
    """
    files = find_files(path, vocabularies)
    file = files.weights
    is_binary = file.suffix == ".bin"
    stored = (read_binary if is_binary else arrays.read_npz)(file)
    if OPTIONS not in stored:
        raise errors.UserError(
            f"{file} has no {OPTIONS}, the options of a Marian model. Name "
            "the file that Marian has written: --input=…."
        )
    options, hparams = read_options(np.asarray(stored[OPTIONS]).tobytes(), file)
    tensors = Tensors(stored, str(file))
    found, model_weights = _read_weights(tensors, options, hparams, files)
    tensors.refuse_rest([OPTIONS])
    return Imported(hparams, model_weights, found, files.search, files.all)


def read_options(
    content: bytes, file: pathlib.Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options in an array's text, which ends in zeros; and hparams.

    Raises:
        UserError: it is not YAML, or an option cannot be represented.
    """
    name = f"{OPTIONS} in {file}"
    texts = model_files.parse_yaml(content.rstrip(b"\0"), name, is_text=True)
    given = typed(texts, _OPTIONS)
    options, hparams = model_files.read_settings(given, _OPTIONS, file)
    rule = "off: it is unknown here"
    for name, value in given.items():
        if name.startswith("transformer-") and name not in _KNOWN:
            model_files.require(file, given, name, value in _OFF, rule)
    version = _version(options)
    _check(options, version, file)
    numbers = _layer_numbers(options)
    gelu = "gelu" if version >= _EXACT_GELU else "gelu_sigmoid"
    activation = {"relu": "relu", "swish": "silu", "gelu": gelu}
    return options, hparams | {
        **model_files.layer_counts(*map(len, numbers.values())),
        **model_files.filter_sizes(
            options["transformer-dim-ffn"],
            options["transformer-decoder-dim-ffn"],
        ),
        **model_files.norm_order("n" in options["transformer-preprocess"]),
        "attention_bias": True,
        "ffn_activation": activation[options["transformer-ffn-activation"]],
        "norm_epsilon": 1e-6,  # src/layers/generic.h, layerNorm()
        "embedding_norm": "n" in options["transformer-postprocess-emb"],
    }


def _check(options, version, file):
    """Refuse other streams than a source and a target, and unknown sublayers.

    d, dropout, has no effect on a trained model.
    """
    sizes = options["dim-vocabs"]
    depth, tied = options["dec-depth"], options["transformer-tied-layers"]
    before = options["transformer-preprocess"].replace("d", "")
    allowed = {
        "transformer-postprocess": ("a" if before else "an",),
        "transformer-postprocess-emb": ("", "n"),
        "transformer-postprocess-top": (before,),
    }
    require = functools.partial(model_files.require, file, options)
    require("dim-vocabs", len(sizes) == 2, "of one source and one target")
    require(
        "input-types",
        all(kind == "sequence" for kind in options["input-types"]),
        "'sequence'",
    )
    are_layers = all(type(one) is int and 0 < one <= depth for one in tied)
    require(
        "transformer-tied-layers",
        not tied or (len(tied) == depth and are_layers),
        f"{depth} numbers of layers",
    )
    require("transformer-preprocess", before in ("", "n"), "'' or 'n'")
    require(
        "transformer-preprocess",
        not before or version >= _NORMALIZED_KEYS,
        "'' in a model of Marian before 1.11, which did not normalize keys and "
        "values",
    )
    for name, operations in allowed.items():
        require(
            name,
            options[name].replace("d", "") in operations,
            f"{' or '.join(map(repr, operations))}, with d or without, where "
            f"transformer-preprocess is {before!r}",
        )


def _version(options):
    """Return the version of Marian that wrote the model; (): unknown."""
    numbers = re.match(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})", options["version"])
    return tuple(map(int, numbers.groups())) if numbers else ()


def _layer_numbers(options):
    """Return the numbers in the names of the layers' weights, of both sides.

    Layers of the decoder with the same number share their weights.
    """
    tied = options["transformer-tied-layers"]
    return {
        "encoder": range(1, options["enc-depth"] + 1),
        "decoder": tied or range(1, options["dec-depth"] + 1),
    }


def _read_weights(
    tensors: Tensors,
    options: Mapping[str, Any],
    hparams: dict[str, Any],
    files: MarianFiles,
) -> tuple[FoundVocabularies, dict[str, np.ndarray]]:
    """Return vocabularies and weights by path, and complete the hparams."""
    source, target, softmax = _matrices(tensors, options, hparams)
    rows = len(target)
    found = _read_vocabularies(files, [len(source), rows])
    # Absent with --output-omit-bias.
    bias = tensors.take_if_present("decoder_ff_logit_out_b", rows)
    if bias is None:
        bias = np.zeros(rows, np.float32)
    result = imported.matrices(found.orders, source, target, softmax, bias)
    hparams |= imported.sharing(result, found.pair)
    # src/models/transformer.h, addPositionalEmbeddings() and
    # addSpecialEmbeddings(): only sinusoids come with a factor. If the options
    # name no trained positions, Wpos is an array without a place.
    is_trained = "Wpos" in tensors and (
        options["transformer-train-positions"]
        or options["transformer-train-position-embeddings"]
    )
    positions = "emb" if is_trained else "timing"
    if options["transformer-disable-position-embeddings"]:
        positions = "none"
    hparams["pos"] = positions
    hparams["multiply_embedding_mode"] = (
        "sqrt_depth" if positions == "timing" else "none"
    )
    if positions == "emb":  # one table for both sides
        # Positions beyond the table have its last row, there as here.
        result |= weights.take_positions(tensors, "Wpos", 0, hparams)
    numbers = _layer_numbers(options)
    return found, result | weights.read_stacks(
        tensors, _NAMES, hparams, numbers
    )


def _matrices(tensors, options, hparams):
    """Return embeddings of both sides and the softmax.

    src/layers/embedding.cpp, createEmbeddingLayer(), and
    src/models/transformer.h, lazyCreateOutputLayer().
    """
    size = hparams["hidden_size"]
    ties_all = options["tied-embeddings-all"]
    if options["tied-embeddings-src"] or ties_all:
        source = target = tensors.take("Wemb", -1, size)
    else:
        source, target = (
            tensors.take(f"{side}_Wemb", -1, size) for side in weights.SIDES
        )
    name = "decoder_ff_logit_out"
    if options["tied-embeddings"] or ties_all:
        softmax = target
    elif f"{name}_W" in tensors:  # of older versions: src/layers/output.cpp
        softmax = tensors.take(f"{name}_W", size, len(target)).T
    else:
        softmax = tensors.take(f"{name}_Wt", len(target), size)
    return source, target, softmax


def _read_vocabularies(
    files: MarianFiles, sizes: Sequence[int]
) -> FoundVocabularies:
    """Return vocabularies of as many tokens as the embeddings have rows."""
    if files.lists:
        sides = []
        for file, size in zip(files.lists, sizes, strict=True):
            tokens = _tokens(file, size)
            eos, unknown = _name(tokens, 0, _EOS), _name(tokens, 1, _UNKNOWN)
            sides.append(Side(tokens, SpecialTokens(eos, unknown), file))
        return imported.map_pieces(files.pieces, sides)
    mapped = []
    for file, size in zip(files.pieces, sizes, strict=True):
        model = read_bytes(file)
        with imported.named_in_errors(file):
            mapped.append(sentence_piece.keep_ids(model))
        count = len(mapped[-1].order) - 1  # without PAD
        if count != size:
            raise errors.UserError(
                f"{file} has {count:,} pieces and the model {size:,}. "
                "If a .yml or .json file has the ids, name it, too: "
                f"--vocabularies={file.name},vocab.yml."
            )
    return FoundVocabularies.of_type(
        "mapped_sentence_piece", mapped, files.pieces
    )


def _tokens(file: pathlib.Path, size: int) -> list[str]:
    """Return tokens by their ids; ids without a token have an unused name.

    Marian ignores tokens of higher ids (src/data/default_vocab.cpp, load()).
    """
    found: dict[int, str] = {}
    for token, number in model_files.read_yaml(file, is_text=True).items():
        is_number = isinstance(number, str) and number.isdecimal()
        if not is_number or len(number) > 9 or int(number) in found:
            raise errors.UserError(
                f"The ids in {file} must be different numbers; got "
                f"{errors.shown(number)} for {token!r}."
            )
        found[int(number)] = token
    return [found.get(i, "") or f"<unused {i}>" for i in range(size)]


def _name(tokens, number, names):
    """Return the name of a special token (addRequiredVocabulary() there)."""
    first = tokens[number] if number < len(tokens) else ""
    if first == names[1] or first.startswith("<unused "):
        return first
    return names[0]
