"""Progress, tables and messages of work on the screen, and signals to stop it.

Work outlives its screen: what cannot be shown any more is lost.
"""

import contextlib
import errno
import io
import logging
import os
import pathlib
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from tqdm import tqdm

from t2t_repro import errors

LINE_SECONDS = 10  # between two lines, if there is no terminal
DELAY_SECONDS = 3  # before the first state of work that may be short
# Errors of a pipe whose reader has ended, of a terminal that was closed, and of
# a closed descriptor.
_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
# Control characters but tab and line feed; carriage returns hide a text, too.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Standard streams by descriptor: name and mode.
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
# Signals that stop work after the part in progress: Ctrl-C; the end that
# systems and job schedulers ask for; the end of a terminal or of an SSH
# connection.
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOG = "train.log"  # in the folder of a run
_LOGGER = logging.getLogger("t2t_repro.training")
_LOGGER.setLevel(logging.INFO)
_LOGGER.propagate = False  # other handlers would print them again
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class Printable:
    """Text stream that shows control characters on a terminal as escapes.

    A text from elsewhere, such as a translation or a server's message, could
    move the cursor, change the title or send input.
    """

    def __init__(self, stream: TextIO) -> None:
        """Take the stream to write to, which bars use as it is."""
        self.unescaped = stream
        self._is_terminal = stream.isatty()

    def write(self, text: str) -> int:
        """Write a text, or the escapes of its control characters."""
        if self._is_terminal:
            text = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
        return self.unescaped.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


class Screen:
    """Text stream that loses what it cannot write, and raises no error."""

    def __init__(self, stream: TextIO | None) -> None:
        """Take the stream to write to; None: there is none."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text if that is possible; return its length."""
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream if that is possible."""
        self._try("flush")

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, method, *arguments):
        if self._stream is None:
            return
        try:
            getattr(self._stream, method)(*arguments)
        except OSError as error:
            if error.errno in _GONE:
                discard(self._stream)
        except ValueError:
            if not self._stream.closed:
                raise


def discard(stream: TextIO) -> None:
    """Send what a stream still holds, and all that follows, to /dev/null.

    Otherwise Python would try again to write it at the end of the process.
    """
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


@contextlib.contextmanager
def outliving_screen() -> Iterator[None]:
    """Make standard output and error a Screen within the context."""
    with (
        contextlib.redirect_stdout(Screen(sys.stdout)),  # type: ignore[type-var]
        contextlib.redirect_stderr(Screen(sys.stderr)),  # type: ignore[type-var]
    ):
        yield


def open_closed_streams() -> list[str]:
    """Open the standard streams that the caller has closed; return their names.

    Python would have None instead of them, and a file that is opened later
    would get the descriptor, to which TensorFlow writes messages. As gnulib's
    stdopen() does, standard input is opened for writing and standard output for
    reading, so that whoever uses one of them gets an error, EBADF. Standard
    error loses its messages.
    """
    closed = []
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # The lowest descriptor that is free, which is `number`.
            os.open(
                os.devnull, os.O_RDONLY if name == "stdout" else os.O_WRONLY
            )
        if getattr(sys, name) is None:
            closed.append(name)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    return closed


class _Lines(io.TextIOBase):
    """Stream that gives each state of a bar a line of its own."""

    @property
    def beside(self) -> Screen:
        """Stream for other lines, for which tqdm need not remove a bar."""
        return Screen(sys.stderr)

    def write(self, text: str) -> int:
        line = text.strip("\r\n ")
        if line:
            self.beside.write(f"{line}\n")
            self.beside.flush()
        return len(text)


def bar(
    items: Iterable | None = None,
    desc: str | None = None,
    total: int | None = None,
    **settings: Any,
) -> tqdm:
    """Return a tqdm, with a line every ten seconds if there is no terminal.

    So a notebook, too, has lines: it would keep each state of a bar. Without
    items the caller calls update().
    """
    where: dict[str, Any]
    is_terminal = Screen(sys.stderr).isatty()  # some report the width 0
    if is_terminal and os.get_terminal_size(sys.stderr.fileno()).columns:
        stream = getattr(sys.stderr, "unescaped", sys.stderr)
        where = {"file": Screen(stream), "dynamic_ncols": True}
    else:
        where = {
            "file": _Lines(),
            "position": 0,  # no escapes of a bar below another
            "mininterval": LINE_SECONDS,
            "maxinterval": LINE_SECONDS,
            "bar_format": "{desc}: {n_fmt}/{total_fmt} {percentage:.0f}% "
            "[{elapsed}<{remaining}, {rate_fmt}{postfix}]"
            if total or hasattr(items, "__len__")
            else "{desc}: {n_fmt} [{elapsed}, {rate_fmt}{postfix}]",
        }
    return tqdm(items, desc, total, **(where | settings))


def duration(seconds: float) -> str:
    """Format a duration: "45 s", "23 min 45 s", "1 h 23 min", "35 days 2 h"."""
    rounded = round(seconds)
    for unit, size, part, part_size in (
        ("days", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        # From two days on: "26 h" is clearer than "1 days 2 h".
        if rounded >= size * (2 if unit == "days" else 1):
            whole, rest = divmod(rounded, size)
            return f"{whole:,} {unit} {rest // part_size} {part}"
    return f"{rounded} s"


def aligned(
    rows: Iterable[Sequence[str]],
    justify: Callable[[str, int], str] = str.rjust,
) -> list[str]:
    """Return a line for each row of cells of a table; all rows have as many.

    Columns have equal width. The first is left-justified, the others by
    `justify`.
    """
    rows = list(rows)
    first, *others = (max(map(len, cells)) for cells in zip(*rows, strict=True))
    return [
        "  ".join([head.ljust(first), *map(justify, cells, others)])
        for head, *cells in rows
    ]


# Signals


def handled() -> list[int]:
    """Return the NUMBERS to handle; `nohup` has SIGHUP ignored, which stays."""
    return [
        number
        for number in NUMBERS
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    ]


class StopSignals:
    """Context in which NUMBERS only set `received`.

    The work then ends after the part in progress, such as a step. A second
    signal kills the process. Only the main thread of a process can handle
    signals: in another thread, `received` stays 0.

    The handler prints nothing. It may interrupt a function that prints, and
    the reader of the output often ends by the same signal.
    """

    def __init__(self) -> None:
        self.received = 0  # the signal's number

    def __enter__(self) -> "StopSignals":
        is_main = threading.current_thread() is threading.main_thread()
        self._handlers = {
            number: signal.signal(number, self._receive)
            for number in handled()
            if is_main
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number, _):
        self.received = number
        signal.signal(number, signal.SIG_DFL)


class Stopped(Exception):
    """End of a part of the work because of a signal; its result is missing."""


def exit_code(signal_number: int) -> int:
    """Return a shell's exit code for a signal, or 0 without a signal."""
    return 128 + signal_number if signal_number else 0


# Messages of a training, which the screen shows and a file keeps


class _LogFile(logging.FileHandler):
    """Handler that ignores a full disk: saving a checkpoint reports it."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error: the message is on the screen."""

    def close(self) -> None:
        """Close the file; what could not be written is lost."""
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def logging_to(folder: pathlib.Path) -> Iterator[None]:
    """Append messages to FOLDER/train.log within the context.

    They have time and level. Warnings of libraries that use Python's logging
    are in the file, too. An error that ends the context is logged, and raised.
    """
    handler = _LogFile(folder / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_FORMAT))
    libraries = logging.getLogger()
    handler.addFilter(
        lambda record: (
            record.name == _LOGGER.name or record.levelno >= logging.WARNING
        )
    )
    for logger in (_LOGGER, libraries):
        logger.addHandler(handler)
    try:
        yield
    except errors.UserError as error:
        _LOGGER.error("%s", error)
        raise
    except Exception:
        _LOGGER.exception("The training ended with an error.")
        raise
    finally:
        for logger in (_LOGGER, libraries):
            logger.removeHandler(handler)
        handler.close()


def log(
    text: str, level: int = logging.INFO, with_traceback: bool = False
) -> None:
    """Log a message that the caller shows on the screen."""
    _LOGGER.log(level, "%s", text.strip(), exc_info=with_traceback)


def show(
    text: str, level: int = logging.INFO, with_traceback: bool = False
) -> None:
    """Print a message, and log it, if asked with the exception's traceback."""
    print(text, flush=True)
    log(text, level, with_traceback)
