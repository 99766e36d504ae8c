"""Connection of the server to the process of a version."""

import asyncio
import contextlib
import itertools
import pathlib
import socket

from t2t_repro.serving import batching, frames
from t2t_repro.serving.fork_server import ForkServer
from t2t_repro.serving.version_process import Description

_BUFFER = 1 << 20  # bytes of an answer that are read ahead
_REPORT_BYTES = 200


class ProcessEndedError(Exception):
    """The process ended by itself; the message says how."""


class VersionConnection:
    """Connection to the process of a version, in one event loop."""

    def __init__(
        self,
        report: socket.socket,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ):
        """Read answers from now on; `start` calls this."""
        self._report = report
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future] = {}
        # A task that ends with the process, with a text such as "was killed by
        # SIGKILL".
        self.ended = asyncio.create_task(self._read_answers())

    async def load(
        self, folder: pathlib.Path, in_background: bool
    ) -> Description:
        """Load a version; this is the first call.

        Args:
            folder: folder of the version.
            in_background: whether to load with a low priority.

        Raises:
            CallError: it cannot be loaded.
            ProcessEndedError: the process has ended.
        """
        return await self._call(folder, in_background)

    async def run(
        self, signature: str, inputs: batching.Inputs
    ) -> batching.Outputs:
        """Run a batch.

        Raises:
            CallError: the model failed.
            ProcessEndedError: the process has ended.
        """
        return await self._call(signature, inputs)

    def end(self) -> None:
        """Make the process end, without waiting for it."""
        self._writer.close()

    async def close(self) -> None:
        """End the process; its memory is free when this returns."""
        self.end()
        await asyncio.wait({self.ended})

    async def _call(self, *args):
        if self.ended.done():
            raise ProcessEndedError(self.ended.result())
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._writer.write(frames.pack((number, *args)))
        return await answer

    async def _read_answers(self):
        """Read answers until the process ends; return how it has ended.

        The fork server reports this when the process is gone.
        """
        loop = asyncio.get_running_loop()
        with self._report, contextlib.closing(self._writer):
            with contextlib.suppress(EOFError, ConnectionError):
                while True:
                    self._distribute(*await frames.receive(self._reader))
            report = await loop.sock_recv(self._report, _REPORT_BYTES)
        how = report.decode() or "has ended"  # "": so has the fork server
        for number in list(self._answers):
            self._distribute(number, None, ProcessEndedError(how))
        return how

    def _distribute(self, number, result, error):
        answer = self._answers.pop(number)
        if answer.done():
            return  # the caller has been cancelled
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)


async def start(fork_server: ForkServer) -> VersionConnection:
    """Fork a process for a version, and connect to it.

    Raises:
        OSError: no descriptor is left.
        UserError: the fork server has ended.
    """
    fork = fork_server.fork()
    fork.report.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(
        sock=fork.connection, limit=_BUFFER
    )
    return VersionConnection(fork.report, reader, writer)
