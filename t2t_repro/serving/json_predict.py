"""TensorFlow Serving's JSON: requests by row or by column, and responses.

    {"instances": ["a", "b"]}                  one input, one row per sentence
    {"instances": [{"inputs": "a"}, …]}        inputs by name
    {"inputs": ["a", "b"]}                     one input, a column
    {"inputs": {"inputs": ["a", "b"]}}         inputs by name

The optional key "signature_name" selects a signature. The response to rows is
{"predictions": [row, …]}, that to columns {"outputs": {name: column}}.
"""

import base64
import json
from typing import Any, NamedTuple

from t2t_repro.serving import batching, request_errors


class Request(NamedTuple):
    """A parsed request whose inputs are not yet checked with a signature."""

    signature: str  # "" is the default
    by_row: bool  # "instances"
    content: Any  # value of "instances" or "inputs"

    def inputs(self, names: list[str]) -> batching.Inputs:
        """Return the inputs by name.

        Args:
            names: names of the signature's inputs.

        Raises:
            RequestError: the content has none of the forms above.
        """
        content = self.content
        if self.by_row:
            content = _columns(content, names)
        elif not isinstance(content, dict):
            content = {_only(names): content}
        return {name: _texts(name, column) for name, column in content.items()}


def parse(body: bytes) -> Request:
    """Parse the body of a request.

    Raises:
        RequestError: it is not JSON, or not a request.
    """
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise request_errors.invalid(f"JSON Parse error: {error}") from error
    if not isinstance(value, dict):
        raise request_errors.invalid("The request must be a JSON object.")
    signature = value.get("signature_name", "")
    if not isinstance(signature, str):
        raise request_errors.invalid("'signature_name' must be a string.")
    keys = {"instances", "inputs"} & set(value)
    if len(keys) != 1:
        raise request_errors.invalid(
            "The request must have one of the keys 'instances' and 'inputs'."
        )
    (key,) = keys
    return Request(signature, key == "instances", value[key])


def build_response(outputs: batching.Outputs, by_row: bool) -> dict:
    """Build the response, in the form of the request."""
    columns = {name: _plain(array.tolist()) for name, array in outputs.items()}
    if not by_row:
        return {"outputs": columns}
    rows = zip(*columns.values(), strict=True)
    return {
        "predictions": [dict(zip(columns, row, strict=True)) for row in rows]
    }


def _columns(rows, names):
    """Convert rows to columns by name."""
    if not isinstance(rows, list):
        raise request_errors.invalid("'instances' must be a list.")
    by_name = [
        row
        if isinstance(row, dict) and set(row) != {"b64"}
        else {_only(names): row}
        for row in rows
    ]
    keys = set(by_name[0]) if by_name else set(names)
    if any(set(row) != keys for row in by_name):
        raise request_errors.invalid(
            "'instances' must all have the same inputs."
        )
    return {key: [row[key] for row in by_name] for key in keys}


def _only(names):
    """Return the name of the only input, which a request need not name."""
    if len(names) != 1:
        raise request_errors.invalid(
            f"The signature has several inputs, name them: {', '.join(names)}."
        )
    return names[0]


def _texts(name, column):
    if not isinstance(column, list):
        raise request_errors.invalid(f"{name} must be a list of strings.")
    return [_text(f"{name}[{i}]", value) for i, value in enumerate(column)]


def _text(label, value):
    """Convert a string, or {"b64": base64 of its bytes}, to bytes."""
    try:
        match value:
            case str():
                return value.encode("utf-8")
            case {"b64": str(encoded)} if len(value) == 1:
                return base64.b64decode(encoded, validate=True)
    except ValueError as error:  # half a surrogate pair, or not base64
        raise request_errors.invalid(
            f"{label} is not text: {error}."
        ) from error
    raise request_errors.invalid(
        f"{label} must be a string; got {type(value).__name__}."
    )


def _plain(value):
    """Convert the bytes of nested lists to strings."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode("utf-8", "replace") if type(value) is bytes else value
