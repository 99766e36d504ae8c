"""Files of models, and readers of weights: safetensors, PyTorch, npz."""

import argparse
import pathlib
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_repro import errors, extras
from t2t_repro.importing.tensors import Tensors


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


def read(file: pathlib.Path) -> Tensors:
    """Read weights in a .safetensors; in any other file, PyTorch's.

    Raises:
        UserError: it cannot be read, or needs a package that is missing.
    """
    is_safetensors = file.suffix == ".safetensors"
    reader = _read_safetensors if is_safetensors else _read_pytorch
    return Tensors(reader(file), str(file))


def _read_safetensors(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    with extras.needed("importer", "The importer"):
        import safetensors
        import safetensors.tensorflow
    try:
        with safetensors.safe_open(str(file), framework="tf") as opened:
            return {
                name: opened.get_tensor(name).numpy() for name in opened.keys()
            }
    except (OSError, safetensors.SafetensorError) as error:
        raise _unreadable(file, error) from error


def read_npz(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    """Return {name: array} of a .npz; pickled objects are refused."""
    try:
        with np.load(file) as opened:
            return dict(opened)
    # The last two are zipfile's, of damaged headers.
    except (
        OSError,
        ValueError,
        EOFError,
        TypeError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise _unreadable(file, error) from error


def _read_pytorch(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    """Read a state of tensors; a pickle with other objects is refused."""
    state = read_checkpoint(file)
    return {k: v for k, v in state.items() if isinstance(v, np.ndarray)}


def read_checkpoint(file: pathlib.Path) -> dict[str, Any]:
    """Read a checkpoint of PyTorch with settings beside the tensors.

    A pickle may have what PyTorch's safe loader knows, and
    argparse.Namespace, which has no code of its own. Tensors become arrays,
    and namespaces dicts.

    Raises:
        UserError: it cannot be read, has other objects, or needs a package
            that is missing.
    """
    with extras.needed("pytorch", f"{file.name}, a file of PyTorch,"):
        import torch
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            state = torch.load(str(file), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types
        raise _unreadable(file, error) from error

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.detach()
            return (
                value.float() if value.is_floating_point() else value
            ).numpy()
        if isinstance(value, argparse.Namespace):
            value = vars(value)
        if isinstance(value, Mapping):
            return {key: convert(item) for key, item in value.items()}
        return value

    if not isinstance(state, dict):
        raise _unreadable(file, f"it has a {type(state).__name__}")
    return convert(state)


def _unreadable(file, error):
    return errors.UserError(
        f"The file {file} cannot be read: {error}. Download it again."
    )
