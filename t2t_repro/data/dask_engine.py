"""Engine of a Dask cluster, whose workers may be on other machines.

Dask repeats the calls of a worker that ends on the other workers.
"""

import concurrent.futures
import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dask
import distributed

from t2t_repro import errors
from t2t_repro.data import engines

TIMEOUT_SECONDS = 60  # for the scheduler to answer, and for a worker to come
PENDING_PER_THREAD = 4  # chunks, so that no thread waits for the next one
_ATTEMPTS = 3  # to send the function to all workers
# Errors of a cluster that is lost.
_LOST = (
    concurrent.futures.CancelledError,
    distributed.CancelledError,
    distributed.KilledWorker,
    distributed.comm.CommClosedError,
)


class FunctionPlugin(distributed.WorkerPlugin):
    """The function on each worker, sent once instead of with every chunk."""

    def __init__(self, function: Callable):
        """Serialize the function of a chunk."""
        # Loaded at its first call: a worker's event loop, which has setup(),
        # must not be delayed.
        self.function = engines.SentFunction(function)
        # Another command on the cluster may have the same function.
        self.name = f"t2t-{uuid.uuid4().hex}"


def _lost_if_unreachable(call):
    """Return a call of the scheduler that raises an error of _LOST.

    Dask raises OSError, as do the caller's own reading and writing.
    """

    def checked(*args):
        try:
            return call(*args)
        except OSError as error:
            raise distributed.comm.CommClosedError(str(error)) from error

    return checked


def _register(client, plugin):
    """Send a plugin to the workers, again if one of them ends meanwhile."""
    register = _lost_if_unreachable(client.register_plugin)
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(distributed.comm.CommClosedError):
            return register(plugin)
    return register(plugin)


def _call(name, chunk):
    """Call the function of a plugin, on a worker."""
    return distributed.get_worker().plugins[name].function(chunk)


class DaskEngine(NamedTuple):
    """Workers of a Dask cluster."""

    address: str

    def require_workers(self) -> None:
        """Check that the cluster has a worker; see engines.Engine."""
        self._connect().close()

    @contextlib.contextmanager
    def start(self, function: Callable[[Any], Any]) -> Iterator[engines.Calls]:
        """Call the function on the workers; see engines.Engine.

        Raises:
            UserError: there is no scheduler or no worker, or the cluster is
                lost.
        """
        plugin = FunctionPlugin(function)
        with self._connect() as client:
            try:
                _register(client, plugin)
                yield engines.Calls(
                    _lost_if_unreachable(
                        lambda chunk: client.submit(
                            _call, plugin.name, chunk, pure=False
                        )
                    ),
                    # Asked for each chunk, since workers come and go.
                    _lost_if_unreachable(
                        lambda: (
                            PENDING_PER_THREAD * sum(client.nthreads().values())
                        )
                    ),
                )
            except _LOST as error:
                raise errors.UserError(
                    f"The cluster lost a call: {error}. See the logs of its "
                    "workers, and run the command again, which continues."
                ) from error
            finally:
                # A lost cluster has no plugin.
                with contextlib.suppress(OSError, ValueError, *_LOST):
                    client.unregister_worker_plugin(plugin.name)

    def _connect(self):
        try:
            # By default, a connection keeps its last 1,000 messages, chunks
            # included.
            with dask.config.set({"distributed.admin.low-level-log-length": 0}):
                client = distributed.Client(
                    self.address, timeout=TIMEOUT_SECONDS, set_as_default=False
                )
            client.wait_for_workers(1, timeout=TIMEOUT_SECONDS)
            return client
        except (OSError, TimeoutError, ValueError) as error:
            raise errors.UserError(
                f"There is no Dask cluster with a worker at {self.address}: "
                f"{error}. Start `dask scheduler` and, on each machine, `dask "
                "worker ADDRESS`."
            ) from error
