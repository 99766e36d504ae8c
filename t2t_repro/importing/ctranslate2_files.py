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
import struct
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.importing.arrays import Tensors
from t2t_repro.io import files

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


def read(file: pathlib.Path) -> ModelFile:
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
