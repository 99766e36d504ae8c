"""Metrics of the server for Prometheus, and its log.

Clients cannot flood the log. Its lines go to the logger LOGGER, and from there
to the handlers of the root logger, which write time and severity to standard
error.
"""

import asyncio
import contextlib
import functools
import logging
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import prometheus_client as prometheus

LOGGER = logging.getLogger("t2t_repro.serving")
_LINES = 10  # of one message in a period, with any arguments
_PERIOD_SECS = 60.0

CONTENT_TYPE = prometheus.CONTENT_TYPE_PLAIN_0_0_4
# From one cached word on a GPU to a page of text on a slow CPU.
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        registry = self._registry = prometheus.CollectorRegistry()
        counter = functools.partial(prometheus.Counter, registry=registry)
        gauge = functools.partial(prometheus.Gauge, registry=registry)
        histogram = functools.partial(prometheus.Histogram, registry=registry)
        labels = ("protocol", "signature")
        self.requests = counter(
            "t2t_requests",
            "Requests answered, by gRPC's name of the outcome.",
            (*labels, "code"),
        )
        self.seconds = histogram(
            "t2t_request_seconds",
            "From a request's arrival to its answer.",
            labels,
            buckets=_SECONDS,
        )
        self.batch_sentences = histogram(
            "t2t_batch_sentences",
            "Sentences that went through the model together.",
            ("signature",),
            buckets=_SENTENCES,
        )
        self.waiting_sentences = gauge(
            "t2t_waiting_sentences", "Sentences in the queue.", ("signature",)
        )
        self.version = gauge("t2t_model_version", "The version that answers.")
        self.http_responses = counter(
            "t2t_http_responses",
            "Answers over REST, to requests of any kind.",
            ("status",),
        )
        self.connections = gauge("t2t_connections", "Open connections of REST.")
        self.refusals = counter(
            "t2t_refusals",
            "Requests and connections refused without a look at the content.",
            ("reason",),
        )
        self.version_loads = counter(
            "t2t_version_loads",
            "Versions of the model that were loaded, or failed to load.",
            ("outcome",),
        )
        self.version_crashes = counter(
            "t2t_version_crashes",
            "Processes of versions that ended by themselves.",
        )

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return prometheus.generate_latest(self._registry)


class RateLimit(logging.Filter):
    """Filter that passes a few lines of each message a minute.

    The first line of a message in the next minute says how many were left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self._clock = clock
        self._begin = clock()  # of this minute
        # Lines of each message. Only two minutes are kept, so that messages
        # that never return do not fill the memory.
        self._lines: Counter = Counter()
        self._lines_before: Counter = Counter()  # in the minute before

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record; count it."""
        now = self._clock()
        if now - self._begin >= _PERIOD_SECS:
            self._begin = now
            self._lines, self._lines_before = Counter(), self._lines
        message = record.name, record.msg
        omitted = self._lines_before.pop(message, 0) - _LINES
        if omitted > 0:
            record.msg = f"{record.msg} ({omitted} like it omitted)"
        self._lines[message] += 1
        return self._lines[message] <= _LINES


def escape(record: logging.LogRecord) -> bool:
    """Escape what clients could write to the log, as a new line; return True.

    Lines of tracebacks begin with spaces, so that they do not look like others.
    """
    with contextlib.suppress(TypeError, ValueError):  # the handler reports it
        record.msg, record.args = _printable(record.getMessage()), ()
    if record.exc_info and not record.exc_text:
        text = logging.Formatter().formatException(record.exc_info)
        lines = map(_printable, text.split("\n"))
        record.exc_text = textwrap.indent("\n".join(lines), "  ")
    return True


def _printable(text):
    return "".join(
        letter
        if letter.isprintable()
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def start_log() -> None:
    """Log events, and limit the lines of all loggers in this process."""
    LOGGER.setLevel(logging.INFO)
    limit = RateLimit()
    for handler in logging.getLogger().handlers:
        handler.addFilter(limit)
        handler.addFilter(escape)


def log_loop_error(
    loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    """Log an error of the event loop in one line, without its traceback.

    Such errors are those of the operating system: no descriptor is left.
    """
    LOGGER.error("%s: %s", context["message"], context.get("exception"))
