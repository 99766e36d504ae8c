"""Files of other systems' models: which there are, and their text."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import yaml

from t2t_repro import errors
from t2t_repro.io import files

# None of these runs code of a file. Scalars stay text, or become values.
_TEXTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_VALUES = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_file(folder: pathlib.Path, *names: str) -> pathlib.Path:
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


def named_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path of a file that another file of a model names.

    It is the path where the model was trained, perhaps on another machine.
    What lies outside of the model's folder is no part of the model, and would
    be shown in errors or become a part of the run.
    """
    path = pathlib.PurePath(name)
    inside = folder / path
    if not path.is_absolute() and ".." not in path.parts:
        if os.path.isfile(inside):
            return inside
    return folder / path.name


def read_json(file: pathlib.Path, shape: Any) -> Any:
    """Call files.read_json() on a file of another program."""
    remedy = "Download or convert the model again."
    return files.read_json(file, shape, remedy)


def read_yaml(file: pathlib.Path, is_text: bool = False) -> dict[str, Any]:
    """Call parse_yaml() on a file."""
    return parse_yaml(files.read_bytes(file), file, is_text)


def parse_yaml(
    content: bytes, file: pathlib.Path | str, is_text: bool = False
) -> dict[str, Any]:
    """Return a mapping of names in YAML.

    Args:
        content: the YAML; of a file .json, the JSON: YAML has no pairs of
            surrogates.
        file: path of the file, for errors.
        is_text: whether all scalars stay text, as of tokens.

    Raises:
        UserError: it cannot be read, or is no such mapping.
    """
    with reading(file):
        if str(file).endswith(".json"):
            parse = str if is_text else None
            values = json.loads(content, parse_int=parse, parse_float=parse)
        else:
            values = yaml.load(content, _TEXTS if is_text else _VALUES)
    if not isinstance(values, dict) or not all(
        isinstance(key, str) for key in values
    ):
        raise errors.UserError(
            f"{file} must have lines `name: value`; got {errors.shown(values)}."
        )
    return values


def read_lines(file: pathlib.Path, newline: str | None = None) -> list[str]:
    """Return the lines of a file in UTF-8, without an empty last one.

    `newline` is that of open(): by "", carriage returns are no line ends.

    Raises:
        UserError: it cannot be read.
    """
    with reading(file), file.open(encoding="utf-8", newline=newline) as opened:
        return opened.read().removesuffix("\n").split("\n")


@contextlib.contextmanager
def reading(file: pathlib.Path | str, kind: str = "") -> Iterator[None]:
    """Raise a UserError instead of what a library raises over a file.

    The content of a damaged file, or of a hostile one, makes libraries raise
    errors of any type.

    `kind` is what it should be, such as "a model of Marian".
    """
    try:
        yield
    except errors.UserError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise unreadable(file, reason, kind) from error


def unreadable(file: Any, reason: Any, kind: str = "") -> errors.UserError:
    """Return the error of a file that is damaged, or of another program."""
    as_it = f" as {kind}" if kind else ""
    return errors.UserError(
        f"The file {file} cannot be read{as_it}: {reason}. Download it again."
    )


class Content:
    """Content of a binary file, taken from its beginning to its end."""

    def __init__(self, file: pathlib.Path):
        """Read the file."""
        self._content = files.read_bytes(file)
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that were not taken."""
        return len(self._content) - self._at

    def take(self, dtype: Any, count: int) -> np.ndarray:
        """Return the next `count` numbers.

        Raises:
            ValueError: the file ends before.
        """
        size = count * np.dtype(dtype).itemsize
        if size > self.left:
            raise ValueError(
                f"it ends within {size:,} bytes that begin at byte {self._at:,}"
            )
        found: np.ndarray = np.frombuffer(self._content, dtype, count, self._at)
        self._at += size
        return found

    def number(self, dtype: Any) -> int:
        """Return the next number, as of take()."""
        return int(self.take(dtype, 1)[0])
