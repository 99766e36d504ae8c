"""The embedded server: both protocols in one event loop, until it is told."""

import asyncio
import contextlib
import ipaddress
import signal
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from aiohttp import web

from t2t_repro import errors
from t2t_repro.serving import rest, rpc, service

POLL_SECS = 1.0  # TensorFlow Serving's file_system_poll_wait_seconds
_GRACE_SECS = 30.0  # that requests in flight have when the server stops


class Ports(NamedTuple):
    """Where a server listens."""

    rest: int
    grpc: int


async def serve(
    served: service.Service,
    host: str,
    ports: Ports,
    ready: Callable[[Ports], None],
):
    """Serves until SIGTERM or SIGINT, and then what is in flight.

    Args:
        served, host, ports: as of `running`.
        ready: called with the ports when requests are taken.
    """
    async with running(served, host, ports) as bound:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        ready(bound)
        await stop.wait()


@contextlib.asynccontextmanager
async def running(
    served: service.Service,
    host: str,
    ports: Ports,
    poll_secs: float = POLL_SECS,
) -> AsyncIterator[Ports]:
    """A server that takes requests within, and answers them all before it ends.

    Args:
        served: what to serve.
        host: address to listen on.
        ports: 0 lets the system choose.
        poll_secs: between looks for a new version.

    Yields:
        Ports as they are.

    Raises:
        UserError: no model, or a port that is taken.
    """
    await served.versions.start()
    runner = web.AppRunner(
        rest.application(served),
        access_log=None,
        handler_cancellation=True,  # who has hung up wants no answer
        shutdown_timeout=_GRACE_SECS,
    )
    await runner.setup()
    grpc_server = rpc.server(served)
    try:
        await web.TCPSite(runner, host, ports.rest).start()
        rest_port = runner.addresses[0][1]
        grpc_port = grpc_server.add_insecure_port(
            f"{_literal(host)}:{ports.grpc}"
        )
        await grpc_server.start()
    except (OSError, RuntimeError) as error:
        await runner.cleanup()
        raise errors.UserError(
            f"Cannot listen on {host}, ports {ports.rest} (REST) and "
            f"{ports.grpc} (gRPC): {error}. Name others with --rest_port and "
            "--grpc_port."
        ) from error
    watching = asyncio.create_task(served.versions.watch(poll_secs))
    try:
        yield Ports(rest_port, grpc_port)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await asyncio.gather(grpc_server.stop(_GRACE_SECS), runner.cleanup())
        await served.versions.close()


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _literal(host):
    """As an address stands before a port: ::1 in brackets."""
    return f"[{host}]" if ":" in host else host
