"""Files of a Marian model, and the vocabularies among them.

model.npz, model.bin      weights and options
model.npz.decoder.yml,    names of vocabularies, and search settings; the
decoder.yml, model.npz.yml    first that exists
vocab.spm                 a SentencePiece model, whose ids are Marian's; or
vocab.yml, vocab.json     {token: id}, with
source.spm, target.spm        SentencePiece models for the text
"""

import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from t2t_repro import errors
from t2t_repro.importing import imported
from t2t_repro.io import files

_WEIGHTS = (".npz", ".bin")
# Files that Marian writes beside a model: states of training.
_STATES = (".optimizer.npz", ".orig.npz", ".progress.npz")
_LISTS = (".yml", ".yaml", ".json")  # src/data/default_vocab.cpp
_PIECES = ".spm"  # src/data/sentencepiece_vocab.cpp
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # scalars stay text
# Defaults of marian-decoder, src/common/config_parser.cpp.
_SEARCH = {"beam-size": "12", "normalize": "0", "word-penalty": "0"}


class VocabularyFiles(NamedTuple):
    """Files of the vocabulary of one side."""

    pieces: pathlib.Path  # SentencePiece model
    ids: pathlib.Path | None  # {token: id}; None: the model's own ids


class MarianFiles(NamedTuple):
    """Files of a model, and the search settings in them."""

    weights: pathlib.Path
    source: VocabularyFiles
    target: VocabularyFiles
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
    names = [f"{weights.name}.decoder.yml", "decoder.yml"]
    names.append(f"{weights.name}.yml")
    file = next((folder / n for n in names if (folder / n).is_file()), None)
    settings = read_yaml(file) if file else {}
    given = [v if v.is_file() else folder / v.name for v in vocabularies]
    names = _several(settings, "vocabs")
    named = [imported.named_file(folder, name) for name in names]
    source, target = _sides(folder, given or named or _guess(folder))
    used = [weights, *([file] if file else [])]
    used += [one for one in (*source, *target) if one]
    search = _search(settings, file)
    return MarianFiles(
        weights, source, target, search, tuple(dict.fromkeys(used))
    )


def read_yaml(file: pathlib.Path) -> dict[str, Any]:
    """Return a mapping of a YAML or JSON file; its scalars are text.

    Raises:
        UserError: it cannot be read, or is not a mapping.
    """
    return parse_yaml(files.read_bytes(file), file, file.suffix == ".json")


def parse_yaml(
    content: bytes, file: pathlib.Path | str, is_json: bool = False
) -> dict[str, Any]:
    """Call read_yaml() on the content of a file.

    JSON is read as JSON: YAML has no pairs of surrogates.
    """
    try:
        if is_json:
            values = json.loads(content, parse_int=str, parse_float=str)
        else:
            values = yaml.load(content, _LOADER)
    except (ValueError, RecursionError, TypeError, yaml.YAMLError) as error:
        kind = "JSON" if is_json else "YAML"
        raise errors.UserError(
            f"{file} cannot be read as {kind}: {error}. Download it again."
        ) from error
    if not isinstance(values, dict) or not all(
        isinstance(key, str) for key in values
    ):
        raise errors.UserError(
            f"{file} must have lines `name: value`; got {errors.shown(values)}."
        )
    return values


def _weights(path):
    """Return the file of weights."""
    if not path.is_dir():
        if path.suffix not in _WEIGHTS or not path.is_file():
            raise errors.UserError(
                f"{path} must be a Marian model: a .npz or .bin file, or its "
                "folder. Say --input=…."
            )
        return path
    for file in (path / "decoder.yml", *sorted(path.glob("*.decoder.yml"))):
        if not file.is_file():
            continue
        models = _several(read_yaml(file), "models")
        if len(models) > 1:
            raise errors.UserError(
                f"{file} has {len(models)} models, an ensemble. Import each "
                "alone: --input=FILE.npz. Then --checkpoint_path=a,b of "
                "`t2t decoder` makes the ensemble."
            )
        if models:
            found = imported.named_file(path, models[0])
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
    return [
        VocabularyFiles(pieces[at], lists[at] if lists else None)
        for at in (0, -1)
    ]


def _search(settings, file):
    """Return the settings of marian-decoder as fields of DecodeHParams.

    src/translator/history.h: a score is (log-probability - word-penalty *
    length) / length^normalize, and the length counts EOS.
    """
    values = {}
    for name, default in _SEARCH.items():
        try:
            values[name] = float(settings.get(name, default))
        except (TypeError, ValueError) as error:
            raise imported.refuse(
                file, name, "a number", settings[name]
            ) from error
    beams = values["beam-size"]
    for name, is_right, rule in (
        ("beam-size", 1 <= beams < 10_000, "at least 1"),
        ("normalize", 0 <= values["normalize"] < 100, "at least 0"),
        ("word-penalty", values["word-penalty"] == 0, "0"),
    ):
        if not is_right:
            raise imported.refuse(file, name, rule, settings[name])
    return {
        "beam_size": int(beams),
        "alpha": values["normalize"],
        "length_penalty_offset": 0,
    }


# Marian's own format of weights, .bin, as src/common/binary.cpp writes it.
#
# uint64                version, 1; 2: encrypted uint64                number of
# arrays 4 uint64 an array     bytes of the name, type, dimensions, bytes of the
# data names                 each ends in a zero byte int32
# sizes of all dimensions, array by array uint64, zeros         their number, up
# to a multiple of 256 bytes data                  array by array, padded to a
# multiple of 256 bytes

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


def read_binary(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    """Return {name: array}.

    Raises:
        UserError: the file cannot be read, or its arrays are quantized.
    """
    content = _Content(files.read_bytes(file), file)
    (version,) = content.take(np.uint64, 1)
    if version != _VERSION:
        raise content.damaged(f"its version is {version}, not {_VERSION}")
    (count,) = content.take(np.uint64, 1)
    headers = content.take(np.uint64, 4 * int(count)).reshape(-1, 4).tolist()
    names = [content.name(length) for length, *_ in headers]
    shapes = [
        content.take(np.int32, rank).tolist() for _, _, rank, _ in headers
    ]
    (padding,) = content.take(np.uint64, 1)
    content.take(np.uint8, int(padding))
    arrays = {}
    for name, shape, (_, kind, _, size) in zip(
        names, shapes, headers, strict=True
    ):
        if kind not in _DTYPES:
            raise errors.UserError(
                f"{name} in {file} is quantized or packed (type {kind:#x}). "
                "Import the model that it was made from, a .npz file."
            )
        entries = content.take(np.uint8, size).tobytes()
        arrays[name] = content.array(name, entries, _DTYPES[kind], shape)
    return arrays


class _Content:
    """Content of a file, read from its start to its end."""

    def __init__(self, content: bytes, file: pathlib.Path):
        self._content = content
        self._file = file
        self._at = 0

    def take(self, dtype: type, count: int) -> np.ndarray:
        """Return the next `count` numbers."""
        end = self._at + count * np.dtype(dtype).itemsize
        if end > len(self._content):
            raise self.damaged("it is too short")
        found: np.ndarray = np.frombuffer(self._content, dtype, count, self._at)
        self._at = end
        return found

    def name(self, length: int) -> str:
        """Return the next name."""
        text = self.take(np.uint8, length).tobytes()
        return text.rstrip(b"\0").decode("utf-8", "replace")

    def array(
        self, name: str, entries: bytes, dtype: type, shape: list[int]
    ) -> np.ndarray:
        """Return an array without the padding after its data."""
        size, itemsize = math.prod(shape), np.dtype(dtype).itemsize
        if len(shape) > _MAX_RANK:
            raise self.damaged(f"{name} has {len(shape)} dimensions")
        if min(shape, default=0) < 0 or size * itemsize > len(entries):
            raise self.damaged(f"{name} is too short for its shape {shape}")
        return np.frombuffer(entries, dtype, size).reshape(shape)

    def damaged(self, reason: str) -> errors.UserError:
        """Return the error of a file that Marian did not write."""
        return errors.UserError(
            f"The file {self._file} cannot be read as a model of Marian: "
            f"{reason}. Download it again, or import the .npz file."
        )
