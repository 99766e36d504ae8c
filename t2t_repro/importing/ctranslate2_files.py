"""Content of CTranslate2's model.bin, of its binary versions 1 to 6.

The format is that of CTranslate2, python/ctranslate2/specs/model_spec.py and
src/models/model.cc:

    uint32   binary version
    text     name of the specification               from version 2
    uint32   revision of the specification           from version 2
    uint32   number of variables; of each:
        text, uint8 rank, uint32 sizes
        uint8 data type, uint32 bytes                from version 4
        uint8 bytes of an item, uint32 items         before
        the values
    uint32   number of aliases; of each two texts    from version 3

A text has its length as uint16, and ends in a byte 0. Attributes, such as the
number of heads, are variables without dimensions.
"""

import math
import pathlib
import re
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import imported
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies
from t2t_repro.io import files
from t2t_repro.serving.to_ctranslate2 import MODEL_CARD, START
from t2t_repro.text import sentence_piece, vocabulary_pair, whitespace_tokens
from t2t_repro.text.sentence_piece import MappedSentencePiece
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies
from t2t_repro.text.whitespace_tokens import WhitespaceTokens

_MAX_VERSION = 6
_MAX_RANK = 3
_FLOAT_BITS = {np.dtype("<f4"), np.dtype("<f2")}
_BFLOAT16 = np.dtype("<u2")  # numpy has no such type
# By number from version 4, and by size before.
_DTYPES = [np.dtype(n) for n in ("<f4", "<i1", "<i2", "<i4", "<f2")]
_DTYPES.append(_BFLOAT16)
_OLD_DTYPES = {4: _DTYPES[0], 2: _DTYPES[2], 1: _DTYPES[1]}
_OLD_INT16_SCALE = np.float32(1000)  # src/ops/quantize.cc
_SCALE = "_scale"


class ModelFile(NamedTuple):
    """Variables of a model.bin."""

    version: int  # of the binary format
    spec: str  # "TransformerSpec"
    revision: int  # of the specification
    tensors: Tensors  # float32, quantized ones multiplied out
    attributes: "Attributes"


class Attributes:
    """Attributes of a model.bin, taken one by one."""

    def __init__(self, values: dict[str, Any], file: pathlib.Path):
        """Store the values by name, and the file for errors."""
        self._values = values
        self._file = file
        self._left = set(values)

    def take(self, names: str | tuple[str, ...], default: Any) -> Any:
        """Return the first of the attributes that the file has.

        Args:
            names: a name, or several that have the same meaning.
            default: value if there is none; its type is the required one.

        Raises:
            UserError: it is of another type.
        """
        names = (names,) if isinstance(names, str) else names
        present = [name for name in names if name in self._values]
        self._left.difference_update(present)
        if not present:
            return default
        value = self._values[present[0]]
        if any(self._values[name] != value for name in present):
            raise errors.UserError(
                f"{' and '.join(present)} in {self._file} have one meaning and "
                "different values. Convert the model again."
            )
        if isinstance(default, bool) and value in (0, 1):
            return bool(value)
        if isinstance(value, type(default)):
            return value
        raise errors.UserError(
            f"{present[0]} in {self._file} must be of the type "
            f"{type(default).__name__}; got {value!r:.80}."
        )

    def take_float(self, name: str, default: float | None) -> float | None:
        """Return an attribute that is a float, or `default`."""
        return self.take(name, 0.0) if name in self._values else default

    def is_float(self, name: str) -> bool:
        """Return whether an attribute is there, and is a float."""
        return isinstance(self._values.get(name), float)

    def refuse_rest(self) -> None:
        """Refuse attributes that were not taken, unless they are 0.

        Raises:
            UserError: names them.
        """
        rest = sorted(name for name in self._left if self._values[name])
        if rest:
            raise errors.UserError(
                f"{self._file} has attributes that no hparam of the "
                f"Transformer stands for: {', '.join(rest[:5])}. Such a model "
                "cannot be imported."
            )


def read_model(file: pathlib.Path) -> ModelFile:
    """Read a model.bin.

    Raises:
        UserError: it cannot be read, or is damaged.
    """
    content = files.read_bytes(file)
    try:
        return _Reader(content, file).read()
    except (struct.error, ValueError) as error:
        raise errors.UserError(
            f"{file} is not a model of CTranslate2, or is damaged: {error}. "
            "Download or convert it again."
        ) from error


class _Reader:
    """State of reading a model.bin."""

    def __init__(self, content: bytes, file: pathlib.Path) -> None:
        self._content, self._file, self._offset = content, file, 0

    def _number(self, kind):
        (value,) = struct.unpack_from(f"<{kind}", self._content, self._offset)
        self._offset += struct.calcsize(f"<{kind}")
        return value

    def _bytes(self, count):
        start, self._offset = self._offset, self._offset + count
        if self._offset > len(self._content):
            raise ValueError(
                f"it ends within {count:,} bytes that begin at byte {start:,}"
            )
        return self._content[start : self._offset]

    def _text(self):
        return self._bytes(self._number("H"))[:-1].decode()

    def read(self):
        version, spec, revision = self._number("I"), "", 1
        if not 1 <= version <= _MAX_VERSION:
            raise ValueError(
                f"its version is {version}, and 1 to {_MAX_VERSION} are known"
            )
        if version >= 2:
            spec, revision = self._text(), self._number("I")
        variables = {}
        for _ in range(self._number("I")):
            name, value = self._variable(version)
            _add(variables, name, value)
        aliases = {}
        for _ in range(self._number("I") if version >= 3 else 0):
            alias, name = self._text(), self._text()
            _add(aliases, alias, name)
        if self._offset < len(self._content):
            raise ValueError(
                f"{len(self._content) - self._offset:,} bytes follow its end"
            )
        arrays, attributes = _separate(variables)
        for alias, name in aliases.items():
            if name in arrays:
                _add(arrays, alias, arrays[name])
        if revision == 1:
            renamed = {}
            for name, value in arrays.items():
                _add(renamed, _renamed(name), value)
            arrays = renamed
        return ModelFile(
            version,
            spec,
            revision,
            Tensors(arrays, str(self._file)),
            Attributes(attributes, self._file),
        )

    def _variable(self, version):
        """Read the name and the array of a variable."""
        name, rank = self._text(), self._number("B")
        if rank > _MAX_RANK:
            raise ValueError(f"{name} has {rank} dimensions")
        shape = [self._number("I") for _ in range(rank)]
        kind = self._number("B")
        dtype = (
            _DTYPES[kind]
            if version >= 4 and kind < len(_DTYPES)
            else _OLD_DTYPES.get(kind)
            if version < 4
            else None
        )
        if dtype is None:
            raise ValueError(f"{name} has the unknown data type {kind}")
        size = self._number("I") * (1 if version >= 4 else dtype.itemsize)
        if size != math.prod(shape) * dtype.itemsize:
            raise ValueError(
                f"{name} has {size:,} bytes and the shape {shape} of {dtype}"
            )
        array = np.frombuffer(self._bytes(size), dtype).reshape(shape)
        if dtype == _BFLOAT16:
            array = (array.astype("<u4") << 16).view("<f4")
        return name, array


def _add(values, name, value):
    """Add a value; a name that occurs twice would have two meanings."""
    if name in values:
        raise ValueError(f"it has {name} twice")
    values[name] = value


def _separate(variables):
    """Return arrays in float32, and attributes."""
    arrays, attributes = {}, {}
    for name, value in variables.items():
        if name.endswith(_SCALE) and name.removesuffix(_SCALE) in variables:
            continue
        if value.dtype in _FLOAT_BITS and value.ndim:
            arrays[name] = value.astype(np.float32)
        elif not value.ndim:
            attributes[name] = value.item()
        elif name.endswith("_token"):
            attributes[name] = value.tobytes().decode()
        else:
            scale = variables.get(name + _SCALE)
            arrays[name] = _multiplied_out(name, value, scale)
    return arrays, attributes


def _multiplied_out(name, array, scale):
    """Return a quantized array in float32: its integers divided by a scale.

    Args:
        name: its name.
        array: [rows, …] of int8 or int16.
        scale: one for each row, or one for all; None: the file has none.
    """
    if scale is None and array.dtype == np.dtype("<i2"):
        scale = _OLD_INT16_SCALE
    if array.dtype.itemsize > 2 or scale is None:
        raise ValueError(f"{name} has {array.dtype} and no scale")
    if scale.ndim and scale.shape != array.shape[:1]:
        raise ValueError(
            f"{name} has {len(array):,} rows and scales {list(scale.shape)}"
        )
    if not np.all(scale > 0):
        raise ValueError(f"a scale of {name} is not above 0")
    shape = [-1] + [1] * (array.ndim - 1) if scale.ndim else []
    return array.astype(np.float32) / scale.astype(np.float32).reshape(shape)


def _renamed(name):
    """Return the name that a variable of revision 1 has today.

    src/models/transformer.cc, map_v1_variable_name(): they were OpenNMT-tf's.
    """
    for old, new in (
        ("transformer/", ""),
        (":0", ""),
        ("w_embs", "embeddings/weight"),
        ("kernel", "weight"),
        ("LayerNorm", "layer_norm"),
        ("dense", "projection"),
        ("conv1d_", "linear_"),
        ("conv1d", "linear_0"),
    ):
        name = name.replace(old, new, 1)
    if "encoder" in name:
        return name.replace("multi_head", "self_attention", 1)
    name = name.replace("masked_multi_head", "self_attention", 1)
    return name.replace("multi_head", "attention", 1)


# Vocabularies of CTranslate2's folders, and what its settings say of text.

CONFIG = "config.json"
_CONFIG = {
    "unk_token": str,
    "eos_token": str,
    "add_source_bos": bool,
    "add_source_eos": bool,
}
# Tokens of M2M-100, of NLLB and of mBART-50.
_LANGUAGE = re.compile(
    "__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}"
)
_PAIRS_OF_MODELS = (
    ("source.spm", "target.spm"),
    ("source.model", "target.model"),
    ("sentencepiece.model",) * 2,
    ("sentencepiece.bpe.model",) * 2,
    ("spm.model",) * 2,
)


class Tokens(NamedTuple):
    """Tokens by their ids, and settings of config.json."""

    source: list[str]
    target: list[str]
    special: SpecialTokens
    start: int  # id of the decoder's first input
    is_own: bool  # whether START, which this project's exporter adds, is last
    encodes_eos: bool
    adds_eos: bool  # whether CTranslate2 adds it, and not its caller
    epsilon: float | None
    files: tuple[pathlib.Path, ...]


def read_tokens(folder: pathlib.Path, model: ModelFile) -> Tokens:
    """Read the vocabulary files and config.json.

    Raises:
        UserError: a file is missing or damaged, or a setting cannot be
            represented.
    """
    config, files = _config(folder, model)
    shared = _find(folder, "shared_vocabulary")
    paths = [shared, shared]
    if shared is None:
        paths = [
            _find(folder, f"{side}_vocabulary") for side in ("source", "target")
        ]
    missing = [
        f"{side}_vocabulary.json"
        for side, path in zip(("source", "target"), paths, strict=True)
        if path is None
    ]
    if missing:
        raise errors.UserError(
            f"{folder} has no shared_vocabulary.json and no {missing[0]} (nor "
            "one in .txt). Name the folder of a model with one source "
            "vocabulary: --input=…."
        )
    source, target = (_lines(path, config["unk_token"]) for path in paths)
    for name in (config["eos_token"], config["decoder_start_token"]):
        if name not in target:
            raise imported.refuse(
                paths[1], "a special token", "one of its tokens", name
            )
    epsilon = config.get("layer_norm_epsilon")
    return Tokens(
        source,
        target,
        SpecialTokens(config["eos_token"], config["unk_token"]),
        target.index(config["decoder_start_token"]),
        {source[-1], target[-1], config["decoder_start_token"]} == {START},
        _encodes_eos(config),
        config["add_source_eos"],
        float(epsilon) if epsilon else None,
        (*files, *dict.fromkeys(paths)),
    )


def find_vocabularies(
    folder: pathlib.Path, tokens: Tokens
) -> FoundVocabularies:
    """Return the vocabularies of a folder.

    They are those that this project's exporter wrote; or SentencePiece models
    with the ids of the tokens; or, without one, tokens between spaces.

    Raises:
        UserError: a file cannot be used, or the tokens are not its pieces.
    """
    lists = tokens.source, tokens.target
    if tokens.is_own:
        lists = tokens.source[:-1], tokens.target[:-1]
        for separate in (False, True):
            paths = vocabulary_pair.paths(folder, separate)
            if all(path.is_file() for path in paths):
                return _own(folder, paths, lists)
    special = [
        tokens.special._replace(pad=whitespace_tokens.pad_name(names))
        for names in lists
    ]
    for names in _PAIRS_OF_MODELS:
        spm = [folder / name for name in names]
        if all(path.is_file() for path in spm):
            return _pieces(spm, lists, special, tokens.files[-1])
    try:
        mapped = [
            whitespace_tokens.map_ids(names, one)
            for names, one in zip(lists, special, strict=True)
        ]
    except errors.UserError as error:
        raise errors.UserError(
            f"The vocabulary of {folder}: {error}"
        ) from error
    pair = Vocabularies.of(*(WhitespaceTokens(model) for model, _ in mapped))
    orders = [order for _, order in mapped]
    return FoundVocabularies(pair, "whitespace_tokens", orders, ())


def refuse_languages(tokens: Tokens, found: FoundVocabularies) -> None:
    """Refuse a model of many languages, of which a caller names one.

    The first token of its output is that of the language, after EOS as the
    decoder's first input. A piece of a SentencePiece model is text.

    Raises:
        UserError: the target's vocabulary has tokens of languages.
    """
    if tokens.target[tokens.start] != tokens.special.eos:
        return
    text = set()
    if found.kind != "whitespace_tokens":
        text = {
            piece for piece, _ in found.pair.target.scored_pieces().values()
        }
    names = [
        token
        for token in tokens.target
        if _LANGUAGE.fullmatch(token) and token not in text
    ]
    if names:
        raise imported.refuse(
            tokens.files[-1],
            "the target's vocabulary",
            "without tokens of languages: in M2M-100, NLLB and mBART-50, the "
            "caller gives one of them as the first token of an output",
            ", ".join(names[:5]),
        )


def _config(folder, model):
    """Return the settings of config.json or of old attributes, and the file."""
    path = folder / CONFIG
    if model.version >= 6:
        config = imported.read_json(path, _CONFIG)
    else:
        config = imported.read_json(path, dict) if path.is_file() else {}
        config = config | _old_config(model.attributes)
    epsilon = config.get("layer_norm_epsilon")
    for name, is_right, rule in (
        ("add_source_bos", not config["add_source_bos"], "false"),
        ("quantization_type", not config.get("quantization_type"), "absent"),
        (
            "decoder_start_token",
            isinstance(config.get("decoder_start_token"), str),
            "a token: here no caller of the model names one",
        ),
        (
            "layer_norm_epsilon",
            epsilon is None
            or (type(epsilon) in (float, int) and 0 <= epsilon < 1),
            "a number of at least 0, below 1",
        ),
    ):
        if not is_right:
            raise imported.refuse(path, name, rule, config.get(name))
    return config, (path,) if path.is_file() else ()


def _old_config(attributes):
    """Return the settings of versions before 6.

    src/models/sequence_to_sequence.cc, initialize().
    """
    bos = attributes.take("bos_token", "<s>")
    eos = attributes.take("eos_token", "</s>")
    with_bos = attributes.take("with_target_bos", True)
    by_caller = attributes.take("user_decoder_start_tokens", False)
    return {
        "unk_token": attributes.take("unk_token", "<unk>"),
        "eos_token": eos,
        "add_source_bos": attributes.take("with_source_bos", False),
        "add_source_eos": attributes.take("with_source_eos", False),
        "decoder_start_token": None if by_caller else bos if with_bos else eos,
    }


def _encodes_eos(config: Mapping[str, Any]) -> bool:
    """Return whether the encoder reads EOS.

    CTranslate2 adds it, or the caller: the tokenizers of Hugging Face's models
    do. The decoders of these models start with EOS, and OpenNMT's with <s>.
    """
    starts_with_eos = config["decoder_start_token"] == config["eos_token"]
    return config["add_source_eos"] or starts_with_eos


def _find(folder, stem):
    """Return the file of a vocabulary; None: there is none."""
    paths = [folder / f"{stem}{ending}" for ending in (".json", ".txt")]
    return next((path for path in paths if path.is_file()), None)


def _lines(path, unknown):
    """Return the tokens of a vocabulary file, and the unknown one at the end.

    src/vocabulary.cc: carriage returns are removed if all lines have one.
    """
    if path.suffix == ".json":
        tokens = imported.read_json(path, [str])
    else:
        try:
            tokens = path.read_bytes().decode().split("\n")
        except (OSError, ValueError) as error:
            raise errors.UserError(
                f"The vocabulary {path} cannot be read: {error}. Download or "
                "convert it again."
            ) from error
        if not tokens[-1]:
            tokens.pop()
        if all(token.endswith("\r") for token in tokens):
            tokens = [token[:-1] for token in tokens]
    return tokens if unknown in tokens else [*tokens, unknown]


def _own(folder, paths, lists):
    """Return vocabularies that this project's exporter wrote."""
    card = folder / MODEL_CARD
    contents = files.read_json(card, dict) if card.is_file() else {}
    arguments = contents.get("problem_arguments")
    kind = None
    if isinstance(arguments, dict):
        kind = arguments.get("vocabulary_type")
    if not isinstance(kind, str):
        kind = _kind(paths[0], len(lists[0]))
    pair = vocabulary_pair.load(kind, paths)
    for path, side, names in zip(
        (paths[0], paths[-1]), pair, lists, strict=True
    ):
        if side.pieces(range(side.size)) != names:
            raise errors.UserError(
                f"The subwords of {path} are not the tokens of the model's "
                "vocabulary. Copy the file of the export, or remove it."
            )
    orders = [list(range(side.size)) for side in pair]
    return FoundVocabularies(pair, kind, orders, paths)


def _kind(path, size):
    """Return the type of a vocabulary file of `size` tokens."""
    content = path.read_bytes()
    if content.startswith(b"{"):
        return "whitespace_tokens"
    return sentence_piece.vocabulary_type(content, size)


def _pieces(spm, lists, special, file):
    """Return SentencePiece models with the ids of the tokens."""
    mapped = [
        imported.map_ids(path, names, one, file)
        for path, names, one in zip(spm, lists, special, strict=True)
    ]
    return FoundVocabularies(
        Vocabularies.of(*(MappedSentencePiece(one.model) for one in mapped)),
        "mapped_sentence_piece",
        [one.order for one in mapped],
        list(dict.fromkeys(spm)),
    )
