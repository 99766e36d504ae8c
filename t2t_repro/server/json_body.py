"""Bodies of TensorFlow Serving's REST API: JSON objects, and answers."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from aiohttp import web

from t2t_repro.server import request_errors


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
    content: dict[str, Any]  # the keys that were asked for


def parse(body: bytes, keys: Iterable[str]) -> Body:
    """Parse a body.

    Args:
        body: the body.
        keys: keys to keep. Others are ignored, and may be large.

    Raises:
        RequestError: it is no JSON object, or its signature is no string.
    """
    if not body:
        raise request_errors.invalid("JSON Parse error: The document is empty")
    try:
        content = json.loads(
            body.decode("utf-8-sig"),  # skips a byte order mark
            object_pairs_hook=_first_of_each,
        )
    except (ValueError, RecursionError) as error:
        raise request_errors.invalid(f"JSON Parse error: {error}") from error
    if not isinstance(content, dict):
        raise request_errors.invalid("The request must be a JSON object.")
    signature = content.get("signature_name", "")
    if not isinstance(signature, str):
        raise request_errors.invalid("'signature_name' must be a string.")
    return Body(signature, {k: content[k] for k in keys if k in content})


def _first_of_each(pairs):
    """Return a dict with the first of equal keys."""
    return dict(reversed(pairs))
