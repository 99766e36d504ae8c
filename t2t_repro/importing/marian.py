"""Models in Marian's own format, .npz or .bin.

Names and shapes of weights are those of src/models/transformer.h, by which the
default type, transformer, is trained. marian_files describes the files. Options
of the model are in its array special:model.yml (src/models/encoder_decoder.cpp,
getModelParameters); one that an older version did not store has the default of
src/common/config_parser.cpp.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import (
    arrays,
    imported,
    marian_files,
    model_files,
    weights,
)
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported
from t2t_repro.importing.marian_files import MarianFiles
from t2t_repro.importing.model_files import Setting
from t2t_repro.text.vocabulary import SpecialTokens

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
    "transformer-dim-ffn": Setting(2048, "filter_size", lowest=1),
    "transformer-decoder-dim-ffn": Setting(0),  # 0: transformer-dim-ffn
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
    files = marian_files.find(path, vocabularies)
    file = files.weights
    is_binary = file.suffix == ".bin"
    stored = (marian_files.read_binary if is_binary else arrays.read_npz)(file)
    if OPTIONS not in stored:
        raise errors.UserError(
            f"{file} has no {OPTIONS}, the options of a Marian model. Name "
            "the file that Marian has written: --input=…."
        )
    options, hparams = read_options(np.asarray(stored[OPTIONS]).tobytes(), file)
    tensors = Tensors(stored, str(file))
    found, model_weights = _read_weights(tensors, options, hparams, files)
    tensors.refuse_rest([OPTIONS])
    return Imported(
        hparams, model_weights, found.pair, found.kind, files.search, files.all
    )


def read_options(
    content: bytes, file: pathlib.Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options in an array's text, which ends in zeros; and hparams.

    Raises:
        UserError: it is not YAML, or an option cannot be represented.
    """
    name = f"{OPTIONS} in {file}"
    texts = model_files.parse_yaml(content.rstrip(b"\0"), name, is_text=True)
    given = marian_files.typed(texts, _OPTIONS)
    options, hparams = model_files.read_settings(given, _OPTIONS, file)
    rule = "off: it is unknown here"
    for name, value in given.items():
        if name.startswith("transformer-") and name not in _KNOWN:
            model_files.require(file, given, (name, value in _OFF, rule))
    version = _version(options)
    _check(options, version, file)
    numbers = _layer_numbers(options)
    gelu = "gelu" if version >= _EXACT_GELU else "gelu_sigmoid"
    activation = {"relu": "relu", "swish": "silu", "gelu": gelu}
    return options, hparams | {
        **model_files.layer_counts(*map(len, numbers.values())),
        **model_files.norm_order("n" in options["transformer-preprocess"]),
        "attention_bias": True,
        "ffn_activation": activation[options["transformer-ffn-activation"]],
        "norm_epsilon": 1e-6,  # src/layers/generic.h, layerNorm()
        "embedding_norm": "n" in options["transformer-postprocess-emb"],
        "softmax_bias": True,
    }


def _check(options, version, file):
    """Refuse other streams than a source and a target, and unknown sublayers.

    d, dropout, has no effect on a trained model.
    """
    sizes, width = options["dim-vocabs"], options["transformer-dim-ffn"]
    depth, tied = options["dec-depth"], options["transformer-tied-layers"]
    before = options["transformer-preprocess"].replace("d", "")
    allowed = {
        "transformer-postprocess": ("a" if before else "an",),
        "transformer-postprocess-emb": ("", "n"),
        "transformer-postprocess-top": (before,),
    }
    model_files.require(
        file,
        options,
        ("dim-vocabs", len(sizes) == 2, "of one source and one target"),
        (
            "input-types",
            all(kind == "sequence" for kind in options["input-types"]),
            "'sequence'",
        ),
        (
            "transformer-decoder-dim-ffn",
            options["transformer-decoder-dim-ffn"] in (0, width),
            f"transformer-dim-ffn ({width})",
        ),
        (
            "transformer-tied-layers",
            not tied
            or (
                len(tied) == depth
                and all(type(one) is int and 0 < one <= depth for one in tied)
            ),
            f"{depth} numbers of layers",
        ),
        ("transformer-preprocess", before in ("", "n"), "'' or 'n'"),
        (
            "transformer-preprocess",
            not before or version >= _NORMALIZED_KEYS,
            "'' in a model of Marian before 1.11, which did not normalize "
            "keys and values",
        ),
        *(
            (
                name,
                options[name].replace("d", "") in operations,
                f"{' or '.join(map(repr, operations))}, with d or without, "
                f"where transformer-preprocess is {before!r}",
            )
            for name, operations in allowed.items()
        ),
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
        table = tensors.take("Wpos", -1, hparams["hidden_size"])
        result |= weights.learned_positions(hparams, table, table)
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
        tokens = [
            _tokens(*side) for side in zip(files.lists, sizes, strict=True)
        ]
        special = [
            SpecialTokens(_name(names, 0, _EOS), _name(names, 1, _UNKNOWN))
            for names in tokens
        ]
        return imported.map_pieces(files.pieces, tokens, special, files.lists)
    mapped = [imported.keep_ids(file) for file in files.pieces]
    for file, one, size in zip(files.pieces, mapped, sizes, strict=True):
        count = len(one.order) - 1  # without PAD
        if count != size:
            raise errors.UserError(
                f"{file} has {count:,} pieces and the model {size:,}. "
                "If a .yml or .json file has the ids, name it, too: "
                f"--vocabularies={file.name},vocab.yml."
            )
    return imported.pieces(mapped, files.pieces)


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
