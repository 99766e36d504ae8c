"""The embedded server, which runs both protocols in one event loop."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable

import grpc
from aiohttp import web

from t2t_repro import errors
from t2t_repro.io import progress
from t2t_repro.server import monitoring, rest, rpc
from t2t_repro.server.connections import Connections, affordable
from t2t_repro.server.server_settings import Ports, Settings
from t2t_repro.server.service import Service

_ERROR_RESPONSE_SECS = 1.0  # time to send errors, after the grace period


class GracePeriodError(Exception):
    """A batch is still in the model at the end of the grace period."""


async def serve(
    service: Service, settings: Settings, ready: Callable[[Ports], None]
) -> None:
    """Serve until a signal to stop, then finish the requests in flight.

    A batch that is in the model after the grace period ends with the process,
    whose exit status is then 1. `ready` is called with the ports when the
    server accepts requests.
    """
    try:
        async with running(service, settings) as bound:
            stop = asyncio.Event()
            for number in progress.handled():
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            ready(bound)
            await _until(stop, service.versions.watching)
    except GracePeriodError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # exit() would wait for threads and tasks


async def _until(stop, watching):
    """Wait for a signal to stop.

    Raises:
        UserError: the watching of versions has ended before.
    """
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({stopped, watching}, return_when=asyncio.FIRST_COMPLETED)
    if not stopped.done():
        raise errors.UserError(
            "The server ends, since it can load no version any more: "
            f"{watching.exception()}."
        )


@contextlib.asynccontextmanager
async def running(service: Service, settings: Settings) -> AsyncIterator[Ports]:
    """Run a server inside the context of its ports; finish requests on leaving.

    Raises:
        UserError: there is no model, a port is in use, or a certificate cannot
            be read.
        GracePeriodError: the grace period was too short.
    """
    asyncio.get_running_loop().set_exception_handler(monitoring.log_loop_error)
    limit = affordable(service.limits.max_connections)
    web_side = _WebSide(service, settings, limit)
    grpc_server = rpc.build_server(
        service, settings.access, limit, settings.grpc_options
    )
    try:
        # The ports come first: loading may take a minute.
        ports = await _bind(web_side, grpc_server, settings)
        await service.versions.start()
        with _listening(settings):  # another server may have come first
            await web_side.start()
            await grpc_server.start()
    except BaseException:
        await web_side.close()
        raise
    service.versions.start_watching(settings.poll_secs)
    try:
        yield ports
    finally:
        service.versions.watching.cancel()
        try:
            await asyncio.wait_for(
                _finish(grpc_server, web_side, service, settings.grace_secs),
                settings.grace_secs + _ERROR_RESPONSE_SECS,
            )
        except asyncio.TimeoutError:
            raise GracePeriodError(
                f"A batch was in the model after {settings.grace_secs:g} s of "
                "grace; its requests have no answer."
            ) from None


class _WebSide:
    """HTTP: the application, its connections and its listener."""

    def __init__(
        self, service: Service, settings: Settings, limit: int
    ) -> None:
        self._settings, self._service = settings, service
        self._limit = limit
        self._handlers = rest.Handlers(service)
        self._runner = web.AppRunner(
            rest.build_application(service, self._handlers, settings.access),
            handler_cancellation=True,  # when the client closes the connection
            shutdown_timeout=settings.grace_secs,
        )
        self._listener: asyncio.Server | None = None
        health = web.Application()
        health.router.add_get(rest.HEALTH_PATH, self._handlers.health)
        self._health_runner = web.AppRunner(health, access_log=None)

    async def bind(self) -> tuple[int, int | None]:
        """Take the port, and answer health checks at theirs; return both."""
        await self._runner.setup()
        settings, server = self._settings, self._runner.server
        assert server, "setup() makes it"
        # aiohttp's own listener cannot stop accepting without being closed.
        self._listener = await asyncio.get_running_loop().create_server(
            Connections(
                server,
                self._limit,
                self._service.metrics,
                settings.tls and settings.tls.context(),
            ),
            settings.host,
            settings.ports.rest,
            backlog=128,
            start_serving=False,
        )
        port = self._listener.sockets[0].getsockname()[1]
        if settings.ports.health is None:
            return port, None
        await self._health_runner.setup()
        health = self._health_runner
        await web.TCPSite(health, "127.0.0.1", settings.ports.health).start()
        return port, health.addresses[0][1]

    async def start(self) -> None:
        assert self._listener, "bind() comes first"
        await self._listener.start_serving()

    async def stop_accepting(self) -> None:
        # When a listener closes, asyncio drops connections that are accepted
        # but not yet passed to a handler: their clients would wait until the
        # grace is over. So stop accepting, let the loop pass them on, and then
        # close.
        assert self._listener, "bind() comes first"
        for open_socket in self._listener.sockets:
            asyncio.get_running_loop().remove_reader(open_socket)
        await asyncio.sleep(0)
        self._handlers.stop()
        self._listener.close()

    async def close(self) -> None:
        if self._listener:
            self._listener.close()
        await self._runner.cleanup()
        await self._health_runner.cleanup()


async def _bind(
    web_side: _WebSide, grpc_server: grpc.aio.Server, settings: Settings
) -> Ports:
    tls, host = settings.tls, settings.host
    address = f"[{host}]" if ":" in host else host  # IPv6
    address += f":{settings.ports.grpc}"
    with _listening(settings):
        rest_port, health_port = await web_side.bind()
        if tls:
            port = grpc_server.add_secure_port(address, tls.credentials())
        else:
            port = grpc_server.add_insecure_port(address)
        return Ports(rest_port, port, health_port)


@contextlib.contextmanager
def _listening(settings):
    """Turn errors of ports into one that names them."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        ports = settings.ports
        health = "" if ports.health is None else f", {ports.health} (health)"
        raise errors.UserError(
            f"Cannot listen on {settings.host}, ports {ports.rest} (REST), "
            f"{ports.grpc} (gRPC){health}: {error}. Choose others with "
            "--rest_port, --grpc_port and --health_port, or another --host."
        ) from error


async def _finish(grpc_server, web_side, service, grace_secs):
    await web_side.stop_accepting()
    await asyncio.gather(grpc_server.stop(grace_secs), web_side.close())
    await service.versions.close()
