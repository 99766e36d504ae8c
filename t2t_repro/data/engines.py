"""Engines, which call a function on chunks: threads, processes, or a cluster.

A chunk is anything that can be pickled, such as a list of pairs. The function
depends on its chunk alone, so every engine has the same results.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import types
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

from tqdm import tqdm

from t2t_repro import errors, registry
from t2t_repro.runtime import cpu, tensorflow_import

CHUNK_PAIRS = 5_000  # pairs that a worker handles at once; some MB
DASK = "dask:"  # what precedes the address of a scheduler
TIMEOUT_SECONDS = 60  # for a scheduler to answer, and for a worker to come
PENDING_PER_THREAD = 4  # chunks, so that no thread waits for the next one
_ATTEMPTS = 3  # to send the function to all workers
Chunk = TypeVar("Chunk")
Result = TypeVar("Result")
Context = TypeVar("Context")
Item = TypeVar("Item")
# Of a process of a ProcessEngine: its number, and the function that it calls.
_process_index = 0
_function: "SentFunction | None" = None
_loading = threading.Lock()  # of a SentFunction by one of several threads


class Calls(NamedTuple):
    """Calls of a function by the workers of an engine."""

    # Function of a chunk that returns a future of the result.
    submit: Callable[[Any], Any]
    # Function that returns how many calls may be ahead of the consumer; it may
    # grow.
    max_pending: Callable[[], int]


class Engine:
    """The interface of engines."""

    def require_workers(self) -> None:
        """Check that there are workers, before long work without them.

        Raises:
            UserError: there are none.
        """

    def start(
        self, function: Callable[[Any], Any]
    ) -> AbstractContextManager[Calls]:
        """Start to call a function of a chunk, which can be pickled."""
        raise NotImplementedError


class SentFunction:
    """A function for other processes, with the definitions that it needs.

    Both are loaded at the first call. The definitions are sent as they were
    read here: other processes need not see their folder, nor trust it.
    """

    def __init__(self, function: Callable[[Any], Any]):
        """Serialize the function."""
        self._pickled = pickle.dumps(function)
        self._definitions = registry.imported()
        self._function: Callable[[Any], Any] | None = None

    @property
    def is_of_main(self) -> bool:
        """True if it needs what a script or a notebook defines itself."""
        return b"__main__" in self._pickled

    def __call__(self, chunk: Any) -> Any:
        """Call the function of a chunk, in another process."""
        with _loading:
            if self._function is None:
                tensorflow_import.prepare()
                registry.load_definitions(self._definitions)
                self._function = pickle.loads(self._pickled)
        return self._function(chunk)


class InlineEngine(Engine):
    """The calling thread, which computes a result when it is asked for."""

    @contextlib.contextmanager
    def start(self, function: Callable[[Any], Any]) -> Iterator[Calls]:
        def submit(chunk):
            future = concurrent.futures.Future()
            future.set_result(function(chunk))
            return future

        yield Calls(submit, lambda: 0)


INLINE = InlineEngine()


@dataclasses.dataclass(frozen=True)
class ThreadEngine(Engine):
    """Threads of this process."""

    num_workers: int = 1

    @contextlib.contextmanager
    def start(self, function: Callable[[Any], Any]) -> Iterator[Calls]:
        with concurrent.futures.ThreadPoolExecutor(self.num_workers) as pool:
            yield Calls(
                lambda chunk: pool.submit(function, chunk),
                lambda: 2 * self.num_workers,
            )


class _Process(multiprocessing.context.SpawnProcess):
    """A new process that does not run the script which starts it.

    Python would, and a script without ``if __name__ == "__main__":`` would then
    start processes again, or wait for the lock that its first process holds.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            return multiprocessing.context.SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class _Context(multiprocessing.context.SpawnContext):
    # A fork of a process that has used TensorFlow would hang.
    Process = _Process


@dataclasses.dataclass(frozen=True)
class ProcessEngine(Engine):
    """Processes on this machine, each with libraries of its own."""

    num_workers: int

    @contextlib.contextmanager
    def start(self, function: Callable[[Any], Any]) -> Iterator[Calls]:
        """Call the function in processes; see Engine.

        Raises:
            UserError: a process has ended.
        """
        sent, context = SentFunction(function), _Context()
        if sent.is_of_main:  # which other processes do not have
            with INLINE.start(function) as calls:
                yield calls
            return
        receiver, sender = context.Pipe(duplex=False)
        pool = concurrent.futures.ProcessPoolExecutor(
            self.num_workers,
            context,
            _start_process,
            (receiver, context.Value("i", 0), sent),
        )
        try:
            yield Calls(
                lambda chunk: pool.submit(_call, chunk),
                lambda: 2 * self.num_workers,
            )
            pool.shutdown()
        except BrokenProcessPool as error:
            raise errors.UserError(
                "A worker process has ended. The system ends processes when "
                "memory runs out: use a smaller --num_workers then. Run the "
                "command again, which continues."
            ) from error
        finally:
            sender.close()  # ends the processes, also in the middle of a call
            pool.shutdown(cancel_futures=True)


def _start_process(receiver, count, function):
    """Set a worker's number, and end it with the sender of the receiver."""
    global _process_index, _function
    _function = function
    with count.get_lock():
        _process_index = count.value
        count.value += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process handles it
    # Its own lock is of the system, which reports it when _exit() leaves it.
    tqdm.set_lock(threading.RLock())

    def wait():
        with contextlib.suppress(EOFError):
            receiver.recv_bytes()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _call(chunk):
    assert _function, "_start_process() sets it"
    return _function(chunk)


def process_index() -> int:
    """Return the number of this process in its ProcessEngine, from 0."""
    return _process_index


@dataclasses.dataclass(frozen=True)
class DaskEngine(Engine):
    """Workers of a Dask cluster, which may be on other machines.

    Dask repeats the calls of a worker that ends on the other workers.
    """

    address: str

    def require_workers(self) -> None:
        """Check that the cluster has a worker."""
        self._connect().close()

    @contextlib.contextmanager
    def start(self, function: Callable[[Any], Any]) -> Iterator[Calls]:
        """Call the function on the workers; see Engine.

        Raises:
            UserError: there is no scheduler or no worker, or the cluster is
                lost.
        """
        import distributed

        lost = (
            concurrent.futures.CancelledError,
            distributed.CancelledError,
            distributed.KilledWorker,
            distributed.comm.CommClosedError,
        )
        # The function on each worker, sent once instead of with every chunk.
        # It is loaded at its first call, since a worker's event loop, which
        # has setup(), must not be delayed.
        plugin: Any = distributed.WorkerPlugin()
        plugin.function = SentFunction(function)
        # Another command on the cluster may have the same function.
        plugin.name = f"t2t-{uuid.uuid4().hex}"
        with self._connect() as client:
            try:
                _register(client, plugin)
                yield Calls(
                    _lost_if_unreachable(
                        lambda chunk: client.submit(
                            _call_plugin, plugin.name, chunk, pure=False
                        )
                    ),
                    # Asked for each chunk, since workers come and go.
                    _lost_if_unreachable(
                        lambda: (
                            PENDING_PER_THREAD * sum(client.nthreads().values())
                        )
                    ),
                )
            except lost as error:
                raise errors.UserError(
                    f"The cluster lost a call: {error}. See the logs of its "
                    "workers, and run the command again, which continues."
                ) from error
            finally:
                # A lost cluster has no plugin.
                with contextlib.suppress(OSError, ValueError, *lost):
                    client.unregister_worker_plugin(plugin.name)

    def _connect(self):
        import dask
        import distributed

        def connect():
            # By default, a connection keeps its last 1,000 messages, chunks
            # included.
            with dask.config.set({"distributed.admin.low-level-log-length": 0}):
                return distributed.Client(
                    self.address, timeout=TIMEOUT_SECONDS, set_as_default=False
                )

        try:
            # A client with a wrong address waits for minutes when it is freed.
            distributed.comm.resolve_address(self.address)
            client = _call_within(2 * TIMEOUT_SECONDS, connect)
            client.wait_for_workers(1, timeout=TIMEOUT_SECONDS)
            return client
        # TypeError: of tls:// without certificates in the settings of Dask.
        except (OSError, TimeoutError, TypeError, ValueError) as error:
            raise errors.UserError(
                f"There is no Dask cluster with a worker at {self.address}: "
                f"{error}. Start `dask scheduler`, whose port is 8786, and, on "
                "each machine, `dask worker ADDRESS`."
            ) from error


def _call_within(seconds, function):
    """Call a function, or raise TimeoutError when it takes too long.

    Dask waits for ever for the greeting of a service that is not a scheduler,
    such as its dashboard.
    """
    future: concurrent.futures.Future = concurrent.futures.Future()

    def call():
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    try:
        return future.result(seconds)
    except concurrent.futures.TimeoutError:
        raise TimeoutError("it has not answered") from None


def _lost_if_unreachable(call):
    """Return a call of the scheduler that raises CommClosedError.

    Dask raises OSError, as do the caller's own reading and writing.
    """
    import distributed

    def checked(*args):
        try:
            return call(*args)
        except OSError as error:
            raise distributed.comm.CommClosedError(str(error)) from error

    return checked


def _register(client, plugin):
    """Send a plugin to the workers, again if one of them ends meanwhile."""
    import distributed

    register = _lost_if_unreachable(client.register_plugin)
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(distributed.comm.CommClosedError):
            return register(plugin)
    return register(plugin)


def _call_plugin(name, chunk):
    import distributed

    return distributed.get_worker().plugins[name].function(chunk)


def create(
    name: str,
    num_workers: int | None,
    local: Callable[[int | None], Engine],
) -> Engine:
    """Return local(num_workers) for "local", or that of "dask:ADDRESS".

    Raises:
        UserError: the name is unknown, a cluster has a number of workers, or
            Dask is not installed.
    """
    if name == "local":
        return local(num_workers)
    address = name.removeprefix(DASK)
    if address in ("", name):
        raise errors.UserError(
            "engine must be local, or dask:ADDRESS with the address of Dask's "
            f"scheduler, as in dask:tcp://host:8786; got {name!r}."
        )
    if num_workers is not None:
        raise errors.UserError(
            f"--engine={name} ignores --num_workers: the cluster has its own "
            "workers. Omit one of them."
        )
    with errors.needed("dask", f"--engine={name}"):
        import distributed  # noqa: F401 (its absence is reported here)
    return DaskEngine(address)


def threads(num_workers: int | None = None) -> ThreadEngine:
    """Return threads of this process, by default one for each core."""
    return ThreadEngine(num_workers or cpu.usable_cores())


def for_python(engine: Engine) -> Engine:
    """Return processes for threads, of which one at a time runs Python."""
    if not isinstance(engine, ThreadEngine):
        return engine
    count = engine.num_workers
    return ProcessEngine(count) if count > 1 else INLINE


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield pairs in lists of CHUNK_PAIRS; the last may be shorter."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, CHUNK_PAIRS)):
        yield chunk


def in_order(
    engine: Engine,
    function: Callable[[Chunk], Result],
    tasks: Iterable[tuple[Context, Chunk | None]],
) -> Iterator[tuple[Context, Result | None]]:
    """Yield the contexts of tasks with the results, in the order of tasks.

    A task is what the consumer needs beside a result, its context, and a chunk;
    tasks are read as needed. A chunk None has the result None. The function of
    a chunk can be pickled.
    """
    pending: collections.deque = collections.deque()
    with engine.start(function) as calls:
        for context, chunk in tasks:
            future = None if chunk is None else calls.submit(chunk)
            pending.append((context, future))
            while len(pending) > calls.max_pending():
                yield _finished(*pending.popleft())
        while pending:
            yield _finished(*pending.popleft())


def _finished(context, future):
    return context, None if future is None else future.result()


def as_finished(
    engine: Engine,
    function: Callable[[Chunk], Result],
    tasks: Iterable[tuple[Context, Chunk]],
) -> Iterator[tuple[Context, Result]]:
    """Yield the contexts of tasks with the results, as the calls finish.

    No worker waits for a slower one. The arguments are those of in_order().
    """
    finished: queue.SimpleQueue = queue.SimpleQueue()
    num_pending = 0
    with engine.start(function) as calls:
        for context, chunk in tasks:
            calls.submit(chunk).add_done_callback(
                lambda future, context=context: finished.put((context, future))
            )
            num_pending += 1
            while num_pending > calls.max_pending():
                yield _finished(*finished.get())
                num_pending -= 1
        for _ in range(num_pending):
            yield _finished(*finished.get())
