"""Predictions for both protocols: checks, queues and deadlines."""

import asyncio
import contextlib
import pathlib
import time
from collections.abc import Callable
from typing import NamedTuple

import grpc

from t2t_repro.serving import batching, monitoring, request_errors, versions
from t2t_repro.serving.limits import Limits

DEFAULT_SIGNATURE = "serving_default"


class Prediction(NamedTuple):
    """Outputs, with the version and signature that computed them."""

    version: int
    signature: str
    outputs: batching.Outputs


class Service:
    """One model, its queues and its metrics, for all protocols."""

    def __init__(
        self, export_dir: str | pathlib.Path, name: str, limits: Limits
    ):
        """Prepare the service; `versions.start` loads the model."""
        self.name = name
        self.limits = limits
        self.metrics = monitoring.Metrics()
        self.versions = versions.Versions(
            export_dir, name, self.metrics.version.set
        )

    async def predict(
        self,
        protocol: str,
        name: str,
        version: int | None,
        signature: str,
        read_inputs: Callable[[list[str]], batching.Inputs],
        timeout: float | None = None,
    ) -> Prediction:
        """Run a request.

        Args:
            protocol: "rest" or "grpc", a label of the metrics.
            name: name of the model.
            version: version of the model; None: the newest.
            signature: name of the signature; "": the default.
            read_inputs: converts the signature's input names to the inputs.
            timeout: seconds; None: that of the limits.

        Raises:
            RequestError: gives the reason why there is no prediction.
        """
        signature = signature or DEFAULT_SIGNATURE
        with self._measured(protocol, signature):
            model = self.versions.find(name, version)
            names = model.input_names(signature)
            inputs = read_inputs(names)
            check_inputs(inputs, names, self.limits)
            queue = model.queue(signature, self._new_queue)
            if timeout is None:
                timeout = self.limits.timeout_secs
            answer = queue.submit(inputs)
            try:
                outputs = await asyncio.wait_for(answer, timeout)
            except asyncio.TimeoutError:
                raise request_errors.RequestError(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"There was no answer within {timeout:.3g} s.",
                ) from None
        return Prediction(model.version, signature, outputs)

    @contextlib.contextmanager
    def _measured(self, protocol, signature):
        """Record a request and its seconds, whatever its outcome."""
        start = time.perf_counter()
        code = grpc.StatusCode.CANCELLED
        try:
            yield
            code = grpc.StatusCode.OK
        except request_errors.RequestError as error:
            code = error.code
            raise
        finally:
            # Unknown names share a label: clients cannot add time series.
            known = self.versions.signatures()
            labels = protocol, signature if signature in known else "unknown"
            self.metrics.requests.labels(*labels, code.name).inc()
            self.metrics.seconds.labels(*labels).observe(
                time.perf_counter() - start
            )

    def _new_queue(self, run, signature):
        return batching.Queue(
            run,
            self.limits,
            self.metrics.batch_sentences.labels(signature),
            self.metrics.waiting_sentences.labels(signature),
        )


def check_inputs(
    inputs: batching.Inputs, names: list[str], limits: Limits
) -> None:
    """Check the inputs of a request.

    Args:
        inputs: inputs by name.
        names: names of the signature's inputs, sorted.
        limits: limits of a request.

    Raises:
        RequestError: names the input that is wrong.
    """
    if sorted(inputs) != names:
        raise request_errors.invalid(
            f"The signature's inputs are {', '.join(names)}; got "
            f"{', '.join(sorted(inputs)) or 'none'}."
        )
    sizes = {name: len(values) for name, values in inputs.items()}
    size = max(sizes.values())
    if len(set(sizes.values())) > 1:
        raise request_errors.invalid(f"Inputs differ in number: {sizes}.")
    if not 1 <= size <= limits.max_batch_size:
        raise request_errors.invalid(
            f"A request must have 1 to {limits.max_batch_size} sentences; got "
            f"{size}."
        )
    for name, values in inputs.items():
        longest = max(map(len, values))
        if not limits.allow(size, longest):
            raise request_errors.invalid(
                f"{name}: sentences times bytes of the longest are {size} x "
                f"{longest:,}; at most {limits.max_batch_bytes:,} are taken. "
                "Send fewer at a time, or shorter ones."
            )
        for number, value in enumerate(values):
            _check_text(value, f"{name}[{number}]")


def _check_text(value, label):
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise request_errors.invalid(
            f"{label} is not UTF-8: {error}."
        ) from error
