"""Models in Marian's own format, .npz or .bin.

Names and shapes of weights are those of src/models/transformer.h, by which the
default type, transformer, is trained. marian_files describes the files.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import (
    imported,
    mapped_ids,
    marian_binary,
    marian_files,
    model_files,
    position_tables,
    weights,
)
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import Imported
from t2t_repro.importing.marian_files import VocabularyFiles
from t2t_repro.importing.marian_options import Options
from t2t_repro.text.mapped_sentence_piece import (
    MappedModel,
    MappedSentencePiece,
)
from t2t_repro.text.token_lists import Special
from t2t_repro.text.vocabulary_pair import Vocabularies

OPTIONS = "special:model.yml"
# src/data/types.h: names of special tokens, and those of Nematus.
_EOS, _UNKNOWN = ("</s>", "eos"), ("<unk>", "UNK")


def read(
    path: pathlib.Path, vocabularies: Sequence[pathlib.Path] = ()
) -> Imported:
    """Read a model.

    Args:
        path: its folder, or its file of weights.
        vocabularies: vocabulary files, where the files do not name them.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    files = marian_files.find(path, vocabularies)
    stored = _read_arrays(files.weights)
    options = _options(stored, files.weights)
    tensors = Tensors(stored, str(files.weights))
    has_positions = _has_positions(tensors, options)
    changes = options.hparams(has_positions)
    matrices = _matrices(tensors, options)
    mapped = [
        _vocabulary(side, len(matrix))
        for side, matrix in zip(
            (files.source, files.target), matrices[:2], strict=True
        )
    ]
    model_weights = _weights(
        tensors, options, changes, matrices, [m.order for m in mapped]
    )
    tensors.refuse_rest([OPTIONS])
    return Imported(
        changes,
        model_weights,
        Vocabularies.of(*(MappedSentencePiece(m.model) for m in mapped)),
        "mapped_sentence_piece",
        files.search,
        files.all,
    )


def _read_arrays(file):
    if file.suffix == ".bin":
        return marian_binary.read(file)
    return model_files.read_npz(file)


def _options(stored, file):
    if OPTIONS not in stored:
        raise errors.UserError(
            f"{file} has no {OPTIONS}, the options of a Marian model. Name "
            "the file that Marian has written: --input=…."
        )
    return parse_options(np.asarray(stored[OPTIONS]).tobytes(), file)


def parse_options(content: bytes, file: pathlib.Path) -> Options:
    """Return the options in the text of an array, which ends in zeros.

    Raises:
        UserError: it is not YAML, or an option cannot be represented.
    """
    content = content.rstrip(b"\0")
    return Options(
        marian_files.parse_yaml(content, f"{OPTIONS} in {file}"), file
    )


def _has_positions(tensors: Tensors, options: Options) -> bool:
    """Return whether the model has trained positions.

    If the options do not say so, Wpos is an array without a place.
    """
    return "Wpos" in tensors and options.trains_positions


def _matrices(tensors: Tensors, options: Options) -> list[np.ndarray]:
    """Return embeddings of source and target, and weights of the softmax."""
    size = options.integer("dim-emb")
    if options.shares_embeddings:
        source = target = tensors.take("Wemb", -1, size)
    else:
        source, target = (
            tensors.take(f"{side}_Wemb", -1, size)
            for side in ("encoder", "decoder")
        )
    name = "decoder_ff_logit_out"
    if options.ties_softmax:
        softmax = target
    elif f"{name}_W" in tensors:  # of older versions: src/layers/output.cpp
        softmax = tensors.take(f"{name}_W", size, len(target)).T
    else:
        softmax = tensors.take(f"{name}_Wt", len(target), size)
    return [source, target, softmax]


def _vocabulary(files: VocabularyFiles, size: int) -> MappedModel:
    """Return a SentencePiece model with our ids, and their order."""
    if files.ids is None:
        mapped = mapped_ids.keep_ids(files.pieces)
        count = len(mapped.order) - 1  # without PAD
        if count != size:
            raise errors.UserError(
                f"{files.pieces} has {count:,} pieces and the model {size:,}. "
                "If a .yml or .json file has the ids, name it, too: "
                f"--vocabularies={files.pieces.name},vocab.yml."
            )
        return mapped
    tokens = _tokens(files.ids, size)
    special = Special(_name(tokens, 0, _EOS), _name(tokens, 1, _UNKNOWN))
    return mapped_ids.map_ids(files.pieces, tokens, special, files.ids)


def _tokens(file: pathlib.Path, size: int) -> list[str]:
    """Return tokens by their ids; ids without a token have an unused name.

    Marian ignores tokens of higher ids (src/data/default_vocab.cpp, load()).
    """
    found: dict[int, str] = {}
    for token, number in marian_files.read_yaml(file).items():
        is_number = isinstance(number, str) and number.isdecimal()
        if not is_number or len(number) > 9 or int(number) in found:
            raise errors.UserError(
                f"The ids in {file} must be different numbers; got {number!r} "
                f"for {token!r}."
            )
        found[int(number)] = token
    return [found.get(i, "") or f"<unused {i}>" for i in range(size)]


def _name(tokens, number, names):
    """Return the name of a special token (addRequiredVocabulary() there)."""
    first = tokens[number] if number < len(tokens) else ""
    if first == names[1] or first.startswith("<unused "):
        return first
    return names[0]


def _weights(tensors, options, changes, matrices, orders):
    """Return all weights by their roles."""
    changes |= imported.sharing(
        options.ties_softmax,
        options.shares_embeddings and orders[0] == orders[1],
    )
    source, target, softmax = imported.reorder(*matrices, orders)
    rows = len(matrices[1])
    bias = np.zeros(rows, np.float32)
    # Absent with --output-omit-bias.
    stored = tensors.take_if_present("decoder_ff_logit_out_b", 1, rows)
    if stored is not None:
        bias = stored[0]
    bias = imported.rows(bias, orders[1])
    bias[np.asarray(orders[1]) < 0] = imported.PAD_BIAS
    positions = None
    if changes["pos"] == "emb":  # one table for both sides
        positions = tensors.take("Wpos", -1, options.integer("dim-emb"))
        # Positions beyond the table have its last row, there as here.
        (positions,) = position_tables.pad([positions])
        changes["max_length"] = len(positions)
    sides = [
        _side(tensors, side, embedding, positions, options)
        for side, embedding in (("encoder", source), ("decoder", target))
    ]
    return weights.Weights(*sides, softmax, bias)


def _side(tensors, side, embedding, positions, options):
    numbers = options.layer_numbers[side]
    layers = {n: _layer(tensors, f"{side}_l{n}", options) for n in set(numbers)}
    size = options.integer("dim-emb")
    top = emb = None
    if options.is_pre_norm:  # postProcess() of the stack: no suffix
        top = _norm(tensors, f"{side}_top", "", size)
    if options.has_embedding_norm:  # preProcess()
        emb = _norm(tensors, f"{side}_emb", "_pre", size)
    return weights.Side(
        embedding, [layers[n] for n in numbers], top, emb, positions
    )


def _layer(tensors: Tensors, path: str, options: Options) -> weights.Layer:
    size = options.integer("dim-emb")
    width = options.integer("transformer-dim-ffn")
    suffix = "_pre" if options.is_pre_norm else ""

    def dense(name, inputs, outputs):
        kernel, bias = (f"{path}_{name}".replace("?", x) for x in "Wb")
        return weights.Dense(
            tensors.take(kernel, inputs, outputs),
            tensors.take(bias, 1, outputs)[0],
        )

    def attention(name):  # MultiHead()
        return weights.Attention(
            *(dense(f"{name}_?{one}", size, size) for one in "qkvo")
        )

    def norm(name):
        return _norm(tensors, f"{path}_{name}", suffix, size)

    is_decoder = path.startswith("decoder")
    return weights.Layer(
        attention("self"),
        norm("self_Wo"),
        dense("ffn_?1", size, width),
        dense("ffn_?2", width, size),
        norm("ffn_ffn"),
        attention("context") if is_decoder else None,
        norm("context_Wo") if is_decoder else None,
    )


def _norm(tensors: Tensors, path: str, suffix: str, size: int) -> Any:
    """Return the layer normalization of layerNorm(), src/layers/generic.h."""
    return weights.Norm(
        *(
            tensors.take(f"{path}_ln_{name}{suffix}", 1, size)[0]
            for name in ("scale", "bias")
        )
    )
