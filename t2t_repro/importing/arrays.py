"""Arrays by name, and readers of the files that have them."""

import functools
import math
import pathlib
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.importing import model_files
from t2t_repro.io import files

_FLOATS = "float32", "float16", "float64", "bfloat16"
_ALIGNMENT = 64  # bytes: Eigen's EIGEN_MAX_ALIGN_BYTES


class Tensors:
    """Arrays of a file, taken one by one."""

    def __init__(
        self,
        arrays: Mapping[str, Any],
        file: str,
        read: Callable[[str], Any] | None = None,
    ):
        """Store the arrays.

        Args:
            arrays: {name: array}, of which only the names count with `read`;
                other values than arrays are refused when they are taken.
            file: path of the file, for errors.
            read: reads a new array of a name; None: `arrays` has it.
        """
        if unnamed := [name for name in arrays if not isinstance(name, str)]:
            raise errors.UserError(
                f"The weights in {file} must have names; got "
                f"{errors.shown(unnamed[0])}."
            )
        self._arrays = arrays
        self._file = file
        self._read = read or (lambda name: _copy(arrays[name]))
        self.left = set(arrays)  # names of those that were not taken

    def within(self, prefix: str) -> "Tensors":
        """Return the arrays that were not taken, with a prefix of names."""
        return Tensors(
            {f"{prefix}{name}": None for name in self.left},
            self._file,
            lambda name: self._read(name.removeprefix(prefix)),
        )

    def __contains__(self, name: str) -> bool:
        """Return whether there is an array of this name."""
        return name in self._arrays

    def names(self, pattern: str) -> list[str]:
        """Return the names that match a regular expression, sorted."""
        return sorted(n for n in self._arrays if re.fullmatch(pattern, n))

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Return an array in float32.

        Args:
            name: its name.
            *shape: expected sizes; -1: any. None at all: any shape. The array
                may have dimensions of size 1 before these, which are removed.

        Raises:
            UserError: it is missing, has another shape, or is not of floats.
        """
        if name not in self._arrays:
            raise errors.UserError(
                f"{self._file} has no array {name}. It has "
                f"{len(self._arrays):,}: "
                f"{', '.join(sorted(self._arrays)[:5])}, …"
            )
        self.left.discard(name)
        array = self._read(name)
        is_array = isinstance(array, np.ndarray)
        kind = array.dtype.name if is_array else type(array).__name__
        if not is_array or kind not in _FLOATS:
            raise errors.UserError(
                f"{name} in {self._file} must be an array of floats; got "
                f"{kind}. If that is a quantized model, import the model that "
                "it was made from."
            )
        shape = shape or array.shape
        wanted = (1,) * (array.ndim - len(shape)) + shape
        if len(wanted) != array.ndim or any(
            expected not in (-1, size)
            for expected, size in zip(wanted, array.shape, strict=True)
        ):
            sizes = ", ".join("any" if n < 0 else str(n) for n in wanted)
            raise errors.UserError(
                f"{name} in {self._file} must have the shape [{sizes}]; got "
                f"{list(array.shape)}."
            )
        array = array.reshape(array.shape[array.ndim - len(shape) :])
        return array.astype(np.float32, copy=False)

    def take_if_present(self, name: str, *shape: int) -> np.ndarray | None:
        """Return take(name), or None if there is no array of this name."""
        return self.take(name, *shape) if name in self else None

    def take_one(
        self, names: Sequence[str], reason: str, *shape: int
    ) -> np.ndarray:
        """Return the one array that each of several names may have.

        Args:
            names: names, of which at least one must be in the file.
            reason: the setting by which they are one array, for errors.
            *shape: as of take().

        Raises:
            UserError: there is none, or two of them differ.
        """
        present = [name for name in names if name in self] or names[:1]
        first, *others = (self.take(name, *shape) for name in present)
        for name, array in zip(present[1:], others, strict=True):
            if not np.array_equal(first, array):
                raise errors.UserError(
                    f"This model cannot be imported: {present[0]} and {name} "
                    f"in {self._file} must be equal, because of {reason}; got "
                    "different ones, and nothing says which of them the model "
                    "has. Remove one of them, or correct the setting."
                )
        return first

    def refuse_rest(self, ignored: Iterable[str] = ()) -> tuple[str, ...]:
        """Refuse arrays that were not taken: this model has no place for them.

        Args:
            ignored: regular expressions of names that carry no weights.

        Returns:
            The names of the arrays that were not taken.

        Raises:
            UserError: an array was not taken, and is not to be ignored.
        """
        rest = [
            name
            for name in self.left
            if not any(re.fullmatch(pattern, name) for pattern in ignored)
        ]
        model_files.refuse_rest(self._file, "arrays", rest)
        return tuple(sorted(self.left))


def _copy(value):
    return value.copy() if isinstance(value, np.ndarray) else value


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a contiguous copy in memory that TensorFlow can share."""
    copy = aligned(array.shape)
    copy[...] = array
    return copy


def aligned(shape: Sequence[int]) -> np.ndarray:
    """Return an array in float32, without values, whose memory is aligned."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first : first + size].view(np.float32).reshape(shape)


def variable(array: np.ndarray) -> tf.Variable:
    """Return a variable of the values, if possible without a copy of them."""
    if array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0:
        array = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.Variable(array)


# Files of models, and readers of weights: safetensors, PyTorch, npz.

INDEX = ".index.json"  # end of the name of an index
# Objects in checkpoints of fairseq that carry no weights. NumPy's are scores
# of a validation; names of modules differ between NumPy 1 and 2. Meters are of
# fairseq before 0.9.
_INERT = """
    argparse.Namespace typing.Any builtins.dict builtins.list _codecs.encode
    numpy.ndarray numpy.dtype
    numpy.core.multiarray._reconstruct numpy.core.multiarray.scalar
    numpy._core.multiarray._reconstruct numpy._core.multiarray.scalar
    omegaconf.dictconfig.DictConfig omegaconf.listconfig.ListConfig
    omegaconf.base.ContainerMetadata omegaconf.base.Metadata
    omegaconf.nodes.AnyNode omegaconf.nodes.BooleanNode
    omegaconf.nodes.BytesNode omegaconf.nodes.EnumNode
    omegaconf.nodes.FloatNode omegaconf.nodes.IntegerNode
    omegaconf.nodes.PathNode omegaconf.nodes.StringNode
    fairseq.meters.AverageMeter fairseq.meters.TimeMeter
    fairseq.meters.StopwatchMeter
""".split()
# Bytes of arrays beyond which they must not be so many times their file.
_SMALL_BYTES, _MAX_RATIO = 1 << 26, 20


def read_weights(file: pathlib.Path) -> tuple[Tensors, list[pathlib.Path]]:
    """Read weights in a .safetensors; in any other file, PyTorch's.

    Args:
        file: file of the weights, or the index of several, which names the
            file of each array.

    Returns:
        The weights, and the files that have them.

    Raises:
        UserError: a file cannot be read, or needs a package that is missing.
    """
    if not file.name.endswith(INDEX):
        only, read_only = _open(file)
        return Tensors(only, str(file), read_only), [file]
    shape = {"weight_map": {str: str}}
    names = files.read_json(file, shape, "Download it again.")["weight_map"]
    parts = {}
    for part in sorted(set(names.values())):
        if part != pathlib.PurePath(part).name:
            raise model_files.unreadable(
                file, f"{part!r} is not the name of a file"
            )
        parts[part] = _open(model_files.find_file(file.parent, part))
    found = {name: part for part in parts for name in parts[part][0]}
    if found != names or len(found) < sum(len(x) for x, _ in parts.values()):
        different = found.keys() ^ names.keys() or names.keys()
        raise model_files.unreadable(
            file,
            f"its {len(names):,} arrays are not those of its {len(parts):,} "
            f"files, such as {min(map(str, different))}",
        )

    def read(name: str) -> Any:
        return parts[names[name]][1](name)

    files_read = [file, *(file.parent / part for part in parts)]
    return Tensors(names, str(file), read), files_read


def _open(file):
    """Return a mapping from the names of arrays, and the reader of a name."""
    if file.suffix != ".safetensors":
        arrays = read_checkpoint(file)
        return arrays, arrays.__getitem__
    with errors.needed("importer", "The importer"):
        import safetensors
    open_file = functools.partial(
        safetensors.safe_open, str(file), framework="np"
    )
    with model_files.reading(file), open_file() as opened:
        names = dict.fromkeys(opened.keys())
        for name in names:
            kind = opened.get_slice(name).get_dtype()
            if re.match("F[48]", kind):  # the reader knows no such arrays
                raise errors.UserError(
                    f"{name} in {file} has the type {kind}, of a quantized "
                    "model. Import the model that it was made from."
                )

    def read(name: str) -> np.ndarray:
        # Opened each time: pages of a file that were read are memory, too.
        with model_files.reading(file), open_file() as opened:
            return opened.get_tensor(name)

    return names, read


def read_npz(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    """Return {name: array} of a .npz; pickled objects are refused.

    Raises:
        UserError: it cannot be read, or its arrays are far larger than it.
    """
    with model_files.reading(file):
        _require_small_zip(file)
        with np.load(file) as opened:
            return dict(opened)


def require_size(size: int, files: Sequence[pathlib.Path]) -> None:
    """Refuse arrays of `size` bytes that are far larger than their files.

    Trained weights cannot be compressed by much: such files are made to fill
    the memory.

    Raises:
        UserError: names the first file.
    """
    stored = sum(file.stat().st_size for file in files)
    if size > max(_SMALL_BYTES, _MAX_RATIO * stored):
        raise errors.UserError(
            f"{files[0]} has {stored:,} bytes for arrays of {size:,}, and "
            "weights cannot be compressed so much. Get the file from the "
            "people who trained the model."
        )


def _require_small_zip(file):
    """Refuse an archive whose members are far larger than it."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as opened:
            size = sum(member.file_size for member in opened.infolist())
        require_size(size, [file])


def read_checkpoint(file: pathlib.Path) -> dict[str, Any]:
    """Read a checkpoint of PyTorch with settings beside the tensors.

    A pickle may have what PyTorch's safe loader knows, and the objects of
    _INERT, none of whose code is run. Tensors become arrays, and settings
    dicts, lists and values.

    Raises:
        UserError: it cannot be read, has other objects, or needs a package
            that is missing.
    """
    with errors.needed("pytorch", f"{file.name}, a file of PyTorch,"):
        import torch
    inert = [(Inert, name) for name in _INERT]
    size = 0

    def array(tensor: Any) -> np.ndarray:
        nonlocal size  # many tensors, and large ones, may share a few bytes
        size += 4 * tensor.numel()
        require_size(size, [file])
        tensor = tensor.detach()
        return (
            tensor.float() if tensor.is_floating_point() else tensor
        ).numpy()

    with model_files.reading(file):
        _require_small_zip(file)
        try:
            with torch.serialization.safe_globals(
                [*inert, (_dict, "collections.defaultdict")]
            ):
                state = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise _has_objects(file, error) from error
        if not isinstance(state, dict):
            raise ValueError(f"it has a {type(state).__name__}")
        return plain(state, {torch.Tensor: array})


class Inert:
    """Object of a pickle, with its state and without its class and code."""

    state: Any = None

    def __init__(self, *args: Any):
        """Ignore the arguments of the class or function that it stands for."""

    def __setstate__(self, state: Any) -> None:
        """Store the state, which nothing interprets."""
        self.state = state


def plain(value: Any, readers: Mapping[type, Callable[[Any], Any]]) -> Any:
    """Return a value of a checkpoint with dicts and lists for its objects.

    OmegaConf's containers have their content under `_content`, and its nodes
    have `_val`. Other objects become dicts of their attributes; those without,
    such as NumPy's arrays, stay what they are.

    Args:
        value: value that PyTorch loaded.
        readers: functions that convert objects of other types.
    """
    done: dict[int, Any] = {}  # an object may occur often, or within itself

    def convert(value: Any) -> Any:
        if id(value) in done:
            return done[id(value)]
        for kind, reader in readers.items():
            if isinstance(value, kind):
                return reader(value)
        content = value.state if isinstance(value, Inert) else value
        if isinstance(content, Mapping):
            if content is not value:
                for name in ("_content", "_val"):
                    if name in content:
                        return convert(content[name])
            mapping = done[id(value)] = {}
            mapping.update((k, convert(item)) for k, item in content.items())
            return mapping
        if isinstance(value, list):
            items = done[id(value)] = []
            items.extend(map(convert, value))
            return items
        return value

    return convert(value)


def _dict(*args):
    return {}


def _has_objects(file, error):
    """Return the error of a pickle with objects that are not known."""
    from torch import serialization

    try:
        names = serialization.get_unsafe_globals_in_checkpoint(str(file))
    except Exception:  # of an old format, or damaged
        names = re.findall(r"GLOBAL ([\w.]+)", str(error))
    others = sorted({*names} - {*_INERT, "collections.defaultdict"})
    if not others:
        return model_files.unreadable(
            file, "it is no checkpoint of PyTorch, or damaged"
        )
    return errors.UserError(
        f"{file} has Python objects: {', '.join(others[:5])}. They are not "
        "read, because that would run their code. If you trust the file, load "
        "it in the program that wrote it, and save the tensors and settings "
        "without them."
    )


# TensorFlow's checkpoints of other systems: FILE.index, FILE.data-*.

_ENDING = ".index"  # of the file that names a checkpoint


def find_checkpoint(path: pathlib.Path) -> pathlib.Path:
    """Return a checkpoint's path without an ending.

    Args:
        path: its folder, where the file `checkpoint` may name one of several,
            or one of its files.

    Raises:
        UserError: there is none, or several and none is named.
    """
    if not path.is_dir():
        name = path.name.partition(".data-")[0].removesuffix(_ENDING)
        if not (path.parent / f"{name}{_ENDING}").is_file():
            raise errors.UserError(
                f"There is no checkpoint {path}. Name its folder, or the file "
                "FILE.index: --input=…."
            )
        return path.parent / name
    found = sorted(path.glob(f"*{_ENDING}"))
    if len(found) > 1 and (latest := _latest(path)):
        return latest
    if len(found) != 1:
        raise errors.UserError(
            f"{path} has {len(found)} checkpoints, FILE.index files. Name one "
            "of them: --input=…."
        )
    return found[0].with_suffix("")


def _latest(folder):
    """Return the checkpoint that the file `checkpoint` names last."""
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except Exception:  # text_format.ParseError, of a private module
        return None
    if state is None:
        return None
    # Its path may be that of another machine.
    name = pathlib.PurePosixPath(state.model_checkpoint_path).name
    latest = folder / name
    return latest if latest.with_name(f"{name}{_ENDING}").is_file() else None


def read_checkpoint_arrays(prefix: pathlib.Path) -> Tensors:
    """Open a checkpoint, whose arrays are read when they are taken.

    Raises:
        UserError: it cannot be read.
    """
    with model_files.reading(prefix):
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
        size = sum(4 * math.prod(shape) for shape in shapes.values())
        require_size(size, checkpoint_files(prefix))

    def read(name: str) -> np.ndarray:
        with model_files.reading(prefix):
            return np.asarray(reader.get_tensor(name))

    return Tensors(shapes, str(prefix), read)


def checkpoint_files(prefix: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of a checkpoint."""
    data = sorted(prefix.parent.glob(f"{prefix.name}.data-*-of-*"))
    return [prefix.with_name(f"{prefix.name}{_ENDING}"), *data]
