"""Addresses of servers."""

import re

from t2t_repro import errors

_PORT = re.compile("[0-9]{1,5}")


def parse(server: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT"; the host may be [IPv6].

    Raises:
        UserError: `server` does not have this form.
    """
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    if (
        not host
        or "/" in host
        or not _PORT.fullmatch(port)
        or int(port) > 65_535
    ):
        raise errors.UserError(
            "A server is HOST:PORT, such as 127.0.0.1:8500, without http://; "
            f"got {server!r}."
        )
    return host, int(port)
