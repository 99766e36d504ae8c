"""Dynamic batches: requests that arrive together go through together.

A queue belongs to one signature of one version and lives in one event loop.
A request is never split, so its answers cannot be mixed with another's.
"""

import asyncio
import collections
import dataclasses
import itertools
import logging
from collections.abc import Callable

import grpc
import numpy as np

from t2t_repro.serving import failure
from t2t_repro.serving.limits import Limits

Inputs = dict[str, list[bytes]]  # by name, one value a sentence
Outputs = dict[str, np.ndarray]  # by name, [B, …]


@dataclasses.dataclass(frozen=True, eq=False)  # each equal to itself alone
class _Waiting:
    """A request in the queue."""

    inputs: Inputs
    size: int  # sentences
    longest: int  # bytes of a sentence
    arrived: float  # seconds, the event loop's clock
    answer: asyncio.Future


class Queue:
    """Collects requests of a signature and runs them, a batch at a time."""

    def __init__(
        self,
        run: Callable[[Inputs], Outputs],
        limits: Limits,
        sizes,
        waiting,
    ):
        """Starts to wait for requests; needs a running event loop.

        Args:
            run: called in another thread, with one batch at a time.
            limits: of a batch, of the time that its first request waits for
                others (unless the model is busy for longer), and of the
                sentences that may wait.
            sizes: Prometheus histogram, of sentences in a batch.
            waiting: Prometheus gauge, of sentences in the queue.
        """
        self._run = run
        self._limits = limits
        self._sizes = sizes
        self._gauge = waiting
        self._requests: collections.deque[_Waiting] = collections.deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._closing = False
        self._worker = asyncio.create_task(self._work())

    def submit(self, inputs: Inputs) -> asyncio.Future[Outputs]:
        """The outputs to come of sentences that the limits hold.

        Cancelled, a request leaves the queue.

        Raises:
            Failure: the queue is full; from the future: the model failed.
        """
        size = len(next(iter(inputs.values())))
        most = self._limits.max_waiting
        if self._size + size > most:
            raise failure.unavailable(
                f"The queue is full: {self._size} sentences wait, and at most "
                f"{most} may. Try again in a moment."
            )
        loop = asyncio.get_running_loop()
        request = _Waiting(
            inputs,
            size,
            max(map(len, itertools.chain(*inputs.values()))),
            loop.time(),
            loop.create_future(),
        )
        self._requests.append(request)
        self._resize(size)
        request.answer.add_done_callback(lambda _: self._forget(request))
        return request.answer

    async def close(self):
        """Answers what waits, and ends; nothing may be submitted after."""
        self._closing = True
        self._changed.set()
        await asyncio.shield(self._worker)  # whose answers are others'

    def _resize(self, change):
        self._size += change
        self._gauge.inc(change)
        self._changed.set()

    def _forget(self, request):
        """An answered request has left the queue; one given up may be there."""
        if request.answer.cancelled() and request in self._requests:
            self._requests.remove(request)
            self._resize(-request.size)

    async def _work(self):
        while await self._wait_for_batch():
            batch = self._take()
            size = sum(request.size for request in batch)
            self._resize(-size)
            self._sizes.observe(size)
            await self._answer(batch)

    def _take(self):
        """The oldest request, with those whose length is nearest to its own.

        A batch is as slow as its longest sentence, and none is passed over
        once it is the oldest.
        """
        length = self._requests[0].longest
        batch, size, longest = [], 0, 0
        for request in sorted(
            self._requests, key=lambda request: abs(request.longest - length)
        ):
            wider = max(longest, request.longest)
            if self._limits.allow(size + request.size, wider):
                batch.append(request)
                size, longest = size + request.size, wider
        for request in batch:
            self._requests.remove(request)
        return batch

    async def _wait_for_batch(self):
        """True when a batch is due, False when there will be none."""
        now = asyncio.get_running_loop().time
        enough = self._limits.max_batch_size
        while self._size < enough and not self._closing:
            patience = None
            if self._requests:
                oldest = self._requests[0].arrived
                patience = oldest + self._limits.batch_timeout_ms / 1000 - now()
                if patience <= 0:
                    break
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), patience)
            except asyncio.TimeoutError:
                pass  # the batch is as full as it gets
        return bool(self._requests)

    async def _answer(self, batch):
        inputs = {
            name: [value for one in batch for value in one.inputs[name]]
            for name in batch[0].inputs
        }
        loop = asyncio.get_running_loop()
        try:
            outputs = await loop.run_in_executor(None, self._run, inputs)
            _require_rows(outputs, sum(one.size for one in batch))
        except Exception as error:
            if len(batch) > 1:  # one of them must not spoil the others
                for one in batch:
                    await self._answer([one])
                return
            logging.exception("A request failed in the model.")
            _fail(batch[0], error)
            return
        first = 0
        for one in batch:
            rows = slice(first, first + one.size)
            if not one.answer.done():  # nobody waits for it any more
                one.answer.set_result(
                    {name: array[rows] for name, array in outputs.items()}
                )
            first += one.size


def _require_rows(outputs, count):
    """Of every output, by which requests are told apart."""
    for name, array in outputs.items():
        if array.shape[:1] != (count,):
            raise ValueError(
                f"its output {name} has the shape {array.shape} for {count} "
                "sentences, where a row for each is needed"
            )


def _fail(request, error):
    if not request.answer.done():
        request.answer.set_exception(
            failure.Failure(
                grpc.StatusCode.INTERNAL, f"The model failed: {error}"
            )
        )
