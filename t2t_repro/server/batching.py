"""Dynamic batching: requests are checked, and share one call of the model.

A queue belongs to one signature of one version, and to one event loop. A
request is never split, so that its outputs are rows of one batch.
"""

import asyncio
import collections
import dataclasses
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import prometheus_client as prometheus

from t2t_repro import errors
from t2t_repro.server import request_errors
from t2t_repro.serving.requests import Limits
from t2t_repro.text.languages import (
    SOURCE,
    TARGET,
    check_language,
    split_direction,
    tagger_of,
)

Value: TypeAlias = Any  # bytes, int or float
Inputs = dict[str, list[Value]]  # {name: one value for each sentence}
Outputs = dict[str, np.ndarray]  # {name: [B, …]}

_OTHER_MARKS = 1000  # in the JSON of a body: of keys that are ignored
_SHOWN_NAMES, _SHOWN_LETTERS = 5, 40


# dtype of an input -> what its values are called.
KINDS = {"string": "strings", "int32": "integers", "float32": "numbers"}


class InputSpec(NamedTuple):
    """Input of a signature."""

    dtype: str = "string"  # one of KINDS
    default: Value | None = None  # None: a request must have the input


Specs = dict[str, InputSpec]  # by name, sorted


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
        texts = itertools.chain(*_texts(inputs).values())
        longest = max(map(len, texts), default=0)  # all inputs may be numbers
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
            # The first in any case: tags may have made it longer than that.
            if not batch or self._limits.allow(
                size + request.size, new_longest
            ):
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
            _fail(batch, error)
            return
        except Exception as error:
            if len(batch) > 1:  # retry one by one: only the bad request fails
                for request in batch:
                    await self._answer([request])
                return
            logging.exception("A request failed in the model.")
            _fail(batch, request_errors.internal(f"The model failed: {error}"))
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


def _fail(batch, error):
    for request in batch:
        if not request.answer.done():
            request.answer.set_exception(error)


# Checks of inputs, in the order of their cost


def check_size(inputs: Sized, limits: Limits) -> None:
    """Check the number of sentences, before anything is done with each.

    Raises:
        RequestError: there are none, or too many.
    """
    if not 1 <= len(inputs) <= limits.max_batch_size:
        raise request_errors.invalid(
            f"A request must have 1 to {limits.max_batch_size} sentences; got "
            f"{len(inputs)}."
        )


def check_density(body: bytes, limits: Limits) -> None:
    r"""Check that a JSON body has no more values than its sentences explain.

    Python's parser would make an object of each, and holds Python's lock for as
    long. A sentence in quotes has at most 24 of them, with all inputs of a row:
    {"inputs": {"b64": "…"}, "prefixes": …}. Within a text quotes are \", but
    commas are plain.

    Raises:
        RequestError: it has more.
    """
    marks = 24 * limits.max_batch_size + _OTHER_MARKS
    quotes = body.count(b'"') - body.count(b'\\"')
    commas = body.count(b",") - 2 * limits.max_batch_bytes
    if max(quotes, commas) > marks:
        raise request_errors.invalid(
            f"A request must have 1 to {limits.max_batch_size} sentences; this "
            "body has far more values."
        )


def required(specs: Specs) -> list[str]:
    """Return the names of the inputs that a request must have."""
    return [name for name, spec in specs.items() if spec.default is None]


def check_names(found: Iterable[str], specs: Specs) -> None:
    """Check that a request has inputs of the signature, and all required ones.

    Raises:
        RequestError: a name is missing or unknown.
    """
    found, needed = set(found), required(specs)
    if not found.issuperset(needed) or not found <= specs.keys():
        optional = ", ".join(sorted(specs.keys() - needed))
        raise request_errors.invalid(
            f"The signature's inputs are {', '.join(needed)}"
            f"{optional and f', and optional: {optional}'}; got "
            f"{list_names(found)}."
        )


def with_defaults(inputs: Inputs, specs: Specs) -> Inputs:
    """Return the inputs, checked by check_inputs(), and those left out."""
    size = len(next(iter(inputs.values())))
    return {
        name: [spec.default] * size
        for name, spec in specs.items()
        if spec.default is not None
    } | inputs


def list_names(names: Iterable[str]) -> str:
    """List the first few of a client's names, shortened: "a, b, …"."""
    first = sorted(names)
    shown = [name[:_SHOWN_LETTERS] for name in first[:_SHOWN_NAMES]]
    return ", ".join(shown + ["…"] * (len(first) > _SHOWN_NAMES)) or "none"


def check_inputs(inputs: Inputs, limits: Limits) -> None:
    """Check the inputs of a request, whose names its reader has checked.

    Raises:
        RequestError: names the input that is wrong.
    """
    if not inputs:
        raise request_errors.invalid(
            "This signature has no inputs, and cannot be run."
        )
    sizes = {name: len(values) for name, values in inputs.items()}
    size = max(sizes.values())
    if len(set(sizes.values())) > 1:
        raise request_errors.invalid(f"Inputs differ in number: {sizes}.")
    for name, values in _texts(inputs).items():
        longest = max(map(len, values))
        if not limits.allow(size, longest):
            advice = "fewer at a time, or shorter ones" if size > 1 else "less"
            raise request_errors.invalid(
                f"{name}: sentences times bytes of the longest are {size} x "
                f"{longest:,}; at most {limits.max_batch_bytes:,} are taken. "
                f"Send {advice}."
            )
        for number, value in enumerate(values):
            try:
                value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise request_errors.invalid(
                    f"{name}[{number}] is not UTF-8: {error}."
                ) from error


def _texts(inputs):
    return {
        name: values
        for name, values in inputs.items()
        if isinstance(values[0], bytes)
    }


def with_tags(inputs: Inputs, card: Mapping[str, Any]) -> Inputs:
    """Return inputs whose sources have tags, if the model has many languages.

    A source names its languages by a tag, or the request by inputs; the model
    may have others for the rest.

    Raises:
        RequestError: a language is missing, or the model does not know it.
    """
    data, sources = card.get("data", {}), inputs.get("inputs", [])
    if not (known := data.get("target_languages")):
        return inputs
    none = [b""] * len(sources)
    columns = (inputs.get(name, none) for name in (TARGET, SOURCE))
    tagged = []
    for number, row in enumerate(zip(sources, *columns, strict=True)):
        source, *asked = (value.decode("utf-8") for value in row)
        try:
            _, own = split_direction(source)[0]
            if "-" in asked[0] and source.strip() and own not in known:
                # Python's "en-de" is no language, as in the graph.
                check_language("target", asked[0], known)
            tagger = tagger_of(data, *asked)
            assert tagger, "the model has languages"
            tagged.append(tagger(source).encode("utf-8"))
        except errors.UserError as error:
            raise request_errors.invalid(
                f"inputs[{number}]: {error}"
            ) from error
    return inputs | {"inputs": tagged}
