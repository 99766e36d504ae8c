"""Engines, which call a function on chunks of pairs: threads, or a cluster.

The function depends on its chunk alone, and results come in the order of the
chunks, so every engine has the same results.
"""

import collections
import concurrent.futures
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from t2t_repro import errors, extras
from t2t_repro.text.parallel_files import Pair

CHUNK_PAIRS = 5_000  # pairs that a worker handles at once; some MB
DASK = "dask:"  # what precedes the address of a scheduler
Result = TypeVar("Result")
Context = TypeVar("Context")
Item = TypeVar("Item")
# What the consumer needs beside a result, and a chunk; None: no result.
Task = tuple[Context, list[Pair] | None]


class Engine(Protocol):
    """The interface of engines."""

    def map(
        self,
        function: Callable[[list[Pair]], Result],
        tasks: Iterable[Task[Context]],
    ) -> Iterator[tuple[Context, Result | None]]:
        """Yield the contexts of tasks with the results, in order.

        Args:
            function: function of a chunk, which can be pickled.
            tasks: chunks with their contexts, which are read as needed.
        """


class LocalEngine(NamedTuple):
    """Threads of this process."""

    num_workers: int = 1

    def map(
        self,
        function: Callable[[list[Pair]], Result],
        tasks: Iterable[Task[Context]],
    ) -> Iterator[tuple[Context, Result | None]]:
        """Call the function on threads; see Engine."""
        with concurrent.futures.ThreadPoolExecutor(self.num_workers) as pool:
            yield from in_order(
                lambda pairs: pool.submit(function, pairs),
                tasks,
                lambda: 2 * self.num_workers,
            )


ONE_THREAD = LocalEngine()


def create(name: str, num_workers: int) -> Engine:
    """Return the engine of a name.

    Args:
        name: "local", or "dask:ADDRESS" with the address of a scheduler.
        num_workers: threads of the local engine.

    Raises:
        UserError: unknown name, or Dask is not installed.
    """
    if name == "local":
        return LocalEngine(num_workers)
    address = name.removeprefix(DASK)
    if address in ("", name):
        raise errors.UserError(
            "engine must be local, or dask:ADDRESS with the address of Dask's "
            f"scheduler, as in dask:tcp://host:8786; got {name!r}."
        )
    with extras.needed("dask", f"--engine={name}"):
        from t2t_repro.data import dask_engine
    return dask_engine.DaskEngine(address)


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield pairs in lists of CHUNK_PAIRS; the last may be shorter."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, CHUNK_PAIRS)):
        yield chunk


def in_order(
    submit: Callable[[list[Pair]], Any],
    tasks: Iterable[Task[Context]],
    max_pending: Callable[[], int],
) -> Iterator[tuple[Context, Any]]:
    """Run tasks; yield their contexts and results in order.

    Args:
        submit: function that returns a future of the result for a chunk.
        tasks: as in Engine.
        max_pending: function that returns how many calls may be ahead of the
            consumer; it may grow.
    """
    pending: collections.deque = collections.deque()
    for context, pairs in tasks:
        pending.append((context, None if pairs is None else submit(pairs)))
        while len(pending) > max_pending():
            yield _finished(*pending.popleft())
    while pending:
        yield _finished(*pending.popleft())


def _finished(context, future):
    return context, None if future is None else future.result()
