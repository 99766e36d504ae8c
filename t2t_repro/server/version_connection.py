"""Connection of the server to the process of a version."""

import asyncio
import contextlib
import itertools
import pathlib
import socket

from t2t_repro.server import batching, frames
from t2t_repro.server.fork_server import ForkServer
from t2t_repro.server.version_process import Description

_BUFFER = 1 << 20  # bytes of an answer that are read ahead
_REPORT_BYTES = 200
_CLOSE_SECS = 10.0  # for a process to end by itself
_KILL_SECS = 10.0  # for the system to end a process


class ProcessEndedError(Exception):
    """The process has ended; the message says how."""


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
        self._num_answers = 0
        self._fault = ""  # for which it is killed
        # A task that ends with the process, with a text such as "was killed by
        # SIGKILL".
        self.ended = asyncio.create_task(self._read_answers())

    async def load(
        self, folder: pathlib.Path, in_background: bool, max_secs: float
    ) -> Description:
        """Load a version; this is the first call.

        Args:
            folder: folder of the version.
            in_background: whether to load with a low priority.
            max_secs: seconds after which the process is killed.

        Raises:
            CallError: it cannot be loaded.
            ProcessEndedError: the process has ended.
        """
        return await self._call(max_secs, folder, in_background)

    async def run(
        self, signature: str, inputs: batching.Inputs, max_silence_secs: float
    ) -> batching.Outputs:
        """Run a batch.

        Args:
            signature: name of the signature.
            inputs: the batch.
            max_silence_secs: seconds without an answer to any call after which
                the process is killed.

        Raises:
            CallError: the model failed.
            ProcessEndedError: the process has ended.
        """
        return await self._call(max_silence_secs, signature, inputs)

    def end(self) -> None:
        """Make the process end, without waiting for it."""
        self._writer.close()

    def kill(self, fault: str) -> None:
        """Kill the process, which may not even be able to end by itself.

        Args:
            fault: why, as in "has not answered".
        """
        if self._fault or self.ended.done():
            return
        self._fault = fault
        # The fork server, its parent, kills it. A process that waits for a
        # dead disk may survive even this; it is then given up.
        self._report.shutdown(socket.SHUT_WR)
        self._writer.transport.abort()
        asyncio.get_running_loop().call_later(_KILL_SECS, self._give_up)

    def _give_up(self):
        """Stop to wait for the report of the end."""
        with contextlib.suppress(OSError):  # it is closed: the process ended
            self._report.shutdown(socket.SHUT_RD)

    async def close(self) -> None:
        """End the process; its memory is free when this returns."""
        self.end()
        await asyncio.wait({self.ended}, timeout=_CLOSE_SECS)
        self.kill(f"has not ended within {_CLOSE_SECS:g} s")
        await asyncio.wait({self.ended})

    async def _call(self, max_silence_secs, *args):
        if self.ended.done():
            raise ProcessEndedError(self.ended.result())
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._writer.write(frames.pack((number, *args)))
        try:
            while not answer.done():
                before = self._num_answers
                await asyncio.wait({answer}, timeout=max_silence_secs)
                if not answer.done() and self._num_answers == before:
                    self.kill(f"has not answered for {max_silence_secs:g} s")
            return answer.result()
        finally:
            answer.cancel()

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
        how = report.decode()
        if self._fault:
            how = f"{self._fault} and {how or 'cannot be killed'}"
        how = how or "has ended"  # so has the fork server
        for number in list(self._answers):
            self._distribute(number, None, ProcessEndedError(how))
        return how

    def _distribute(self, number, result, error):
        answer = self._answers.pop(number)
        self._num_answers += 1
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
