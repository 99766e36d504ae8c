"""Uploads of a run whose folder is the copy of a URL."""

import contextlib
import logging
import pathlib
from collections.abc import Iterator
from concurrent import futures

from t2t_repro import errors
from t2t_repro.io import storage
from t2t_repro.runs import run_log
from t2t_repro.training.callbacks import Callback


class Uploads(Callback):
    """Uploads after each checkpoint, in a thread beside the training."""

    def __init__(self, folder: pathlib.Path):
        """Keep the folder of the run."""
        self._folder = folder
        self._executor = futures.ThreadPoolExecutor(1)
        self._running: futures.Future | None = None

    def on_checkpoint_begin(self, step: int) -> None:
        """Wait for the last upload, whose files the new checkpoint removes."""
        running, self._running = self._running, None
        try:
            if running:
                running.result()
        except errors.UserError as error:
            run_log.show(
                f"{error} Training continues, and the next checkpoint is "
                "uploaded with what is missing.",
                logging.ERROR,
            )

    def on_checkpoint_saved(self, step: int, path: pathlib.Path) -> None:
        self._running = self._executor.submit(storage.upload, self._folder)

    def on_train_end(self) -> None:
        self._executor.shutdown()  # at_the_end() reports errors


def callbacks(folder: pathlib.Path) -> list[Callback]:
    """Return the callbacks that upload a run, none for a local folder."""
    return [Uploads(folder)] if storage.url_of(folder) else []


@contextlib.contextmanager
def at_the_end(folder: pathlib.Path) -> Iterator[None]:
    """Copy what has changed to its URL at the end, also after an error.

    Raises:
        UserError: the upload failed; the run is complete in `folder`.
    """
    try:
        yield
    except BaseException:
        try:
            storage.upload(folder)
        except errors.UserError as error:
            run_log.show(_not_uploaded(folder, error), logging.ERROR)
        raise
    try:
        storage.upload(folder)
    except errors.UserError as error:
        raise errors.UserError(_not_uploaded(folder, error)) from error


def _not_uploaded(folder, error):
    return (
        f"The last files of {folder} are not uploaded. {error} The same "
        "command uploads them."
    )
