"""Paths of TensorFlow Serving's REST API.

    GET   /v1/models/NAME[/versions/NUMBER | /labels/LABEL][/metadata]
    POST  /v1/models/NAME[/versions/NUMBER | /labels/LABEL]:METHOD

All but METHOD is read without regard to case. NAME and LABEL may be
percent-encoded.
"""

import re
import urllib.parse
from typing import NamedTuple

from t2t_repro.server import request_errors

PREFIX = "/v1/"
HEALTH = "/healthz"  # ours, for load balancers and probes
# TensorFlow Serving's expressions, http_rest_api_util.cc.
_FLAGS = re.ASCII | re.IGNORECASE
_VERSION = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_READ = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{_VERSION}(?:/(?P<method>metadata))?",
    _FLAGS,
)
_RUN = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_VERSION}"
    r":(?P<method>(?-i:classify|regress|predict))",
    _FLAGS,
)
# HEAD, which TensorFlow Serving refuses, is a load balancer's way to GET.
_PATTERNS = {"GET": _READ, "HEAD": _READ, "POST": _RUN}
_MAX_VERSION = 2**63 - 1


class Target(NamedTuple):
    """Method of a model that a request calls."""

    # "status" or "metadata"; "predict", "classify" or "regress".
    method: str
    name: str  # of the model
    version: int | None = None  # None: the newest
    label: str | None = None

    def model(self) -> tuple[str, int | None]:
        """Return the name and the version.

        Raises:
            RequestError: there is a label. Labels need several versions in
                memory, and there is one.
        """
        if self.label is not None:
            raise request_errors.invalid(
                f"Unrecognized servable version label: {self.label}"
            )
        return self.name, self.version


def is_api(path: str) -> bool:
    """Return whether a path belongs to the API, even if it is malformed."""
    return path[: len(PREFIX)].lower() == PREFIX


def parse_path(method: str, path: str) -> Target:
    """Parse the path of a request.

    Args:
        method: of HTTP.
        path: still percent-encoded, and without a query.

    Raises:
        RequestError: the path is malformed.
    """
    pattern = _PATTERNS.get(method)
    match = pattern and pattern.fullmatch(path)
    if not match:
        raise request_errors.invalid(f"Malformed request: {method} {path}")
    version = _version(match["version"])
    if not match["name"]:
        raise request_errors.invalid("Missing model name in request.")
    label = match["label"]
    return Target(
        (match["method"] or "status").lower(),
        urllib.parse.unquote(match["name"]),
        version,
        label and urllib.parse.unquote(label),
    )


def _version(digits):
    if not digits:
        return None
    significant = digits.lstrip("0") or "0"
    # The length: Python refuses to convert thousands of digits.
    if len(significant) > 19 or int(significant) > _MAX_VERSION:
        raise request_errors.invalid(
            f"Failed to convert version: {digits} to numeric."
        )
    return int(significant)
