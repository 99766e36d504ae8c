"""Readers of weights' files: safetensors, PyTorch, npz."""

import argparse
import pathlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors, extras, files
from t2t_repro.importing.tensors import Tensors
from t2t_repro.text import mapped_sentence_piece
from t2t_repro.text.mapped_sentence_piece import MappedModel
from t2t_repro.text.token_lists import Special


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
    """Read a file of weights, by its ending.

    Raises:
        UserError: it cannot be read, or needs a package that is missing.
    """
    readers = {
        ".safetensors": _read_safetensors,
        ".npz": read_npz,
        ".bin": _read_pytorch,
        ".pt": _read_pytorch,
    }
    reader = readers[file.suffix]
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


def map_ids(
    spm: pathlib.Path,
    tokens: Sequence[str],
    special: Special,
    vocabulary: pathlib.Path,
) -> MappedModel:
    """Call mapped_sentence_piece.map_ids() on files, named in errors.

    Args:
        spm: file of a SentencePiece model.
        tokens: tokens by their ids.
        special: names of special tokens.
        vocabulary: file of the tokens.
    """
    return _map(
        spm,
        lambda model: mapped_sentence_piece.map_ids(model, tokens, special),
        f"{spm} with {vocabulary}",
    )


def keep_ids(spm: pathlib.Path) -> MappedModel:
    """Call mapped_sentence_piece.keep_ids() on a file, named in errors."""
    return _map(spm, mapped_sentence_piece.keep_ids, str(spm))


def _map(spm, function, names):
    model = files.read_bytes(spm)
    try:
        return function(model)
    except errors.UserError as error:
        raise errors.UserError(f"Cannot use {names}. {error}") from error


def _unreadable(file, error):
    return errors.UserError(
        f"The file {file} cannot be read: {error}. Download it again."
    )
