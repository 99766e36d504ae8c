"""Dynamic batching: requests that arrive together share one model call.

A queue belongs to one signature of one version, and to one event loop. A
request is never split, so that its outputs are rows of one batch.
"""

import asyncio
import collections
import dataclasses
import itertools
import logging
from collections.abc import Awaitable, Callable

import numpy as np
import prometheus_client as prometheus

from t2t_repro.server import request_errors
from t2t_repro.serving.limits import Limits

Inputs = dict[str, list[bytes]]  # {name: one value for each sentence}
Outputs = dict[str, np.ndarray]  # {name: [B, …]}


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity
class _Request:
    """A request in the queue."""

    inputs: Inputs
    size: int  # number of sentences
    longest: int  # bytes of the longest sentence
    arrived: float  # seconds, by the event loop's clock
    turn: float  # as `arrived`, but later for a long request
    answer: asyncio.Future

    @property
    def num_bytes(self) -> int:
        """Bytes with each sentence padded: the work is about proportional."""
        return self.size * self.longest


class Queue:
    """Queue that collects requests of a signature and runs them in batches."""

    def __init__(
        self,
        run: Callable[[Inputs], Awaitable[Outputs]],
        limits: Limits,
        sizes: prometheus.Histogram,
        waiting: prometheus.Gauge,
    ):
        """Start to wait for requests. This needs a running event loop.

        Args:
            run: called with one batch at a time. It raises a RequestError to
                answer each request of the batch with it.
            limits: maximum size of a batch, time that its first request waits
                for others (longer while the model is busy), and maximum
                numbers of sentences and of their bytes in the queue.
            sizes: receives the number of sentences of each batch.
            waiting: receives the number of sentences in the queue.
        """
        self._run = run
        self._limits = limits
        self._sizes = sizes
        self._gauge = waiting
        self._requests: collections.deque[_Request] = collections.deque()
        self._size = self._num_bytes = 0
        self._changed = asyncio.Event()
        self._closing = False
        self._worker = asyncio.create_task(self._work())

    def submit(self, inputs: Inputs) -> asyncio.Future[Outputs]:
        """Return a future of the outputs of sentences within the limits.

        A request whose future is cancelled leaves the queue.

        Raises:
            RequestError: the queue is full. The future raises one if the model
                failed.
        """
        size = len(next(iter(inputs.values())))
        limit = self._limits.max_waiting
        if self._size + size > limit:
            raise request_errors.unavailable(
                f"The queue is full: {self._size} sentences wait, and at most "
                f"{limit} may. Try again in a moment."
            )
        request = self._new_request(inputs, size)
        # Half of the room: long requests always leave some to short ones.
        room = self._limits.max_waiting_bytes - self._num_bytes
        if request.num_bytes > room / 2:
            raise request_errors.unavailable(
                f"The queue is full: sentences of {self._num_bytes:,} bytes "
                f"wait, too many for one of {request.num_bytes:,} bytes. Try "
                "again in a moment."
            )
        self._requests.append(request)
        self._resize(request)
        request.answer.add_done_callback(lambda _: self._forget(request))
        return request.answer

    def _new_request(self, inputs, size):
        longest = max(map(len, itertools.chain(*inputs.values())))
        loop, limits = asyncio.get_running_loop(), self._limits
        # The longest possible request lets those pass that arrive within half
        # the time limit: they are quick, and its own turn comes in time.
        share = size * longest / limits.max_batch_bytes
        delay = share * limits.timeout_secs / 2
        now = loop.time()
        return _Request(
            inputs, size, longest, now, now + delay, loop.create_future()
        )

    async def close(self) -> None:
        """Answer waiting requests and end. No request may follow."""
        self._closing = True
        self._changed.set()
        # A cancelled close() must not cancel the answers of requests.
        await asyncio.shield(self._worker)

    def _resize(self, request, sign=1):
        self._size += sign * request.size
        self._num_bytes += sign * request.num_bytes
        self._gauge.inc(sign * request.size)
        self._changed.set()

    def _forget(self, request):
        """Remove a cancelled request that is still in the queue."""
        if request.answer.cancelled() and request in self._requests:
            self._requests.remove(request)
            self._resize(request, -1)

    async def _work(self):
        while await self._wait_for_batch():
            batch = self._take()
            for request in batch:
                self._resize(request, -1)
            self._sizes.observe(sum(request.size for request in batch))
            await self._answer(batch)

    def _take(self):
        """Take the next request, and the requests nearest to its length.

        A batch takes as long as its longest sentence. Each request is served
        at the latest when its turn is the first.
        """
        length = min(self._requests, key=lambda request: request.turn).longest
        batch, size, longest = [], 0, 0
        for request in sorted(
            self._requests, key=lambda request: abs(request.longest - length)
        ):
            new_longest = max(longest, request.longest)
            if self._limits.allow(size + request.size, new_longest):
                batch.append(request)
                size, longest = size + request.size, new_longest
        for request in batch:
            self._requests.remove(request)
        return batch

    async def _wait_for_batch(self):
        """Wait for a batch; return False when the queue is closed and empty."""
        now = asyncio.get_running_loop().time
        enough = self._limits.max_batch_size
        while self._size < enough and not self._closing:
            timeout = None
            if self._requests:
                oldest = self._requests[0].arrived
                timeout = oldest + self._limits.batch_timeout_ms / 1000 - now()
                if timeout <= 0:
                    break
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), timeout)
            except asyncio.TimeoutError:
                pass  # the first request has waited long enough
        return bool(self._requests)

    async def _answer(self, batch):
        inputs = {
            name: [value for request in batch for value in request.inputs[name]]
            for name in batch[0].inputs
        }
        try:
            outputs = await self._run(inputs)
            _check_rows(outputs, sum(request.size for request in batch))
        except request_errors.RequestError as error:  # the process has ended
            for request in batch:
                _fail(request, error)
            return
        except Exception as error:
            if len(batch) > 1:  # retry one by one: only the bad request fails
                for request in batch:
                    await self._answer([request])
                return
            logging.exception("A request failed in the model.")
            _fail(
                batch[0], request_errors.internal(f"The model failed: {error}")
            )
            return
        first = 0
        for request in batch:
            rows = slice(first, first + request.size)
            if not request.answer.done():  # done: the client has cancelled
                request.answer.set_result(
                    {name: array[rows] for name, array in outputs.items()}
                )
            first += request.size


def _check_rows(outputs, count):
    """Require one row for each sentence, by which a batch is split."""
    for name, array in outputs.items():
        if array.shape[:1] != (count,):
            raise ValueError(
                f"its output {name} has the shape {array.shape} for {count} "
                "sentences, where a row for each is needed"
            )


def _fail(request, error):
    if not request.answer.done():
        request.answer.set_exception(error)
