"""Files of models, and readers of weights: safetensors, PyTorch, npz."""

import contextlib
import pathlib
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing.arrays import Tensors
from t2t_repro.io import extras, json_files

INDEX = ".index.json"  # end of the name of an index
# Objects in checkpoints of fairseq that carry no weights. NumPy's are scores
# of a validation; names of modules differ between NumPy 1 and 2.
_INERT = (
    "argparse.Namespace",
    "typing.Any",
    "builtins.dict",
    "builtins.list",
    "_codecs.encode",
    "numpy.ndarray",
    "numpy.dtype",
    *(
        f"numpy.{module}.multiarray.{name}"
        for module in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    ),
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata",
    *(
        f"omegaconf.nodes.{name}Node"
        for name in (
            "Any",
            "Boolean",
            "Bytes",
            "Enum",
            "Float",
            "Integer",
            "Path",
            "String",
        )
    ),
    # Before 0.9.
    *(
        f"fairseq.meters.{name}Meter"
        for name in ("Average", "Time", "Stopwatch")
    ),
)
# Bytes of arrays beyond which they must not be so many times their file.
_SMALL_BYTES, _MAX_RATIO = 1 << 26, 20


def find(folder: pathlib.Path, *names: str) -> pathlib.Path:
    """Return the first of the files that is in a folder.

    Raises:
        UserError: there is none.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise errors.UserError(
        f"{folder} has no {' or '.join(names)}. Name the folder of the model: "
        "--input=…."
    )


def read(file: pathlib.Path) -> tuple[Tensors, list[pathlib.Path]]:
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
        return Tensors(_arrays(file), str(file)), [file]
    shape = {"weight_map": {str: str}}
    names = json_files.read(file, shape, "Download it again.")["weight_map"]
    parts = {}
    for part in sorted(set(names.values())):
        if part != pathlib.PurePath(part).name:
            raise _unreadable(file, f"{part!r} is not the name of a file")
        parts[part] = _arrays(find(file.parent, part))
    found = {name: part for part, arrays in parts.items() for name in arrays}
    if found != names or len(found) < sum(map(len, parts.values())):
        different = found.keys() ^ names.keys() or names.keys()
        raise _unreadable(
            file,
            f"its {len(names):,} arrays are not those of its {len(parts):,} "
            f"files, such as {min(map(str, different))}",
        )
    merged = {name: parts[part][name] for name, part in names.items()}
    return Tensors(merged, str(file)), [file, *(file.parent / p for p in parts)]


def _arrays(file):
    is_safetensors = file.suffix == ".safetensors"
    return (_read_safetensors if is_safetensors else read_checkpoint)(file)


def _read_safetensors(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    with extras.needed("importer", "The importer"):
        import safetensors
        import safetensors.tensorflow
    with (
        reading(file),
        safetensors.safe_open(str(file), framework="tf") as opened,
    ):
        names = list(opened.keys())
        for name in names:
            kind = opened.get_slice(name).get_dtype()
            if re.match("F[48]", kind):  # the reader knows no such arrays
                raise errors.UserError(
                    f"{name} in {file} has the type {kind}, of a quantized "
                    "model. Import the model that it was made from."
                )
        return {name: opened.get_tensor(name).numpy() for name in names}


def read_npz(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    """Return {name: array} of a .npz; pickled objects are refused.

    Raises:
        UserError: it cannot be read, or its arrays are far larger than it.
    """
    with reading(file):
        _require_small_zip(file)
        with np.load(file) as opened:
            return dict(opened)


@contextlib.contextmanager
def reading(file: pathlib.Path) -> Iterator[None]:
    """Raise a UserError instead of what a library raises over a file.

    The content of a damaged file, or of a hostile one, makes libraries raise
    errors of any type.
    """
    try:
        yield
    except errors.UserError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise _unreadable(file, reason) from error


def require_size(size: int, files: Sequence[pathlib.Path]) -> None:
    """Refuse arrays that are far larger than their files.

    Trained weights cannot be compressed by much: such files are made to fill
    the memory.

    Args:
        size: bytes of all arrays.
        files: the files that have them.

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
    with extras.needed("pytorch", f"{file.name}, a file of PyTorch,"):
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

    with reading(file):
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

    def __new__(cls, *args: Any) -> "Inert":
        """Ignore the arguments of the class or function that it stands for."""
        return super().__new__(cls)

    def __init__(self, *args: Any):
        self.state: Any = None

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
        return _unreadable(file, "it is no checkpoint of PyTorch, or damaged")
    return errors.UserError(
        f"{file} has Python objects: {', '.join(others[:5])}. They are not "
        "read, because that would run their code. If you trust the file, load "
        "it in the program that wrote it, and save the tensors and settings "
        "without them."
    )


def _unreadable(file, reason):
    return errors.UserError(
        f"The file {file} cannot be read: {reason}. Download it again."
    )
