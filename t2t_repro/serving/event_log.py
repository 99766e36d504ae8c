"""Log of the embedded server, which clients cannot flood.

Lines go to the logger LOGGER, and from there to the handlers of the root
logger, which write time and severity to standard error.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

LOGGER = logging.getLogger("t2t_repro.serving")
_LINES = 10  # of one message, with any arguments
_PERIOD_SECS = 60.0


class RateLimit(logging.Filter):
    """Filter that passes a few lines of each message a minute.

    The first line of the next minute says how many were left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self._clock = clock
        self._periods: dict[Any, tuple[float, int]] = {}  # begin, lines

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record; count it."""
        key = record.name, record.msg
        now = self._clock()
        begin, lines = self._periods.get(key, (now, 0))
        if now - begin >= _PERIOD_SECS:
            if lines > _LINES:
                omitted = lines - _LINES
                record.msg = f"{record.msg} ({omitted} like it omitted)"
            begin, lines = now, 0
        self._periods[key] = begin, lines + 1
        return lines < _LINES


def start() -> None:
    """Log events, and limit the lines of all loggers in this process."""
    LOGGER.setLevel(logging.INFO)
    limit = RateLimit()
    for handler in logging.getLogger().handlers:
        handler.addFilter(limit)


def log_loop_error(
    loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    """Log an error of the event loop in one line, without its traceback.

    Such errors are those of the operating system: no descriptor is left.
    """
    LOGGER.error("%s: %s", context["message"], context.get("exception"))
