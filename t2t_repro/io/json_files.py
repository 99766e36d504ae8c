"""JSON files, with a checksum that reveals damage."""

import hashlib
import json
import pathlib
from typing import Any

from t2t_repro import errors
from t2t_repro.io import files

_CHECKSUM = "sha256_of_the_rest"  # last key of an object
RESTORE = (
    "Restore it from a copy, or make the run or data that it belongs to again."
)


def write(path: pathlib.Path, value: Any, with_checksum: bool = False) -> None:
    """Write indented JSON.

    Args:
        path: path of the file.
        value: any value that JSON has; with a checksum, a dict.
        with_checksum: end the object with its own sha256, which read()
            compares.
    """
    if with_checksum:
        value = value | {_CHECKSUM: checksum(value)}
    files.write_text(path, _text(value))


def read(path: pathlib.Path, shape: Any = object, remedy: str = RESTORE) -> Any:
    """Return the value that write() wrote, without its checksum.

    Args:
        path: path of the file.
        shape: required shape of the value: a type; [shape] for a list;
            {str: shape} for a dict; or {"key": shape, …} for a dict with at
            least these keys.
        remedy: what to do with a file of another content, for errors.

    Raises:
        UserError: the file cannot be read, its value is of another shape, or
            its checksum differs.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except PermissionError as error:
        raise errors.UserError(
            f"The file {path} cannot be read: {error.strerror}. Ask its owner "
            "for access."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(path, error, remedy) from error
    if isinstance(value, dict) and _CHECKSUM in value:
        stored = value.pop(_CHECKSUM)
        if stored != (actual := checksum(value)):
            raise _wrong(
                path,
                f"{_CHECKSUM} is {actual} instead of {stored}",
                f"{remedy} (After a change by hand, remove {_CHECKSUM}.)",
            )
    require_shape(path, value, shape, remedy)
    return value


def require_shape(
    path: pathlib.Path, value: Any, shape: Any, remedy: str = RESTORE
) -> None:
    """Raise a UserError if a value of a file has another shape than `shape`.

    Args:
        path: path of the file.
        value: its content.
        shape: required shape, as of read().
        remedy: as of read().
    """
    if difference := _difference(value, shape):
        raise _wrong(path, difference, remedy)


def _text(value):
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def checksum(value: Any) -> str:
    """Return the sha256 of a value's JSON."""
    text = _text(value).encode("utf-8", "backslashreplace")  # as it is written
    return hashlib.sha256(text).hexdigest()


def _difference(value, shape, path="it"):
    """Describe the first difference of a value from a shape; None if none."""
    kind = shape if isinstance(shape, type) else type(shape)
    wanted = (int, float) if kind is float else kind
    is_bool = type(value) is bool and kind in (int, float)  # to Python, an int
    is_huge = kind is float and type(value) is int and abs(value) > 10**308
    if is_bool or is_huge or not isinstance(value, wanted):
        return f"{path} is {value!r:.80}, where {kind.__name__} belongs"
    if shape is kind:
        return None
    if kind is list:
        items = [(i, item, shape[0]) for i, item in enumerate(value)]
    elif str in shape:
        items = [(key, item, shape[str]) for key, item in value.items()]
    elif missing := shape.keys() - value.keys():
        return f"{path} lacks {', '.join(sorted(missing))}"
    else:
        items = [(key, value[key], expected) for key, expected in shape.items()]
    differences = (
        _difference(item, expected, f"{path}[{key!r}]")
        for key, item, expected in items
    )
    return next(filter(None, differences), None)


def _wrong(path, why, remedy):
    own = remedy.startswith(RESTORE)
    state = "is damaged" if own else "cannot be used"
    return errors.UserError(f"The file {path} {state}: {why}. {remedy}")
