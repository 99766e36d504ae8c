"""Log of a training run, on the screen and in TensorBoard events."""

import contextlib
import logging
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.io import progress
from t2t_repro.runs import run_log
from t2t_repro.training import anomalies, event_files, forecast, utilization
from t2t_repro.training.loss import perplexity
from t2t_repro.training.step import Outcome

SECONDS = 2  # time between fetches of the loss, which wait for the device
_BLOCK = 16  # number of outcomes fetched in one transfer


class TrainLog:
    """Log that shows and records means of the Outcomes of steps."""

    def __init__(
        self,
        output_dir: pathlib.Path,
        first_step: int,
        last_step: int,
        rate: Callable[[int], Any],
        finite_checker: anomalies.FiniteChecker,
        peak_speed: float | None = None,
        validation_steps: float = 0.0,
    ):
        """Open the progress bar and the event files.

        Args:
            output_dir: folder of the TensorBoard events.
            first_step: number of steps that are done already.
            last_step: number of steps of the whole run.
            rate: function of a step that returns its learning rate.
            finite_checker: check of every step's loss and gradient.
            peak_speed: target tokens per second of devices that compute at
                their peak; None: unknown.
            validation_steps: steps that take as long as the losses of the
                validations to come.
        """
        self._step, self._last_step, self._rate = first_step, last_step, rate
        self._finite_checker, self._peak_speed = finite_checker, peak_speed
        self._slow_steps = anomalies.SlowStepDetector()
        self._steps = last_step - first_step
        self._validation_steps = validation_steps
        self._forecast = forecast.Forecast(self._steps)
        self._bar = progress.bar(
            desc="train", total=last_step, initial=first_step, unit="step"
        )
        self._events = event_files.EventFiles(output_dir)
        self._outcomes: list[Outcome] = []  # not fetched yet
        self._durations: dict[int, float] = {}  # {step: seconds}, unchecked
        # The interval's Outcomes, whose fields are arrays [steps], and for each
        # step whether its time counts.
        self._fetched: list[Outcome] = []
        self._timed: list[bool] = []
        self._compilations = 0
        self._since: float | None = None  # when the interval began
        self._stepped_at = 0.0  # when the last step ended

    def step_done(self, outcome: Outcome, compilations: int) -> None:
        """Count a step. Its values are fetched only when they are shown.

        Args:
            outcome: result of the step.
            compilations: number of compilations so far.
        """
        self._step += 1
        self._bar.update()
        self._outcomes.append(outcome)
        compiled = compilations > self._compilations
        self._compilations = compilations
        now = time.monotonic()
        if self._since is not None:
            self._add_duration(now - self._stepped_at, compiled)
        self._stepped_at = now
        if self._since is None:
            # The first step is mostly tracing and compiling: it does not count.
            self.check()
            self._begin_interval()
        elif now - self._since >= SECONDS or self._step == self._last_step:
            self.check()
            self._show(time.monotonic() - self._since)

    def check(self) -> None:
        """Fetch the outcomes of the last steps, and check that they are finite.

        Raises:
            UserError: a loss or a gradient is not finite; names the step.
        """
        if not self._outcomes:
            return
        start = time.monotonic()
        count = len(self._outcomes)
        fetched = _fetch(self._outcomes)
        self._outcomes = []
        now = time.monotonic()
        self._report_slow_steps(waited=now - start, now=now)
        losses = fetched.sums.smoothed / fetched.sums.tokens
        steps = range(self._step - count + 1, self._step + 1)
        for values in zip(steps, losses, fetched.gradient_norm, strict=True):
            self._finite_checker.check_step(*values)
        self._fetched.append(fetched)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time within the context from all rates."""
        start = time.monotonic()
        try:
            yield
        finally:
            paused = time.monotonic() - start
            if self._since is not None:
                self._since += paused
                self._stepped_at += paused

    def write(self, text: str, level: int = logging.INFO) -> None:
        """Print a line above the bar, and log it."""
        run_log.log(text, level)
        progress.write_above(self._bar, text)

    def record_settings(self, settings: Mapping[str, Any]) -> None:
        """Record {name: value} as a text of TensorBoard."""
        rows = [{"name": key, "value": settings[key]} for key in settings]
        self._events.add_table(event_files.TRAIN, "hparams", rows, self._step)

    def validation_done(
        self,
        step: int,
        results: Mapping[str, float],
        translations: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Show and record {"loss": …, "perplexity": …, "accuracy": …}.

        Args:
            step: number of steps done.
            results: values by name.
            translations: rows of a table, a text of TensorBoard.
        """
        self._events.add_scalars(event_files.VALIDATION, results, step)
        if translations:
            self._events.add_table(
                event_files.VALIDATION, "translations", translations, step
            )
        shown = "  ".join(
            f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in results.items()
        )
        self.write(f"step {step:,}: validation  {shown}")

    def flush(self) -> None:
        """Write events to the disk, so that a checkpoint has all before it."""
        self._events.flush()

    def close(self) -> None:
        """Write events to the disk, and end the bar."""
        self._events.close()
        self._bar.close()

    def _add_duration(self, seconds, compiled):
        """Add the time of a step, unless the step compiled."""
        if compiled:
            self._since += seconds
        else:
            self._durations[self._step] = seconds
        self._timed.append(not compiled)

    def _begin_interval(self):
        self._fetched, self._timed = [], []
        self._since = self._stepped_at = time.monotonic()

    def _report_slow_steps(self, waited, now):
        """Report step-time outliers.

        The device may lag behind the host: all steps share the time waited.
        """
        share = waited / max(1, len(self._durations))
        line = self._slow_steps.add(
            {step: own + share for step, own in self._durations.items()}, now
        )
        self._durations, self._stepped_at = {}, now
        if line:
            self.write(line, logging.WARNING)

    def _show(self, seconds):
        metrics = self._metrics(seconds)
        self._events.add_scalars(event_files.TRAIN, metrics, self._step)
        # A narrow terminal cuts the end of the line.
        self._bar.set_postfix_str(_summary(metrics), refresh=False)
        self._show_forecast(seconds, metrics)
        self._begin_interval()

    def _show_forecast(self, seconds, metrics):
        """Show how long all steps take, once enough of them are timed."""
        total = self._forecast.add(sum(self._timed), seconds)
        if total is None:
            return
        memory = _summary(metrics, "host_memory_gb", "device_memory_gb")
        validations = ""
        if self._validation_steps:
            seconds = total / self._steps * self._validation_steps
            validations = (
                f", and validations {progress.duration(max(1.0, seconds))} or "
                "more"
            )
        self.write(
            f"At the speed of the first steps, {self._steps:,} steps take "
            f"{progress.duration(total)}{validations}. Memory: {memory}."
        )

    def _metrics(self, seconds: float) -> dict[str, float]:
        """Return {name: value} of the interval, which took `seconds`."""
        sums, norms = tf.nest.map_structure(
            lambda *arrays: np.concatenate(arrays), *self._fetched
        )
        tokens = sums.tokens.sum()
        taken = np.isfinite(norms)  # in float16 gradients may overflow
        metrics = {
            "loss": sums.smoothed.sum() / tokens,
            "perplexity": perplexity(sums.nll.sum() / tokens),
            "accuracy": sums.correct.sum() / tokens,
            "padding": 1 - tokens / sums.padded_tokens.sum(),
            "gradient_norm": norms[taken].mean() if taken.any() else math.inf,
            "learning_rate": float(self._rate(self._step)),
            "compilations": self._compilations,
            "host_memory_gb": utilization.host_memory() / 1e9,
        }
        metrics |= {
            name: values.mean() for name, values in sums.auxiliary.items()
        }
        if not taken.all():
            metrics["updates_left_out"] = np.count_nonzero(~taken)
        if any(self._timed):
            speed = sums.tokens[self._timed].sum() / seconds
            metrics["tokens_per_second"] = speed
            metrics["steps_per_second"] = sum(self._timed) / seconds
            if self._peak_speed:
                metrics["share_of_peak"] = speed / self._peak_speed
        device_memory = utilization.device_memory()
        if device_memory is not None:
            metrics["device_memory_gb"] = device_memory / 1e9
        return metrics


def _fetch(outcomes: list[Outcome]) -> Outcome:
    """Return one Outcome whose fields are arrays [steps] float64.

    Outcomes are transferred in blocks of one size; the last block is padded.
    For another number of tensors TensorFlow would build another stack
    operation, which takes 0.15 ms for each step.
    """
    missing = -len(outcomes) % _BLOCK
    filled = outcomes + outcomes[-1:] * missing
    blocks = [
        tf.stack(tf.nest.flatten(filled[first : first + _BLOCK])).numpy()
        for first in range(0, len(filled), _BLOCK)
    ]
    numbers = np.concatenate(blocks).astype(np.float64)
    columns = numbers.reshape(len(filled), -1)[: len(outcomes)].T
    return tf.nest.pack_sequence_as(outcomes[0], list(columns))


_SHOWN = {
    "loss": "loss {:.3f}",
    "perplexity": "perplexity {:.4g}",
    "learning_rate": "lr {:.2e}",
    "gradient_norm": "gradient {:.3g}",
    "updates_left_out": "{} updates left out",
    "tokens_per_second": "{:,.0f} tokens/s",
    "padding": "{:.0%} padding",
    "share_of_peak": "{:.0%} of peak",
    "host_memory_gb": "host {:.1f} GB",
    "device_memory_gb": "device {:.1f} GB",
    "compilations": "compilations {}",
}


def _summary(metrics, *names):
    """Return a line of metrics; without names, of all that are shown."""
    return ", ".join(
        _SHOWN[name].format(metrics[name])
        for name in names or _SHOWN
        if name in metrics
    )
