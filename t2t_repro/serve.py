"""Serve an exported model over REST and gRPC, with a web page.

t2t serve --export_dir=…
"""

import asyncio
import sys

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import at_least, at_most, flag
from t2t_repro.io import files, progress, storage
from t2t_repro.serving import connection, requests

_DEFAULTS = requests.Limits()


@common_flags.options
class Options:
    """Options of serve, each a flag of the same name."""

    export_dir: str | None = flag(
        None,
        "Folder of an export; the server loads a newer version as soon as "
        "the folder has one.",
    )
    host: str = flag(
        "127.0.0.1",
        "Address to listen on. On an address other than loopback, whoever "
        "reaches it can use the model, unless there is a --token_file.",
    )
    rest_port: int = flag(
        8501,
        "Port of REST, the page and /metrics; 0: any free port.",
        at_least(0),
        at_most(65_535),
    )
    grpc_port: int = flag(
        8500, "Port of gRPC; 0: any free port.", at_least(0), at_most(65_535)
    )
    health_port: int | None = flag(
        None,
        "Port of a second /healthz, always on 127.0.0.1 and without TLS; "
        "0: any free port. By default REST alone has this path.",
        at_least(0),
        at_most(65_535),
    )
    grpc_channel_arguments: common_flags.List = flag(
        (), "Options of gRPC: grpc.max_connection_age_ms=60000 balances load."
    )
    servable_name: str = flag("t2t", "Name of the model in requests.")
    max_batch_size: int = flag(
        _DEFAULTS.max_batch_size,
        "Maximum number of sentences in a request, and in a batch of requests.",
        at_least(1),
    )
    max_batch_bytes: int = flag(
        _DEFAULTS.max_batch_bytes,
        "Maximum number of bytes in a request or batch, with each "
        "sentence padded to the longest.",
        at_least(1),
        at_most(2**63 - 1),
    )
    batch_timeout_ms: float = flag(
        _DEFAULTS.batch_timeout_ms,
        "Milliseconds that a request waits for others to share its batch.",
        at_least(0),
        at_most(60_000),
    )
    max_waiting: int = flag(
        _DEFAULTS.max_waiting,
        "Maximum number of sentences in the queue; further requests are "
        "refused and may retry.",
        at_least(1),
    )
    max_connections: int = flag(
        _DEFAULTS.max_connections,
        "Maximum number of connections of each protocol, and of calls of gRPC "
        "in flight. Fewer are accepted if the limit of open files is too low.",
        at_least(1),
    )
    rest_api_timeout_in_ms: int = flag(
        int(_DEFAULTS.timeout_secs * 1000),
        "Milliseconds that a request may take, if it does not set a deadline.",
        at_least(1),
    )
    file_system_poll_wait_seconds: int = flag(
        1, "Seconds between looks for a new version.", at_least(1)
    )
    max_num_load_retries: int = flag(
        5,
        "How often the load of a version is repeated if it fails.",
        at_least(0),
    )
    load_retry_interval_micros: int = flag(
        60_000_000,
        "Microseconds between two attempts to load a version.",
        at_least(0),
        at_most(2**63 - 1),
    )
    load_timeout_secs: float = flag(
        _DEFAULTS.load_secs,
        "Seconds that the load of a version may take; then its process is "
        "killed.",
        at_least(1),
        at_most(86_400),
    )
    allowed_hosts: common_flags.List = flag(
        (),
        "Names that REST requests may have in their header Host; on a "
        "loopback address, by default, only its own names.",
    )
    rest_api_enable_cors_support: bool = flag(
        False, "Answer requests that pages of other origins send."
    )
    token_file: str | None = flag(
        None,
        "File of tokens, one a line; each request must have one of them, "
        "as Authorization: Bearer TOKEN.",
    )
    tls_certificate: str | None = flag(
        None, "Certificate (PEM) with its chain: HTTPS, and gRPC with TLS."
    )
    tls_key: str | None = flag(None, "Key of --tls_certificate.")
    tls_client_ca: str | None = flag(
        None,
        "Certificates (PEM) of the authorities that sign client "
        "certificates, which are then required.",
    )
    grace_secs: float = flag(
        20.0,
        "Seconds that requests in flight have to finish after SIGTERM; "
        "less than the 30 after which Kubernetes kills.",
        at_least(0),
        at_most(86_400),
    )

    def __post_init__(self) -> None:
        if not self.servable_name:
            raise errors.UserError(
                "--servable_name is empty, and requests name the model. Omit "
                "it, or give a name."
            )
        if self.rest_port and self.rest_port == self.grpc_port:
            raise errors.UserError(
                f"--rest_port and --grpc_port (alias --port) are both "
                f"{self.rest_port}. Name two ports."
            )
        if self.health_port and self.health_port in (
            self.rest_port,
            self.grpc_port,
        ):
            raise errors.UserError(
                f"--health_port={self.health_port} is the port of requests, "
                "too. Name another."
            )
        if self.max_waiting < self.max_batch_size:
            raise errors.UserError(
                f"A queue of --max_waiting={self.max_waiting} never has room "
                f"for a request of --max_batch_size={self.max_batch_size} "
                "sentences. Raise the one or lower the other."
            )
        if urls := [name for name in self.allowed_hosts if "/" in name]:
            raise errors.UserError(
                "--allowed_hosts takes names of hosts, such as mt.example.org; "
                f"got {urls[0]!r}."
            )
        certificate, key, _ = self.tls_paths
        if any(self.tls_paths) and not (certificate and key):
            raise errors.UserError(
                "TLS needs both --tls_certificate and --tls_key; got "
                f"{certificate or 'no certificate'} and {key or 'no key'}."
            )

    @property
    def tls_paths(self) -> tuple[str | None, ...]:
        """Paths of certificate and key, and of the clients' authority."""
        return self.tls_certificate, self.tls_key, self.tls_client_ca

    @property
    def request_limits(self) -> requests.Limits:
        """The limits of requests."""
        return requests.Limits(
            max_batch_size=self.max_batch_size,
            max_batch_bytes=self.max_batch_bytes,
            batch_timeout_ms=self.batch_timeout_ms,
            max_waiting=self.max_waiting,
            timeout_secs=self.rest_api_timeout_in_ms / 1000,
            load_secs=self.load_timeout_secs,
            max_connections=self.max_connections,
        )


# Names of TensorFlow Serving.
flags.DEFINE_alias("model_base_path", "export_dir")
flags.DEFINE_alias("rest_api_port", "rest_port")
flags.DEFINE_alias("port", "grpc_port")
flags.DEFINE_alias("model_name", "servable_name")


def main() -> None:
    options = common_flags.field_values(Options)
    with errors.needed("serve", "The server"):
        from t2t_repro.server import (
            monitoring,
            server,
            service,
            version_process,
            versions,
        )
        from t2t_repro.serving import version_folders
    # First, since s3fs and gcsfs start threads.
    forks = version_process.start_fork_server()
    export_dir = version_folders.open_folder(
        common_flags.required("export_dir")
    )
    if url := storage.url_of(export_dir):
        print(
            f"The newest version of {url} is copied now. A later version is "
            "served after a restart.",
            file=sys.stderr,
        )
    monitoring.start_log()
    settings = _settings(options)

    def print_addresses(ports):
        health = ""
        if ports.health is not None:
            health = f" Health checks: port {ports.health}."
        print(
            f"Serving {options.servable_name} of {options.export_dir} on "
            f"{options.host}. Page, REST and /metrics: port {ports.rest}; "
            f"gRPC: port {ports.grpc}.{health} Ctrl-C or SIGTERM ends it.",
            flush=True,
        )

    model_service = service.Service(
        export_dir,
        options.servable_name,
        options.request_limits,
        forks,
        versions.Retries(
            options.max_num_load_retries,
            options.load_retry_interval_micros / 1e6,
        ),
    )
    with progress.outliving_screen():
        asyncio.run(server.serve(model_service, settings, print_addresses))


def _settings(options):
    """Return the settings of the server; warn if anybody may use it."""
    from t2t_repro.server import server_settings

    host, hosts = options.host, set(options.allowed_hosts)
    tokens, tls = (), None
    if options.token_file:
        tokens = connection.read_tokens(options.token_file)
    if server_settings.is_loopback(host):
        hosts |= {host, *server_settings.LOOPBACK_NAMES}
    elif not tokens and not options.tls_client_ca:
        print(
            f"{host} is not a loopback address: whoever reaches it can use "
            "this server. --token_file or --tls_client_ca restricts it.",
            file=sys.stderr,
        )
    if options.tls_certificate:
        paths = (path and files.expand_path(path) for path in options.tls_paths)
        tls = server_settings.Tls(*paths)
    return server_settings.Settings(
        host,
        server_settings.Ports(
            options.rest_port, options.grpc_port, options.health_port
        ),
        options.grace_secs,
        options.file_system_poll_wait_seconds,
        server_settings.Access(
            frozenset(map(server_settings.host_name, hosts)),
            options.rest_api_enable_cors_support,
            tokens,
        ),
        tls,
        server_settings.parse_grpc_options(options.grpc_channel_arguments),
    )


if __name__ == "__main__":
    command_line.run(main, {"Required": ("export_dir",)})
