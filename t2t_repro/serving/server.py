"""The embedded server: both protocols in one event loop, until it is told."""

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
from t2t_repro.serving import rest, rpc, service

POLL_SECS = 1.0  # TensorFlow Serving's file_system_poll_wait_seconds
_FAREWELL_SECS = 1.0  # for telling clients that they get no answer


class Unfinished(Exception):
    """A batch is still in the model when a server has to end."""


class Ports(NamedTuple):
    """Where a server listens."""

    rest: int
    grpc: int


async def serve(
    served: service.Service,
    host: str,
    ports: Ports,
    ready: Callable[[Ports], None],
    grace_secs: float,
):
    """Serves until SIGTERM or SIGINT, and then what is in flight.

    What is in the model after the grace ends with the process, whose exit
    status is 1 then: a thread within TensorFlow cannot be told to stop.

    Args:
        served, host, ports, grace_secs: as of `running`.
        ready: called with the ports when requests are taken.
    """
    try:
        async with running(served, host, ports, grace_secs) as bound:
            stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            ready(bound)
            await stop.wait()
    except Unfinished as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # exit() would wait for that thread


@contextlib.asynccontextmanager
async def running(
    served: service.Service,
    host: str,
    ports: Ports,
    grace_secs: float,
    poll_secs: float = POLL_SECS,
) -> AsyncIterator[Ports]:
    """A server that takes requests within, and answers them before it ends.

    Args:
        served: what to serve.
        host: address to listen on.
        ports: 0 lets the system choose.
        grace_secs: that requests in flight have for their answers at the end.
        poll_secs: between looks for a new version.

    Yields:
        Ports as they are.

    Raises:
        UserError: no model, or a port that is taken.
        Unfinished: the grace was too short for some.
    """
    await served.versions.start()
    runner = web.AppRunner(
        rest.build_application(served),
        access_log=None,
        handler_cancellation=True,  # who has hung up wants no answer
        shutdown_timeout=grace_secs,
    )
    await runner.setup()
    grpc_server = rpc.build_server(served)
    try:
        listener, bound = await _listen(runner, grpc_server, host, ports)
    except (OSError, RuntimeError) as error:
        await runner.cleanup()
        raise errors.UserError(
            f"Cannot listen on {host}, ports {ports.rest} (REST) and "
            f"{ports.grpc} (gRPC): {error}. Name others with --rest_port and "
            "--grpc_port."
        ) from error
    watching = asyncio.create_task(served.versions.watch(poll_secs))
    try:
        yield bound
    finally:
        watching.cancel()
        try:
            await asyncio.wait_for(
                _finish(grpc_server, listener, runner, served, grace_secs),
                grace_secs + _FAREWELL_SECS,
            )
        except asyncio.TimeoutError:
            raise Unfinished(
                f"What was in the model after {grace_secs:g} s of grace has "
                "been given up."
            ) from None


async def _listen(runner, grpc_server, host, ports):
    """Opens both ports: what listens for REST, and the Ports as they are."""
    # aiohttp's own could not be told to accept no more and stay open.
    listener = await asyncio.get_running_loop().create_server(
        runner.server, host, ports.rest, backlog=128
    )
    try:
        grpc_port = grpc_server.add_insecure_port(
            f"{_literal(host)}:{ports.grpc}"
        )
        await grpc_server.start()
    except BaseException:
        listener.close()
        raise
    return listener, Ports(listener.sockets[0].getsockname()[1], grpc_port)


async def _finish(grpc_server, listener, runner, served, grace_secs):
    """Takes no more, and answers what is in flight."""
    # asyncio forgets a connection that it has accepted and not yet handed over
    # when its listener closes: the client would wait until the grace is over.
    # So it accepts no more, and hands over what it has, before it closes.
    for listening in listener.sockets:
        asyncio.get_running_loop().remove_reader(listening)
    await asyncio.sleep(0)
    listener.close()
    await asyncio.gather(grpc_server.stop(grace_secs), runner.cleanup())
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
