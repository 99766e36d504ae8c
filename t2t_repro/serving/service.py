"""Predictions, whichever protocol asks for them: checks, queues, deadlines."""

import asyncio
import contextlib
import dataclasses
import time
from typing import NamedTuple

import grpc

from t2t_repro.serving import batching, failure, metrics, versions

DEFAULT_SIGNATURE = "serving_default"


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a server takes on."""

    max_batch_size: int = 32  # sentences; no request may have more
    batch_timeout_ms: float = 5.0  # the first of a batch waits for others
    max_waiting: int = 1024  # sentences in a queue
    max_request_bytes: int = 4 << 20  # gRPC's own default
    max_sentence_bytes: int = 64 << 10
    timeout_secs: float = 60.0  # of requests that name no deadline


class Prediction(NamedTuple):
    """Outputs and where they come from."""

    version: int
    signature: str
    outputs: batching.Outputs


class Service:
    """One model behind the protocols."""

    def __init__(self, export_dir, name: str, limits: Limits):
        """Loads nothing yet; see versions.Versions."""
        self.name = name
        self.limits = limits
        self.metrics = metrics.Metrics()
        self.versions = versions.Versions(
            export_dir, name, self.metrics.version.set
        )

    async def predict(
        self, protocol, name, version, signature, read_inputs, timeout=None
    ) -> Prediction:
        """Runs a request.

        Args:
            protocol: "rest" or "grpc", for the metrics.
            name, version: of the model; version None is the newest.
            signature: its name; "" is the default.
            read_inputs: the signature's input names -> Inputs.
            timeout: seconds; None: the server's.

        Raises:
            Failure: why there is no prediction.
        """
        signature = signature or DEFAULT_SIGNATURE
        with self._measured(protocol, signature):
            model = self.versions.find(name, version)
            names = model.input_names(signature)
            inputs = read_inputs(names)
            check(inputs, names, self.limits)
            queue = model.queue(signature, self._new_queue)
            if timeout is None:
                timeout = self.limits.timeout_secs
            answer = queue.submit(inputs)
            try:
                outputs = await asyncio.wait_for(answer, timeout)
            except asyncio.TimeoutError:
                raise failure.Failure(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"There was no answer within {timeout:.3g} s.",
                ) from None
        return Prediction(model.version, signature, outputs)

    @contextlib.contextmanager
    def _measured(self, protocol, signature):
        """Counts a request and its seconds, however it ends."""
        start = time.perf_counter()
        code = grpc.StatusCode.CANCELLED
        try:
            yield
            code = grpc.StatusCode.OK
        except failure.Failure as error:
            code = error.code
            raise
        finally:
            # A name that a client made up must not grow into a series.
            known = self.versions.signatures()
            labels = protocol, signature if signature in known else "unknown"
            self.metrics.requests.labels(*labels, code.name).inc()
            self.metrics.seconds.labels(*labels).observe(
                time.perf_counter() - start
            )

    def _new_queue(self, run, signature):
        return batching.Queue(
            run,
            self.limits.max_batch_size,
            self.limits.batch_timeout_ms / 1000,
            self.limits.max_waiting,
            self.metrics.batch_sentences.labels(signature),
            self.metrics.waiting_sentences.labels(signature),
        )


def check(inputs: batching.Inputs, names: list[str], limits: Limits):
    """Refuses what a model must not see.

    Raises:
        Failure: what is wrong, with which input.
    """
    if sorted(inputs) != names:
        raise failure.invalid(
            f"The signature's inputs are {', '.join(names)}; got "
            f"{', '.join(sorted(inputs)) or 'none'}."
        )
    sizes = {name: len(values) for name, values in inputs.items()}
    size = max(sizes.values())
    if len(set(sizes.values())) > 1:
        raise failure.invalid(f"Inputs differ in number: {sizes}.")
    if not 1 <= size <= limits.max_batch_size:
        raise failure.invalid(
            f"A request must have 1 to {limits.max_batch_size} sentences; got "
            f"{size}."
        )
    for name, values in inputs.items():
        for number, value in enumerate(values):
            _check_sentence(value, f"{name}[{number}]", limits)


def _check_sentence(value, place, limits):
    if len(value) > limits.max_sentence_bytes:
        raise failure.invalid(
            f"{place} has {len(value):,} bytes; at most "
            f"{limits.max_sentence_bytes:,} are taken."
        )
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise failure.invalid(f"{place} is not UTF-8: {error}.") from error
