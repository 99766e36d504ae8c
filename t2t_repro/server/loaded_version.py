"""Version of a model in memory, with a queue for each of its signatures."""

import asyncio
import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

from tensorflow.core.protobuf import meta_graph_pb2

from t2t_repro import errors
from t2t_repro.server import batching, request_errors, version_connection
from t2t_repro.server.fork_server import ForkServer
from t2t_repro.server.version_connection import (
    ProcessEndedError,
    VersionConnection,
)
from t2t_repro.server.version_process import CallError, Description
from t2t_repro.serving.limits import Limits


class LoadedVersion:
    """Model of one version, in the memory of a process of its own."""

    def __init__(
        self,
        version: int,
        description: Description,
        connection: VersionConnection,
        limits: Limits,
    ):
        """Keep the connection to the process; `load` starts it."""
        self.version = version
        self.process = description.process  # its id
        self.card: dict[str, Any] = description.card
        self.signature_defs = {
            name: meta_graph_pb2.SignatureDef.FromString(definition)
            for name, definition in description.signature_defs.items()
        }
        self._signatures = description.signatures
        self._connection, self._limits = connection, limits
        self._queues: dict[str, batching.Queue] = {}

    @classmethod
    async def load(
        cls,
        folder: pathlib.Path,
        fork_server: ForkServer,
        limits: Limits,
        in_background: bool = False,
    ) -> "LoadedVersion":
        """Load a version and run its warm-up requests: this takes seconds.

        Args:
            folder: folder of the version.
            fork_server: starts the process.
            limits: seconds that the process may take.
            in_background: whether to load with a low priority.

        Raises:
            OSError: the process cannot be started.
            UserError: the version cannot be loaded.
        """
        connection = await version_connection.start(fork_server)
        try:
            description = await connection.load(
                folder, in_background, limits.load_secs
            )
            return cls(int(folder.name), description, connection, limits)
        except CallError as error:
            connection.end()
            raise errors.UserError(str(error)) from error
        except ProcessEndedError as error:
            raise errors.UserError(
                f"its process {error}; is there memory for it, and can its "
                "files be read within --load_timeout_secs?"
            ) from error
        except BaseException:  # the server stops
            connection.kill("is not needed any more")
            raise

    @property
    def ended(self) -> asyncio.Task[str]:
        """Task that ends with the process; its result says how."""
        return self._connection.ended

    def input_names(self, signature: str) -> list[str]:
        """Return the names of a signature's inputs, sorted.

        Raises:
            RequestError: there is no such signature.
        """
        if signature not in self._signatures:
            raise request_errors.invalid(
                f'Serving signature name: "{signature:.100}" not found in '
                f"signature def; there are {', '.join(self._signatures)}."
            )
        return sorted(self.signature_defs[signature].inputs)

    async def run(
        self, signature: str, inputs: batching.Inputs
    ) -> batching.Outputs:
        """Run a batch.

        Raises:
            CallError: the model failed.
            RequestError: the process has ended.
        """
        try:
            return await self._connection.run(
                signature, inputs, self._limits.max_silence_secs
            )
        except ProcessEndedError as error:
            raise request_errors.unavailable(
                f"The process of version {self.version} {error}. The version "
                "is loaded again. Try again in a moment."
            ) from error

    def queue(
        self,
        signature: str,
        new_queue: Callable[
            [
                Callable[[batching.Inputs], Awaitable[batching.Outputs]],
                str,
            ],
            batching.Queue,
        ],
    ) -> batching.Queue:
        """Return the queue of a signature.

        Args:
            signature: name of the signature.
            new_queue: called once with the function that runs a batch, and the
                signature.
        """
        if signature not in self._queues:
            self._queues[signature] = new_queue(
                lambda inputs: self.run(signature, inputs), signature
            )
        return self._queues[signature]

    async def close(self) -> None:
        """Answer the requests that wait for this version, and free memory."""
        for queue in self._queues.values():
            await queue.close()
        await self._connection.close()
