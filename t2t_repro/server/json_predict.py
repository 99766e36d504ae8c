"""TensorFlow Serving's JSON: requests by row or by column, and responses.

    {"instances": ["a", "b"]}                  one input, one row per sentence
    {"instances": [{"inputs": "a"}, …]}        inputs by name
    {"inputs": ["a", "b"]}                     one input, a column
    {"inputs": {"inputs": ["a", "b"]}}         inputs by name

The optional key "signature_name" selects a signature. The response to rows is
{"predictions": [row, …]}, that to columns {"outputs": {name: column}}. If there
is only one output, a row is its value, and the outputs are its column.
"""

import base64
import binascii
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from aiohttp import web

from t2t_repro.server import batching, request_errors
from t2t_repro.serving.requests import Limits

_PIECE_VALUES = 1024  # encoded at once: less than a millisecond


def json_response(value: Any, status: int = 200) -> web.Response:
    """Return an answer in JSON, whose type has no parameter charset."""
    return encoded_response(json.dumps(value).encode(), status)


def encoded_response(body: bytes, status: int = 200) -> web.Response:
    """Return an answer whose JSON has been encoded."""
    return web.Response(
        body=body, status=status, content_type="application/json"
    )


class Body(NamedTuple):
    """Parsed body, of which only the signature is checked."""

    signature: str  # name of the signature; "": the default
    content: dict[str, Any]  # those of predict


def parse(body: bytes) -> Body:
    """Parse the body of a request; `read_inputs` checks its content.

    Keys beside those of predict are ignored, and may be large.

    Raises:
        RequestError: it is no JSON object, or its signature is no string.
    """
    if not body:
        raise request_errors.invalid("JSON Parse error: The document is empty")
    try:
        content = json.loads(
            body.decode("utf-8-sig"),  # skips a byte order mark
            # Of equal keys, the first one counts.
            object_pairs_hook=lambda pairs: dict(reversed(pairs)),
        )
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0]  # without advice on Python
        raise request_errors.invalid(f"JSON Parse error: {reason}") from error
    if not isinstance(content, dict):
        raise request_errors.invalid("The request must be a JSON object.")
    signature = content.get("signature_name", "")
    if not isinstance(signature, str):
        raise request_errors.invalid("'signature_name' must be a string.")
    kept = content.keys() & {"instances", "inputs"}
    return Body(signature, {key: content[key] for key in kept})


def read_inputs(
    content: Mapping[str, Any], specs: batching.Specs, limits: Limits
) -> batching.Inputs:
    """Return the inputs by name; columns may lack optional ones.

    Raises:
        RequestError: the content has none of the forms above, or too many
            sentences.
    """
    if content.keys() >= {"instances", "inputs"}:
        raise request_errors.invalid(
            "Not formatted correctly expecting only one of 'inputs' or "
            "'instances' keys to exist"
        )
    if is_by_row(content):
        columns = _columns_of_rows(content["instances"], specs, limits)
    elif "inputs" in content:
        columns = _columns(content["inputs"], specs)
    else:
        raise request_errors.invalid("Missing 'inputs' or 'instances' key")
    return {
        name: _values(name, columns[name], spec.dtype, limits)
        for name, spec in specs.items()
        if name in columns
    }


def is_by_row(content: Mapping[str, Any]) -> bool:
    """Return whether a request has rows, and so its response."""
    return "instances" in content


def encode_response(outputs: batching.Outputs, by_row: bool) -> Iterator[str]:
    """Yield the response, in the form of the request, in small pieces.

    Python's encoder holds Python's lock; other threads run between two pieces.
    """
    key = "predictions" if by_row else "outputs"
    if len(outputs) == 1:
        (content,) = map(_pieces, outputs.values())
    elif by_row:
        rows = zip(*outputs.values(), strict=True)
        content = _join(
            "[]", (_object(zip(outputs, row, strict=True)) for row in rows)
        )
    else:
        content = _object(outputs.items())
    yield f'{{"{key}": '
    yield from content
    yield "}"


def _object(items):
    """Yield the pieces of an object, from names and arrays or elements."""
    return _join(
        "{}",
        (
            itertools.chain([f"{json.dumps(name)}: "], _pieces(value))
            for name, value in items
        ),
    )


def _pieces(value):
    """Yield the pieces of an array, or of an element of one."""
    if isinstance(value, np.ndarray) and value.size > _PIECE_VALUES:
        yield from _join("[]", map(_pieces, value))
    else:
        yield json.dumps(value, default=_plain)


def _join(brackets, items):
    """Yield the pieces of all items, with commas between items."""
    yield brackets[0]
    for number, item in enumerate(items):
        if number:
            yield ", "
        yield from item
    yield brackets[1]


def _columns_of_rows(rows, specs, limits):
    """Convert rows to columns by name; the first row determines their form."""
    if not isinstance(rows, list):
        raise request_errors.invalid("'instances' must be a list.")
    batching.check_size(rows, limits)
    if not _has_names(rows[0]):
        name = _only(specs)
        for number, row in enumerate(rows):
            if _has_names(row):
                raise request_errors.invalid(
                    f"Expecting value/list but got object at item {number} of "
                    "input list"
                )
        return {name: rows}
    for number, row in enumerate(rows):
        if not _has_names(row):
            raise request_errors.invalid(
                f"Expecting object but got list at item {number} of input list"
            )
        _check_row(row, number, specs)
    return {
        name: [row.get(name, spec.default) for row in rows]
        for name, spec in specs.items()
    }


def _check_row(row, number, specs):
    if unknown := row.keys() - specs.keys():
        key = batching.list_names([min(unknown)])
        raise request_errors.invalid(
            f"Failed to process element: {number} key: {key} of 'instances' "
            "list. Error: INVALID_ARGUMENT: JSON object: does not have named "
            f"input: {key}"
        )
    needed = batching.required(specs)
    if not row.keys() >= set(needed):
        raise request_errors.invalid(
            f"Failed to process element: {number} of 'instances' list. JSON "
            f"object keys must be equal to: {','.join(needed)}"
        )


def _columns(columns, specs):
    if not _has_names(columns):
        return {_only(specs): columns}
    for name in batching.required(specs):
        if name not in columns:
            raise request_errors.invalid(
                f"Missing named input: {name} in 'inputs' object."
            )
    batching.check_names(columns, specs)
    return columns


def _has_names(value):
    """Return whether a value is an object other than {"b64": string}."""
    if not isinstance(value, dict):
        return False
    return value.keys() != {"b64"} or not isinstance(value["b64"], str)


def _only(specs):
    """Return the only required input, which a request need not name."""
    names = batching.required(specs)
    if len(names) != 1:
        raise request_errors.invalid(
            f"The signature has several inputs, name them: {', '.join(names)}."
        )
    return names[0]


def _values(name, column, dtype, limits):
    if not isinstance(column, list):
        kind = batching.KINDS[dtype]
        raise request_errors.invalid(f"{name} must be a list of {kind}.")
    batching.check_size(column, limits)
    convert = _CONVERSIONS[dtype]
    return [convert(f"{name}[{i}]", value) for i, value in enumerate(column)]


def _integer(label, value):
    if type(value) is int and abs(value) < 2**31:
        return value
    raise request_errors.invalid(
        f"{label} must be an integer of 32 bits; got {value!s:.40}."
    )


def _number(label, value):
    if type(value) is float or (type(value) is int and abs(value) < 2**31):
        return float(value)
    raise request_errors.invalid(
        f"{label} must be a number; got {value!s:.40}."
    )


def _text(label, value):
    """Convert a string, or {"b64": base64 of its bytes}, to bytes."""
    try:
        match value:
            case bytes():  # the default of a row
                return value
            case str():
                return value.encode("utf-8")
            case {"b64": str(encoded)} if len(value) == 1:
                padding = "=" * (-len(encoded) % 4)  # may be left out
                return base64.b64decode(encoded + padding, validate=True)
    except binascii.Error as error:
        raise request_errors.invalid(f"{label} is not base64.") from error
    except ValueError as error:  # half a surrogate pair
        raise request_errors.invalid(
            f"{label} is not text: {error}."
        ) from error
    raise request_errors.invalid(
        f"{label} must be a string; got {type(value).__name__}."
    )


_CONVERSIONS = {"string": _text, "int32": _integer, "float32": _number}


def _plain(value):
    """Return an array, an element of one, or a text in bytes for JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.tolist()
