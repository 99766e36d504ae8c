"""Serve an exported model over REST and gRPC, with a web page.

t2t serve --export_dir=…
"""

import asyncio
import sys

from absl import flags

from t2t_repro import common_flags, errors, flag_types
from t2t_repro.serving import limits

_DEFAULTS = limits.Limits()

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "Folder of an export; the server loads a newer version as soon as the "
    "folder has one.",
)
_HOST = flags.DEFINE_string(
    "host",
    "127.0.0.1",
    "Address to listen on. There is no authentication: on an address other "
    "than loopback, whoever reaches it can use the model.",
)
_REST_PORT = flags.DEFINE_integer(
    "rest_port",
    8501,
    "Port of REST, the page and /metrics; 0: any free port.",
    lower_bound=0,
    upper_bound=65_535,
)
_GRPC_PORT = flags.DEFINE_integer(
    "grpc_port",
    8500,
    "Port of gRPC; 0: any free port.",
    lower_bound=0,
    upper_bound=65_535,
)
_SERVABLE_NAME = flags.DEFINE_string(
    "servable_name", "t2t", "Name of the model in requests."
)
_MAX_BATCH_SIZE = flags.DEFINE_integer(
    "max_batch_size",
    _DEFAULTS.max_batch_size,
    "Maximum number of sentences in a request, and in a batch of requests.",
    lower_bound=1,
)
_MAX_BATCH_BYTES = flags.DEFINE_integer(
    "max_batch_bytes",
    _DEFAULTS.max_batch_bytes,
    "Maximum number of bytes in a request or batch, with each sentence padded "
    "to the longest.",
    lower_bound=1,
)
_BATCH_TIMEOUT_MS = flag_types.define_number(
    "batch_timeout_ms",
    _DEFAULTS.batch_timeout_ms,
    "Milliseconds that a request waits for others to share its batch.",
    lower_bound=0,
    upper_bound=60_000,
)
_MAX_WAITING = flags.DEFINE_integer(
    "max_waiting",
    _DEFAULTS.max_waiting,
    "Maximum number of sentences in the queue; further requests are refused "
    "and may retry.",
    lower_bound=1,
)
_GRACE_SECS = flag_types.define_number(
    "grace_secs",
    20.0,
    "Seconds that requests in flight have to finish after SIGTERM; less than "
    "the 30 after which Kubernetes kills.",
    lower_bound=0,
    upper_bound=86_400,
)


def main() -> None:
    try:
        from t2t_repro.serving import server, service
    except ModuleNotFoundError as error:
        raise errors.UserError(
            f"The server needs {error.name}. pip install 't2t_repro[serve]'."
        ) from error
    host = _HOST.value
    if not server.is_loopback(host):
        print(
            f"{host} is not a loopback address: whoever reaches it can use "
            "this server, which has no authentication.",
            file=sys.stderr,
        )

    if _MAX_WAITING.value < _MAX_BATCH_SIZE.value:
        raise errors.UserError(
            f"A queue of --max_waiting={_MAX_WAITING.value} never has room for "
            f"a request of --max_batch_size={_MAX_BATCH_SIZE.value} sentences. "
            "Raise the one or lower the other."
        )

    def print_addresses(ports):
        print(
            f"Serving {_SERVABLE_NAME.value} of {_EXPORT_DIR.value} on {host}. "
            f"Page, REST and /metrics: port {ports.rest}; gRPC: port "
            f"{ports.grpc}. Ctrl-C or SIGTERM ends it.",
            flush=True,
        )

    model_service = service.Service(
        common_flags.required(_EXPORT_DIR),
        _SERVABLE_NAME.value,
        limits.Limits(
            max_batch_size=_MAX_BATCH_SIZE.value,
            max_batch_bytes=_MAX_BATCH_BYTES.value,
            batch_timeout_ms=_BATCH_TIMEOUT_MS.value,
            max_waiting=_MAX_WAITING.value,
        ),
    )
    ports = server.Ports(_REST_PORT.value, _GRPC_PORT.value)
    asyncio.run(
        server.serve(
            model_service, host, ports, print_addresses, _GRACE_SECS.value
        )
    )


if __name__ == "__main__":
    common_flags.run(main, {"Required": ("export_dir",)})
