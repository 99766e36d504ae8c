"""Serve an exported model over REST and gRPC, with a web page.

t2t serve --export_dir=…
"""

import asyncio
import sys

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import extras, files, progress, storage
from t2t_repro.serving import connection, limits

_DEFAULTS = limits.Limits()

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "Folder of an export; the server loads a newer version as soon as the "
    "folder has one.",
)
flags.DEFINE_alias("model_base_path", "export_dir")
_HOST = flags.DEFINE_string(
    "host",
    "127.0.0.1",
    "Address to listen on. On an address other than loopback, whoever reaches "
    "it can use the model, unless there is a --token_file.",
)
_REST_PORT = flags.DEFINE_integer(
    "rest_port",
    8501,
    "Port of REST, the page and /metrics; 0: any free port.",
    lower_bound=0,
    upper_bound=65_535,
)
flags.DEFINE_alias("rest_api_port", "rest_port")
_GRPC_PORT = flags.DEFINE_integer(
    "grpc_port",
    8500,
    "Port of gRPC; 0: any free port.",
    lower_bound=0,
    upper_bound=65_535,
)
flags.DEFINE_alias("port", "grpc_port")
_HEALTH_PORT = flags.DEFINE_integer(
    "health_port",
    None,
    "Port of a second /healthz, always on 127.0.0.1 and without TLS; 0: any "
    "free port. By default REST alone has this path.",
    lower_bound=0,
    upper_bound=65_535,
)
_GRPC_OPTIONS = common_flags.define_list(
    "grpc_channel_arguments",
    "Options of gRPC: grpc.max_connection_age_ms=60000 balances load.",
)
_SERVABLE_NAME = flags.DEFINE_string(
    "servable_name", "t2t", "Name of the model in requests."
)
flags.DEFINE_alias("model_name", "servable_name")
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
_BATCH_TIMEOUT_MS = common_flags.define_number(
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
_MAX_CONNECTIONS = flags.DEFINE_integer(
    "max_connections",
    _DEFAULTS.max_connections,
    "Maximum number of connections, and of requests in flight, of each "
    "protocol. Fewer are accepted if the limit of open files is too low.",
    lower_bound=1,
)
_TIMEOUT_MS = flags.DEFINE_integer(
    "rest_api_timeout_in_ms",
    int(_DEFAULTS.timeout_secs * 1000),
    "Milliseconds that a request may take, if it does not set a deadline.",
    lower_bound=1,
)
_POLL_SECS = flags.DEFINE_integer(
    "file_system_poll_wait_seconds",
    1,
    "Seconds between looks for a new version.",
    lower_bound=1,
)
_RETRIES = flags.DEFINE_integer(
    "max_num_load_retries",
    5,
    "How often the load of a version is repeated if it fails.",
    lower_bound=0,
)
_RETRY_MICROS = flags.DEFINE_integer(
    "load_retry_interval_micros",
    60_000_000,
    "Microseconds between two attempts to load a version.",
    lower_bound=0,
)
_LOAD_SECS = common_flags.define_number(
    "load_timeout_secs",
    _DEFAULTS.load_secs,
    "Seconds that the load of a version may take; then its process is killed.",
    lower_bound=1,
    upper_bound=86_400,
)
_ALLOWED_HOSTS = common_flags.define_list(
    "allowed_hosts",
    "Names that REST requests may have in their header Host; on a loopback "
    "address, by default, only its own names.",
)
_CORS = flags.DEFINE_bool(
    "rest_api_enable_cors_support",
    False,
    "Answer requests that pages of other origins send.",
)
_TOKEN_FILE = flags.DEFINE_string(
    "token_file",
    None,
    "File of tokens, one a line; each request must have one of them, as "
    "Authorization: Bearer TOKEN.",
)
_TLS_CERTIFICATE = flags.DEFINE_string(
    "tls_certificate",
    None,
    "Certificate (PEM) with its chain: HTTPS, and gRPC with TLS.",
)
_TLS_KEY = flags.DEFINE_string("tls_key", None, "Key of --tls_certificate.")
_TLS_CLIENT_CA = flags.DEFINE_string(
    "tls_client_ca",
    None,
    "Certificates (PEM) of the authorities that sign client certificates, "
    "which are then required.",
)
_GRACE_SECS = common_flags.define_number(
    "grace_secs",
    20.0,
    "Seconds that requests in flight have to finish after SIGTERM; less than "
    "the 30 after which Kubernetes kills.",
    lower_bound=0,
    upper_bound=86_400,
)


def main() -> None:
    _check_ports()
    with extras.needed("serve", "The server"):
        from t2t_repro.server import (
            monitoring,
            server,
            server_settings,
            service,
            version_process,
            versions,
        )
        from t2t_repro.serving import version_folders
    request_limits = _limits()
    # First, since s3fs and gcsfs start threads.
    forks = version_process.start_fork_server()
    export_dir = version_folders.open_folder(common_flags.required(_EXPORT_DIR))
    if url := storage.url_of(export_dir):
        print(
            f"The newest version of {url} is copied now. A later version is "
            "served after a restart.",
            file=sys.stderr,
        )
    monitoring.start_log()
    settings = _settings(server_settings)

    def print_addresses(ports):
        print(
            f"Serving {_SERVABLE_NAME.value} of {_EXPORT_DIR.value} on "
            f"{_HOST.value}. Page, REST and /metrics: port {ports.rest}; gRPC: "
            f"port {ports.grpc}. Ctrl-C or SIGTERM ends it.",
            flush=True,
        )

    model_service = service.Service(
        export_dir,
        _SERVABLE_NAME.value,
        request_limits,
        forks,
        versions.Retries(_RETRIES.value, _RETRY_MICROS.value / 1e6),
    )
    with progress.outliving_screen():
        asyncio.run(server.serve(model_service, settings, print_addresses))


def _limits():
    """Return the limits of requests that the flags set."""
    if _MAX_WAITING.value < _MAX_BATCH_SIZE.value:
        raise errors.UserError(
            f"A queue of --max_waiting={_MAX_WAITING.value} never has room for "
            f"a request of --max_batch_size={_MAX_BATCH_SIZE.value} sentences. "
            "Raise the one or lower the other."
        )
    return limits.Limits(
        max_batch_size=_MAX_BATCH_SIZE.value,
        max_batch_bytes=_MAX_BATCH_BYTES.value,
        batch_timeout_ms=_BATCH_TIMEOUT_MS.value,
        max_waiting=_MAX_WAITING.value,
        timeout_secs=_TIMEOUT_MS.value / 1000,
        load_secs=_LOAD_SECS.value,
        max_connections=_MAX_CONNECTIONS.value,
        max_in_flight=_MAX_CONNECTIONS.value,
    )


def _check_ports():
    if _REST_PORT.value and _REST_PORT.value == _GRPC_PORT.value:
        raise errors.UserError(
            f"--rest_port and --grpc_port (alias --port) are both "
            f"{_REST_PORT.value}. Name two ports."
        )


def _settings(server_settings):
    """Return the settings of the server that the flags set."""
    return server_settings.Settings(
        _HOST.value,
        server_settings.Ports(
            _REST_PORT.value, _GRPC_PORT.value, _HEALTH_PORT.value
        ),
        _GRACE_SECS.value,
        _POLL_SECS.value,
        _access(),
        _tls(server_settings),
        server_settings.parse_grpc_options(_GRPC_OPTIONS.value),
    )


def _access():
    """Return who may send requests, and warn if that is anybody."""
    from t2t_repro.server import server_settings

    host, hosts = _HOST.value, set(_ALLOWED_HOSTS.value)
    tokens = ()
    if _TOKEN_FILE.value:
        tokens = connection.read_tokens(_TOKEN_FILE.value)
    if server_settings.is_loopback(host):
        hosts |= {host, *server_settings.LOOPBACK_NAMES}
    elif not tokens and not _TLS_CLIENT_CA.value:
        print(
            f"{host} is not a loopback address: whoever reaches it can use "
            "this server. --token_file or --tls_client_ca restricts it.",
            file=sys.stderr,
        )
    return server_settings.Access(
        frozenset(name.lower() for name in hosts), _CORS.value, tokens
    )


def _tls(server_settings):
    """Return the certificates that the flags name, or None."""
    if not (_TLS_CERTIFICATE.value or _TLS_KEY.value or _TLS_CLIENT_CA.value):
        return None
    if not (_TLS_CERTIFICATE.value and _TLS_KEY.value):
        raise errors.UserError(
            "TLS needs both --tls_certificate and --tls_key; got "
            f"{_TLS_CERTIFICATE.value or 'no certificate'} and "
            f"{_TLS_KEY.value or 'no key'}."
        )
    paths = (_TLS_CERTIFICATE, _TLS_KEY, _TLS_CLIENT_CA)
    return server_settings.Tls(
        *(flag.value and files.expand_path(flag.value) for flag in paths)
    )


if __name__ == "__main__":
    command_line.run(main, {"Required": ("export_dir",)})
