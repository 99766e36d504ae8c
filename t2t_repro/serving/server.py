"""The embedded server, which runs both protocols in one event loop."""

import asyncio
import contextlib
import ipaddress
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from aiohttp import web

from t2t_repro import errors
from t2t_repro.serving import rest, rpc
from t2t_repro.serving.service import Service

POLL_SECS = 1.0  # TensorFlow Serving's file_system_poll_wait_seconds
_ERROR_RESPONSE_SECS = 1.0  # time to send errors, after the grace period


class GracePeriodError(Exception):
    """A batch is still in the model at the end of the grace period."""


class Ports(NamedTuple):
    """Ports of a server."""

    rest: int
    grpc: int


async def serve(
    service: Service,
    host: str,
    ports: Ports,
    ready: Callable[[Ports], None],
    grace_secs: float,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in flight.

    A batch that is in the model after the grace period ends with the process,
    whose exit status is then 1: a thread in TensorFlow cannot be stopped.

    Args:
        service: the model and its queues.
        host: address to listen on.
        ports: 0 lets the system choose.
        ready: called with the ports when the server accepts requests.
        grace_secs: seconds for requests in flight.
    """
    try:
        async with running(service, host, ports, grace_secs) as bound:
            stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            ready(bound)
            await stop.wait()
    except GracePeriodError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # exit() would wait for the thread in TensorFlow


@contextlib.asynccontextmanager
async def running(
    service: Service,
    host: str,
    ports: Ports,
    grace_secs: float,
    poll_secs: float = POLL_SECS,
) -> AsyncIterator[Ports]:
    """Run a server inside the context; finish its requests on leaving.

    Args:
        service: the model and its queues.
        host: address to listen on.
        ports: 0 lets the system choose.
        grace_secs: seconds that requests in flight have at the end.
        poll_secs: seconds between checks for a new version.

    Yields:
        The ports in use.

    Raises:
        UserError: there is no model, or a port is in use.
        GracePeriodError: the grace period was too short.
    """
    await service.versions.start()
    runner = web.AppRunner(
        rest.build_application(service),
        access_log=None,
        handler_cancellation=True,  # when the client closes the connection
        shutdown_timeout=grace_secs,
    )
    await runner.setup()
    grpc_server = rpc.build_server(service)
    try:
        listener, bound = await _listen(runner, grpc_server, host, ports)
    except (OSError, RuntimeError) as error:
        await runner.cleanup()
        raise errors.UserError(
            f"Cannot listen on {host}, ports {ports.rest} (REST) and "
            f"{ports.grpc} (gRPC): {error}. Choose others with --rest_port "
            "and --grpc_port."
        ) from error
    watching = asyncio.create_task(service.versions.watch(poll_secs))
    try:
        yield bound
    finally:
        watching.cancel()
        try:
            await asyncio.wait_for(
                _finish(grpc_server, listener, runner, service, grace_secs),
                grace_secs + _ERROR_RESPONSE_SECS,
            )
        except asyncio.TimeoutError:
            raise GracePeriodError(
                f"A batch was in the model after {grace_secs:g} s of grace; "
                "its requests have no answer."
            ) from None


async def _listen(runner, grpc_server, host, ports):
    """Open both ports; return the REST listener and the Ports in use."""
    # aiohttp's own listener cannot stop accepting without being closed.
    listener = await asyncio.get_running_loop().create_server(
        runner.server, host, ports.rest, backlog=128
    )
    try:
        grpc_port = grpc_server.add_insecure_port(
            f"{_bracketed(host)}:{ports.grpc}"
        )
        await grpc_server.start()
    except BaseException:
        listener.close()
        raise
    return listener, Ports(listener.sockets[0].getsockname()[1], grpc_port)


async def _finish(grpc_server, listener, runner, service, grace_secs):
    """Stop accepting requests, and answer those in flight."""
    # When a listener closes, asyncio drops connections that are accepted but
    # not yet passed to a handler: their clients would wait until the grace is
    # over. So stop accepting, let the loop pass them on, and then close.
    for open_socket in listener.sockets:
        asyncio.get_running_loop().remove_reader(open_socket)
    await asyncio.sleep(0)
    listener.close()
    await asyncio.gather(grpc_server.stop(grace_secs), runner.cleanup())
    await service.versions.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bracketed(host):
    """Put an IPv6 address in brackets, as before a port: [::1]."""
    return f"[{host}]" if ":" in host else host
