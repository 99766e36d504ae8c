"""Callbacks: the interface, and trackers for CSV files, W&B and MLflow.

@callbacks.register("printer")
class Printer(Callback):
    \"\"\"Print each validation.\"\"\"

    def on_validation_end(self, step, results):
        print(step, results)
"""

import contextlib
import csv
import logging
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from t2t_repro import errors, registry
from t2t_repro.io import arguments, files, progress
from t2t_repro.runs import run_json


class Callback:
    """Base class of callbacks; a subclass overrides what it needs.

    Callbacks run in the first worker, between two steps. Their time is not part
    of any rate.
    """

    stop_reason: str | None = None  # that of request_stop()
    steps_between: int = 1  # on_step_end() observes every n-th step; 0: none

    def request_stop(self, reason: str) -> None:
        """End the training after this step, with a checkpoint and status 0.

        `reason` is printed. Any method may call it. In on_checkpoint_begin(),
        on_checkpoint_written() and on_checkpoint_saved() it is too late for
        their step: the next one is the last.
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

    def on_checkpoint_written(self, step: int) -> None:
        """Prepare for the removal of older ones; this one is on the disk."""

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
                callback.stop_reason = None  # that of an earlier session
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
        # A quotient of two rounded numbers may be just below a whole one.
        return 1 + int((step - 1) / self._steps_per_epoch + 1e-9)

    def call(self, method: str, *arguments: Any) -> None:
        """Call a method of all callbacks; log their errors."""
        self._call(self._callbacks, method, *arguments)

    def _call(self, callbacks, method, *arguments):
        for callback in callbacks:
            try:
                with self._pause():
                    getattr(callback, method)(*arguments)
            except (Exception, SystemExit) as error:
                progress.show(
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
    items = arguments.split((text or "").replace(",", "+"))
    for item in items:
        registry.callbacks.subclass(item.partition(":")[0], Callback)
    return [registry.callbacks.construct(item, "--callbacks") for item in items]


# Trackers of experiments:
#
# --callbacks=csv
# --callbacks=wandb:project=translation+csv:every=10
# --callbacks=mlflow:experiment=translation
#
# A session that resumes a run continues the run of its tracker.


class _Tracker(Callback):
    """Base class: a tracker logs {"train/loss": value} of some steps."""

    def __init__(self, every: int = 100):
        """Log the loss of every n-th step, and each validation."""
        self.steps_between = every

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send values of a step."""
        raise NotImplementedError

    def on_step_end(self, step: int, values: Mapping[str, float]) -> None:
        self.log(step, {f"train/{name}": x for name, x in values.items()})

    def on_validation_end(self, step: int, results: Mapping[str, Any]) -> None:
        numbers = {
            f"validation/{name}": value
            for name, value in results.items()
            if isinstance(value, (int, float)) and name != "step"
        }
        self.log(step, numbers)


class Csv(_Tracker):
    """Rows "step,name,value" in RUN/metrics.csv."""

    def on_train_begin(self, output_dir: pathlib.Path, step: int) -> None:
        path = output_dir / "metrics.csv"
        self._file = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        if not self._file.tell():  # it is new
            self._writer.writerow(("step", "name", "value"))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._writer.writerows((step, *item) for item in values.items())
        self._file.flush()

    def on_train_end(self) -> None:
        self._file.close()


class Wandb(_Tracker):
    """Weights & Biases: the environment variables WANDB_… set the rest."""

    def __init__(self, project: str = "t2t_repro", every: int = 100):
        """Log to a run of the project, with the settings of run.json."""
        super().__init__(every)
        self._project = project

    def on_train_begin(self, output_dir: pathlib.Path, step: int) -> None:
        with errors.needed("wandb", "The callback wandb"):
            import wandb
        path = output_dir / "wandb_run"
        self._run = wandb.init(
            project=self._project,
            name=output_dir.name,
            id=_read_id(path),
            resume="allow",
            config=_settings(output_dir),
            dir=str(output_dir),
        )
        files.write_text(path, self._run.id)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def on_train_end(self) -> None:
        self._run.finish()


class MLflow(_Tracker):
    """MLflow: MLFLOW_TRACKING_URI names the server, or a folder."""

    def __init__(self, experiment: str = "t2t_repro", every: int = 100):
        """Log to a run of the experiment, with the settings of run.json."""
        super().__init__(every)
        self._experiment = experiment

    def on_train_begin(self, output_dir: pathlib.Path, step: int) -> None:
        with errors.needed("mlflow", "The callback mlflow"):
            import mlflow
        self._mlflow = mlflow
        path = output_dir / "mlflow_run"
        known = _read_id(path)
        mlflow.set_experiment(self._experiment)
        run = mlflow.start_run(run_id=known, run_name=output_dir.name)
        if known is None:
            mlflow.log_params(_settings(output_dir))
        files.write_text(path, run.info.run_id)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def on_train_end(self) -> None:
        self._mlflow.end_run()


def _read_id(path):
    """Return the id of a tracker's run, in a file of ours; None: no file."""
    return path.read_text("utf-8") if path.exists() else None


def _settings(output_dir):
    """Return problem, hparams set, seed and hparams of a run."""
    stored = files.read_json(output_dir / run_json.RUN, run_json.SHAPE)
    names = ("problem", "hparams_set", "random_seed")
    return {name: stored[name] for name in names} | stored["hparams"]
