"""Predictions for both protocols: checks, queues and deadlines."""

import asyncio
import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import grpc

from t2t_repro.server import batching, monitoring, request_errors, versions
from t2t_repro.server.version_process import ForkServer
from t2t_repro.serving import requests
from t2t_repro.serving.requests import Limits

DEFAULT_SIGNATURE = "serving_default"
_UNKNOWN_SIGNATURE = "unknown"  # a label of metrics


class Prediction(NamedTuple):
    """Outputs, with the version and signature that computed them."""

    version: int
    signature: str
    outputs: batching.Outputs


class Service:
    """One model, its queues and its metrics, for all protocols."""

    def __init__(
        self,
        export_dir: str | pathlib.Path,
        name: str,
        limits: Limits,
        fork_server: ForkServer,
        retries: versions.Retries | None = None,
    ):
        """Prepare the service; `versions.start` loads the model.

        `name` is that of the model in requests. The default retries of loads
        that fail are TensorFlow Serving's.
        """
        self.name = name
        self.limits = limits
        self.metrics = monitoring.Metrics()
        self.versions = versions.Versions(
            export_dir,
            name,
            self.metrics,
            fork_server,
            retries or versions.Retries(),
            limits,
        )

    async def predict(
        self,
        protocol: str,
        name: str,
        version: int | None,
        signature: str,
        read_inputs: Callable[[batching.Specs], batching.Inputs],
        timeout: float | None = None,
    ) -> Prediction:
        """Run a request to a version of the model, or to the newest.

        The protocol, "rest" or "grpc", is a label of the metrics.
        read_inputs() converts the signature's specs to the inputs. The
        default timeout is that of the limits.

        Raises:
            RequestError: gives the reason why there is no prediction.
        """
        signature = signature or DEFAULT_SIGNATURE
        with self._measured(protocol, signature):
            model = self.versions.find(name, version)
            specs = model.input_specs(signature)
            inputs = read_inputs(specs)
            batching.check_inputs(inputs, self.limits)
            inputs = batching.with_defaults(inputs, specs)
            inputs = batching.with_tags(inputs, model.card)
            if fault := requests.fault(inputs, model.card):
                raise request_errors.invalid(fault)
            if timeout is None:
                timeout = self.limits.timeout_secs
            answer = model.queue(signature).submit(inputs)
            try:
                outputs = await asyncio.wait_for(answer, timeout)
            except asyncio.TimeoutError:
                raise request_errors.no_answer(
                    f"There was no answer within {timeout:.3g} s."
                ) from None
        return Prediction(model.version, signature, outputs)

    def is_large(self, outputs: batching.Outputs) -> bool:
        """Return whether an answer is refused while too many are unread."""
        values = sum(array.size for array in outputs.values())
        return values > self.limits.large_answer

    def require_read(self, unread: int) -> None:
        """Refuse a large answer if clients have not read the earlier ones.

        Raises:
            RequestError: too many bytes are unread.
        """
        if unread > self.limits.max_unread_bytes:
            self.metrics.refusals.labels("answers").inc()
            raise request_errors.unavailable(
                f"Clients have not read {unread:,} bytes of answers. Try again "
                "in a moment."
            )

    @contextlib.contextmanager
    def refusals_counted(self, protocol: str) -> Iterator[None]:
        """Count a request that is refused before its signature is known."""
        try:
            yield
        except request_errors.RequestError as error:
            labels = protocol, _UNKNOWN_SIGNATURE, error.code.name
            self.metrics.requests.labels(*labels).inc()
            raise

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
            if signature not in self.versions.signatures():
                signature = _UNKNOWN_SIGNATURE
            labels = protocol, signature
            self.metrics.requests.labels(*labels, code.name).inc()
            self.metrics.seconds.labels(*labels).observe(
                time.perf_counter() - start
            )
