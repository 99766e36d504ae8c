"""Arrays of another system's file, by name, of which none may be left over."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors

_FLOATS = "float32", "float16", "float64", "bfloat16"


class Tensors:
    """Arrays of a file, taken one by one."""

    def __init__(self, arrays: Mapping[str, Any], file: str):
        """Store the arrays.

        Args:
            arrays: {name: array}, read from the file when they are taken;
                other values are refused then.
            file: path of the file, for errors.
        """
        if unnamed := [name for name in arrays if not isinstance(name, str)]:
            raise errors.UserError(
                f"The weights in {file} must have names; got "
                f"{errors.shown(unnamed[0])}."
            )
        self._arrays = arrays
        self._file = file
        self._left = set(arrays)

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
            *shape: expected sizes; -1: any. None at all: any shape.

        Raises:
            UserError: it is missing, has another shape, or is not of floats.
        """
        if name not in self._arrays:
            raise errors.UserError(
                f"{self._file} has no array {name}. It has "
                f"{len(self._arrays):,}: "
                f"{', '.join(sorted(self._arrays)[:5])}, …"
            )
        self._left.discard(name)
        array = self._arrays[name]
        if not isinstance(array, np.ndarray):
            raise errors.UserError(
                f"{name} in {self._file} must be an array; got a "
                f"{type(array).__name__}."
            )
        if array.dtype.name not in _FLOATS:
            raise errors.UserError(
                f"{name} in {self._file} must be of floats; got "
                f"{array.dtype.name}: a quantized model. Import the model that "
                "it was made from."
            )
        if shape and not (
            len(shape) == array.ndim
            and all(
                expected in (-1, size)
                for expected, size in zip(shape, array.shape, strict=True)
            )
        ):
            wanted = ", ".join("any" if n < 0 else str(n) for n in shape)
            raise errors.UserError(
                f"{name} in {self._file} must have the shape [{wanted}]; got "
                f"{list(array.shape)}."
            )
        return array.astype(np.float32)

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
        rest = sorted(
            name
            for name in self._left
            if not any(re.fullmatch(pattern, name) for pattern in ignored)
        )
        if rest:
            more = f" and {len(rest) - 5} more" if rest[5:] else ""
            raise errors.UserError(
                f"{self._file} has arrays that no hparam of the Transformer "
                f"stands for: {', '.join(rest[:5])}{more}. Such a model cannot "
                "be imported."
            )
        return tuple(sorted(self._left))
