"""train.log: the messages of a training run, with time and level.

The screen shows the same messages. Warnings of libraries that use Python's
logging are in the file, too.
"""

import contextlib
import logging
import pathlib
from collections.abc import Iterator

from t2t_repro import errors

FILE = "train.log"  # in the folder of a run
_LOGGER = logging.getLogger("t2t_repro.training")
_LOGGER.setLevel(logging.INFO)
_LOGGER.propagate = False  # other handlers would print them again
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _LogFile(logging.FileHandler):
    """Handler that ignores a full disk: saving a checkpoint reports it."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error: the message is on the screen."""

    def close(self) -> None:
        """Close the file; what could not be written is lost."""
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def appending_to(folder: pathlib.Path) -> Iterator[None]:
    """Append messages to FOLDER/train.log within the context.

    An error that ends the context is logged, and raised.
    """
    handler = _LogFile(folder / FILE, encoding="utf-8")
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
