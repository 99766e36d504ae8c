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

import functools
import itertools
import math
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import imported, model_files
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Side
from t2t_repro.importing.model_files import Setting
from t2t_repro.io import files
from t2t_repro.models.transformer_ctranslate2 import MODEL_CARD, START
from t2t_repro.text import sentence_piece, vocabulary, vocabulary_pair
from t2t_repro.text.vocabulary import SpecialTokens

_MAX_VERSION = 6
_MAX_RANK = 3
_FLOAT_BITS = {np.dtype("<f4"), np.dtype("<f2")}
_BFLOAT16 = np.dtype("<u2")  # numpy has no such type
# By number from version 4, and by size before.
_DTYPES = dict(
    enumerate(map(np.dtype, ("<f4", "<i1", "<i2", "<i4", "<f2", "<u2")))
)
_OLD_DTYPES = {4: _DTYPES[0], 2: _DTYPES[2], 1: _DTYPES[1]}
_OLD_INT16_SCALE = np.float32(1000)  # src/ops/quantize.cc
_SCALE = "_scale"


class ModelFile(NamedTuple):
    """Variables of a model.bin."""

    file: pathlib.Path
    version: int  # of the binary format
    spec: str  # "TransformerSpec"
    revision: int  # of the specification
    tensors: Tensors  # float32, quantized ones multiplied out
    attributes: "Attributes"

    def refuse(self, name: str, rule: str, got: Any) -> errors.UserError:
        """Return the error of what must be something else in the file."""
        return model_files.refuse(self.file, name, rule, got)


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
            default: value if there is none; its type is the required one, and
                float that of None.

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
        kind = float if default is None else type(default)
        if kind is bool and value in (0, 1):
            return bool(value)
        if isinstance(value, kind):
            return value
        rule = f"of the type {kind.__name__}"
        raise model_files.refuse(self._file, present[0], rule, value)

    def is_float(self, name: str) -> bool:
        """Return whether an attribute is there, and is a float."""
        return isinstance(self._values.get(name), float)

    def refuse_rest(self) -> None:
        """Refuse attributes that were not taken, unless they are 0."""
        rest = [name for name in self._left if self._values[name]]
        model_files.refuse_rest(self._file, "attributes", rest)


def read_model(file: pathlib.Path) -> ModelFile:
    """Read a model.bin.

    Raises:
        UserError: it cannot be read, or is damaged.
    """
    content = model_files.Content(file)
    with model_files.reading(file, "a model of CTranslate2"):
        version, spec, revision = content.number("<u4"), "", 1
        if not 1 <= version <= _MAX_VERSION:
            raise ValueError(
                f"its version is {version}, and 1 to {_MAX_VERSION} are known"
            )
        if version >= 2:
            spec, revision = _text(content), content.number("<u4")
        variables: dict[str, np.ndarray] = {}
        for _ in range(content.number("<u4")):
            _add(variables, *_variable(content, version))
        aliases: dict[str, str] = {}
        for _ in range(content.number("<u4") if version >= 3 else 0):
            _add(aliases, _text(content), _text(content))
        if content.left:
            raise ValueError(f"{content.left:,} bytes follow its end")
        arrays, attributes = _separate(variables)
        for alias, name in aliases.items():
            if name in arrays:
                _add(arrays, alias, arrays[name])
        if revision == 1:
            renamed: dict[str, np.ndarray] = {}
            for name, value in arrays.items():
                _add(renamed, _renamed(name), value)
            arrays = renamed
    return ModelFile(
        file,
        version,
        spec,
        revision,
        Tensors(arrays, str(file)),
        Attributes(attributes, file),
    )


def _text(content):
    return content.take("u1", content.number("<u2")).tobytes()[:-1].decode()


def _variable(content, version):
    """Return the name and the array of the next variable."""
    name, rank = _text(content), content.number("u1")
    if rank > _MAX_RANK:
        raise ValueError(f"{name} has {rank} dimensions")
    shape = content.take("<u4", rank).tolist()
    kind = content.number("u1")
    dtype = (_DTYPES if version >= 4 else _OLD_DTYPES).get(kind)
    if dtype is None:
        raise ValueError(f"{name} has the unknown data type {kind}")
    size = content.number("<u4") * (1 if version >= 4 else dtype.itemsize)
    if size != math.prod(shape) * dtype.itemsize:
        raise ValueError(
            f"{name} has {size:,} bytes and the shape {shape} of {dtype}"
        )
    array = content.take(dtype, math.prod(shape)).reshape(shape)
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

_CONFIG = {
    "unk_token": Setting(str),
    "eos_token": Setting(str),
    "add_source_bos": Setting(bool, values=(False,)),
    "add_source_eos": Setting(bool),
    "decoder_start_token": Setting(str),
    "layer_norm_epsilon": Setting(0.0, below=1),
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
    epsilon: float  # 0: CTranslate2's
    lists: list[pathlib.Path]  # files of the tokens of both sides
    config_files: list[pathlib.Path]  # config.json, if there is one


def read_tokens(folder: pathlib.Path, model: ModelFile) -> Tokens:
    """Read the vocabulary files and config.json.

    Raises:
        UserError: a file is missing or damaged, or a setting cannot be
            represented.
    """
    config, config_files = _read_config(folder, model)
    paths = []
    for side in ("source", "target"):
        parts = itertools.product(("shared", side), (".json", ".txt"))
        names = (f"{kind}_vocabulary{ending}" for kind, ending in parts)
        paths.append(model_files.find_file(folder, *names))
    source, target = (_lines(path, config["unk_token"]) for path in paths)
    eos, start = config["eos_token"], config["decoder_start_token"]
    for name in (eos, start):
        if name not in target:
            raise model_files.refuse(
                paths[1], "a special token", "one of its tokens", name
            )
    return Tokens(
        source,
        target,
        SpecialTokens(eos, config["unk_token"]),
        target.index(start),
        {source[-1], target[-1], start} == {START},
        # CTranslate2 adds EOS, or the caller: the tokenizers of Hugging Face's
        # models do. The decoders of these models start with EOS, and OpenNMT's
        # with <s>.
        config["add_source_eos"] or start == eos,
        config["add_source_eos"],
        config["layer_norm_epsilon"],
        paths,
        config_files,
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
    lists = [tokens.source, tokens.target]
    if tokens.is_own:
        lists = [tokens.source[:-1], tokens.target[:-1]]
        for separate in (False, True):
            paths = vocabulary_pair.paths(folder, separate)
            if all(path.is_file() for path in paths):
                return _own(folder, paths, lists)
        if (kind := _kind_of_card(folder)) not in (None, "whitespace_tokens"):
            raise errors.UserError(
                f"{folder} lacks its {kind} vocabulary, vocab.model or "
                "vocab.inputs.model and vocab.targets.model, which this "
                "project's exporter has written there. Restore it."
            )
    sides = []
    for names, file in zip(lists, tokens.lists, strict=True):
        pad = vocabulary.pad_name(names)
        sides.append(Side(names, tokens.special._replace(pad=pad), file))
    for pair in _PAIRS_OF_MODELS:
        models = [folder / name for name in pair]
        if all(path.is_file() for path in models):
            return imported.map_pieces(models, sides)
    return imported.map_tokens(sides)


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
        raise model_files.refuse(
            tokens.lists[1],
            "the target's vocabulary",
            "without tokens of languages: in M2M-100, NLLB and mBART-50, the "
            "caller gives one of them as the first token of an output",
            ", ".join(names[:5]),
        )


def _read_config(folder, model):
    """Return the settings of config.json or of old attributes, and the file."""
    path = folder / "config.json"
    is_there = model.version >= 6 or path.is_file()
    config = model_files.read_json(path, dict) if is_there else {}
    if model.version < 6:
        config |= _old_config(model.attributes)
    require = functools.partial(model_files.require, path, config)
    start = config.get("decoder_start_token")
    rule = "a token: here no caller of the model names one"
    require("decoder_start_token", isinstance(start, str), rule)
    name = "quantization_type"
    require(name, not config.get(name), "absent")
    config = model_files.without_null(config)
    settings, _ = model_files.read_settings(config, _CONFIG, path)
    return settings, [path] if is_there else []


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


def _lines(path, unknown):
    """Return the tokens of a vocabulary file, and the unknown one at the end.

    src/vocabulary.cc: carriage returns are removed if all lines have one.
    """
    if path.suffix == ".json":
        tokens = model_files.read_json(path, [str])
    else:
        tokens = model_files.read_lines(path, newline="")
        if all(token.endswith("\r") for token in tokens):
            tokens = [token[:-1] for token in tokens]
    return tokens if unknown in tokens else [*tokens, unknown]


def _kind_of_card(folder):
    """Return the type of the vocabularies that a model card has, or None."""
    card = folder / MODEL_CARD
    contents = files.read_json(card, dict) if card.is_file() else {}
    arguments = contents.get("problem_arguments")
    kind = isinstance(arguments, dict) and arguments.get("vocabulary_type")
    return kind if isinstance(kind, str) else None


def _own(folder, paths, lists):
    """Return vocabularies that this project's exporter wrote."""
    kind = _kind_of_card(folder) or _kind(paths[0], len(lists[0]))
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
    return FoundVocabularies(pair, orders, paths, kind)


def _kind(path, size):
    """Return the type of a vocabulary file of `size` tokens."""
    content = path.read_bytes()
    if content.startswith(b"{"):
        return "whitespace_tokens"
    return sentence_piece.vocabulary_type(content, size)
