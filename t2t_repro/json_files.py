"""JSON files that can tell their own damage."""

import hashlib
import json
import pathlib

from t2t_repro import errors, files

_SEAL = "sha256_of_the_rest"  # the last key of an object that is sealed


def write(path: pathlib.Path, value, sealed: bool = False):
    """Writes indented JSON.

    Args:
        path: of the file.
        value: what it is to hold.
        sealed: end an object with its own sha256, which read() compares.
    """
    seal = {_SEAL: _seal(value)} if sealed else {}
    files.write_text(path, _text(value | seal if sealed else value))


def read(path: pathlib.Path, shape=object):
    """The value that write() wrote, without its seal.

    Args:
        path: of the file.
        shape: what the value must be: a type; [shape], a list of such;
            {str: shape}, a dict of such; or {"key": shape, …}, a dict with at
            least these keys.

    Raises:
        UserError: the file cannot be read, has no such value, or a seal of
            another one.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if isinstance(value, dict) and _SEAL in value:
        seal = value.pop(_SEAL)
        if seal != (found := _seal(value)):
            raise _damaged(path, f"{_SEAL} is {found} instead of {seal}")
    if fault := _misfit(value, shape):
        raise _damaged(path, fault)
    return value


def _text(value):
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _seal(value):
    text = _text(value).encode("utf-8", "backslashreplace")  # as it is written
    return hashlib.sha256(text).hexdigest()


def _misfit(value, shape, place="it"):
    """Where a value is not of a shape, in words, or None."""
    kind = shape if isinstance(shape, type) else type(shape)
    wanted = (int, float) if kind is float else kind
    is_bool = type(value) is bool and kind in (int, float)  # to Python, an int
    if is_bool or not isinstance(value, wanted):
        return f"{place} is {value!r:.80}, where {kind.__name__} belongs"
    if shape is kind:
        return None
    if kind is list:
        parts = [(i, one, shape[0]) for i, one in enumerate(value)]
    elif str in shape:
        parts = [(key, one, shape[str]) for key, one in value.items()]
    elif missing := shape.keys() - value.keys():
        return f"{place} lacks {', '.join(sorted(missing))}"
    else:
        parts = [(key, value[key], one) for key, one in shape.items()]
    faults = (
        _misfit(one, like, f"{place}[{key!r}]") for key, one, like in parts
    )
    return next(filter(None, faults), None)


def _damaged(path, why):
    return errors.UserError(
        f"The file {path} is damaged: {why}. Bring it back from a copy, or "
        "make what it belongs to anew. (Whoever has changed it by hand removes "
        f"{_SEAL}.)"
    )
