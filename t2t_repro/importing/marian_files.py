"""Files of a Marian model, and the vocabularies among them.

model.npz, model.bin      weights and options
model.npz.decoder.yml,    names of vocabularies, and search settings; the
decoder.yml, model.npz.yml    first that exists
vocab.spm                 a SentencePiece model, whose ids are Marian's; or
vocab.yml, vocab.json     {token: id}, with
source.spm, target.spm        SentencePiece models for the text
"""

import contextlib
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import model_files
from t2t_repro.importing.model_files import Setting

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


def find(
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
    if not path.is_dir():
        if path.suffix not in _WEIGHTS or not path.is_file():
            raise errors.UserError(
                f"{path} must be a Marian model: a .npz or .bin file, or its "
                "folder. Say --input=…."
            )
        return path
    settings = [path / "decoder.yml", *sorted(path.glob("*.decoder.yml"))]
    for file in filter(pathlib.Path.is_file, settings):
        models = _several(model_files.read_yaml(file, True), "models")
        if len(models) > 1:
            raise errors.UserError(
                f"{file} has {len(models)} models, an ensemble. Import each "
                "alone: --input=FILE.npz. Then --checkpoint_path=a,b of "
                "`t2t decoder` makes the ensemble."
            )
        if models:
            found = model_files.named_file(path, models[0])
            if os.path.isfile(found):
                return found
    for suffix in _WEIGHTS:
        found = [
            file
            for file in sorted(path.glob(f"*{suffix}"))
            if not file.name.endswith(_STATES)
        ]
        if len(found) > 1:
            names = ", ".join(file.name for file in found[:5])
            raise errors.UserError(
                f"{path} has {len(found)} models: {names}. Name one: "
                f"--input={found[0]}."
            )
        if found:
            return found[0]
    raise errors.UserError(
        f"{path} has no model of Marian, .npz or .bin. Name the folder or the "
        "file of the model: --input=…."
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
