"""Callbacks: the interface of experiment trackers.

@callbacks.register("printer")
class Printer(Callback):
    \"\"\"Print each validation.\"\"\"

    def on_validation_end(self, step, results):
        print(step, results)
"""

import contextlib
import logging
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from t2t_repro import errors, registry
from t2t_repro.runs import run_log


class Callback:
    """Base class of callbacks; a subclass overrides what it needs.

    Callbacks run in the first worker, between two steps. Their time is not part
    of any rate.
    """

    stop_reason: str | None = None  # that of request_stop()
    steps_between: int = 1  # on_step_end() observes every n-th step; 0: none

    def request_stop(self, reason: str) -> None:
        """End the training after this step, with a checkpoint and status 0.

        `reason` is printed. Any method may call it. In on_checkpoint_begin()
        and on_checkpoint_saved() it is too late for their step: the next one is
        the last.
        """
        self.stop_reason = reason

    def on_train_begin(self, output_dir: pathlib.Path, step: int) -> None:
        """Prepare for the steps after `step`, which are those of a session.

        An exception ends the training before its first step. Exceptions of the
        other methods are logged, and training continues.
        """

    def on_epoch_begin(self, epoch: int, step: int) -> None:
        """Observe the begin of an epoch, counted from 1, before `step`.

        If a step has pairs of two epochs, it is part of the earlier one.
        """

    def on_epoch_end(self, epoch: int, step: int) -> None:
        """Observe the end of an epoch, after its last step."""

    def on_step_end(self, step: int, values: Mapping[str, float]) -> None:
        """Observe the loss, learning_rate and gradient_norm of a step.

        They are fetched only if a callback overrides this method: the host
        then waits for the device after each step that it observes.
        """

    def on_validation_end(self, step: int, results: Mapping[str, Any]) -> None:
        """Observe results: loss, perplexity, and others of validation.json."""

    def on_checkpoint_begin(self, step: int) -> None:
        """Prepare for a checkpoint, which may replace older ones."""

    def on_checkpoint_saved(self, step: int, path: pathlib.Path) -> None:
        """Observe a checkpoint, which is on the disk."""

    def on_train_end(self) -> None:
        """Release what on_train_begin() opened; called after errors, too."""


class Callbacks:
    """Several callbacks, whose errors do not end the training."""

    def __init__(
        self,
        callbacks: Sequence[Callback],
        steps_per_epoch: float,
        pause: Callable[[], AbstractContextManager[None]],
    ):
        """Keep the callbacks, and TrainLog.pause, in which they are called."""
        self._callbacks, self._pause = callbacks, pause
        self._steps_per_epoch = steps_per_epoch

    @contextlib.contextmanager
    def session(self, output_dir: pathlib.Path, step: int) -> Iterator[None]:
        """Call on_train_begin() now, and on_train_end() at the end.

        Raises:
            UserError: on_train_begin() raised an exception; names both.
        """
        try:
            for callback in self._callbacks:
                try:
                    callback.on_train_begin(output_dir, step)
                except Exception as error:
                    raise errors.UserError(
                        f"The callback {_name(callback)} could not begin: "
                        f"{type(error).__name__}: {error}. Correct it, or "
                        "train without it."
                    ) from error
            yield
        finally:
            self.call("on_train_end")

    def step_begin(self, step: int) -> None:
        """Call on_epoch_begin() if `step` is the first of an epoch."""
        epoch = self._epoch(step)
        if step == 1 or self._epoch(step - 1) != epoch:
            self.call("on_epoch_begin", epoch, step)

    def step_end(
        self, step: int, values: Callable[[], Mapping[str, float]]
    ) -> None:
        """Call on_step_end() and, after the last step of one, on_epoch_end().

        The function returns what on_step_end() observes.
        """
        observers = [
            callback
            for callback in self._callbacks
            if type(callback).on_step_end is not Callback.on_step_end
            and callback.steps_between
            and step % callback.steps_between == 0
        ]
        if observers:
            self._call(observers, "on_step_end", step, values())
        epoch = self._epoch(step)
        if self._epoch(step + 1) != epoch:
            self.call("on_epoch_end", epoch, step)

    @property
    def stop_reason(self) -> str | None:
        """Callback that has requested a stop, and its reason; None: none."""
        for callback in self._callbacks:
            if callback.stop_reason is not None:
                return f"callback {_name(callback)}: {callback.stop_reason}"
        return None

    def _epoch(self, step):
        """Return the epoch of the first pair of a step, both from 1."""
        return 1 + int((step - 1) / self._steps_per_epoch)

    def call(self, method: str, *arguments: Any) -> None:
        """Call a method of all callbacks; log their errors."""
        self._call(self._callbacks, method, *arguments)

    def _call(self, callbacks, method, *arguments):
        for callback in callbacks:
            try:
                with self._pause():
                    getattr(callback, method)(*arguments)
            except Exception as error:
                run_log.show(
                    f"The callback {_name(callback)} failed in {method}: "
                    f"{type(error).__name__}: {error}. Training continues.",
                    logging.ERROR,
                    with_traceback=True,
                )


def _name(callback):
    return type(callback).__qualname__


def build(text: str | None) -> list[Callback]:
    """Build the registered callbacks of "name+name:key=value:key=value".

    A comma may precede a name, too.

    Raises:
        UserError: a name is unknown, or not that of a Callback class; an
            argument is wrong or missing.
    """
    items = list(filter(None, re.split(r"[+,]", text or "")))
    for item in items:
        registry.callbacks.subclass(item.partition(":")[0], Callback)
    return [registry.callbacks.construct(item, "--callbacks") for item in items]
