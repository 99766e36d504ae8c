"""Progress of a training, on the screen and in TensorBoard events."""

import contextlib
import math
import pathlib
import sys
import time

import numpy as np
import tensorflow as tf

from t2t_repro import progress
from t2t_repro.training import anomalies, utilization
from t2t_repro.training import loss as losses

SECONDS = 2  # between two looks at the loss: fetching it waits for the device
_BLOCK = 16  # outcomes that are fetched at once


class Progress:
    """Takes each step's Outcome; shows and records their means now and then."""

    def __init__(
        self,
        output_dir: pathlib.Path,
        first_step,
        last_step,
        rate,
        guard: anomalies.Guard,
        full_speed: float | None = None,
    ):
        """Begins to show.

        Args:
            output_dir: TensorBoard events go here.
            first_step: steps that are done already.
            last_step: steps of the whole training.
            rate: function of a step that gives its learning rate.
            guard: looks at every step's figures.
            full_speed: target tokens per second of devices that compute at
                their peak; None: unknown.
        """
        self._step, self._last_step, self._rate = first_step, last_step, rate
        self._guard, self._full_speed = guard, full_speed
        self._slow_steps = anomalies.SlowSteps()
        self._bar = progress.bar(
            desc="train", total=last_step, initial=first_step, unit="step"
        )
        # By these numbers, not by the time in their names, a reader knows
        # which file is the later one: clocks are set back.
        session = 1 + len(list(pathlib.Path(output_dir).glob("events.*")))
        self._events = tf.summary.create_file_writer(
            str(output_dir), filename_suffix=f".session-{session}"
        )
        self._outcomes = []  # of the last steps, still on the device
        self._durations = {}  # {step: seconds} of those that had a fellow
        self._rows = []  # [steps, numbers] arrays of the interval, fetched
        self._auxiliary = ()  # names of auxiliary losses
        self._timed = []  # of each of them, whether its time counts
        self._compilations = 0
        self._since = None  # when the interval began
        self._stepped_at = None  # when the last step ended

    def step_done(self, outcome, compilations: int):
        """Counts a step. Its values are fetched only when they are shown.

        Args:
            outcome: step.Outcome.
            compilations: of the step so far.
        """
        self._step += 1
        self._bar.update()
        self._outcomes.append(outcome)
        compiled = compilations > self._compilations
        self._compilations = compilations
        now = time.monotonic()
        if self._since is not None:
            self._take_time(now - self._stepped_at, compiled)
        self._stepped_at = now
        if self._since is None:
            # The first step is mostly tracing and compiling: not counted.
            self.check()
            self._begin_interval()
        elif now - self._since >= SECONDS or self._step == self._last_step:
            self.check()
            self._show()

    def check(self):
        """Fetches what the last steps told, and looks whether it is sound.

        Raises:
            UserError: something is not finite; the step is named.
        """
        if not self._outcomes:
            return
        began = time.monotonic()
        count = len(self._outcomes)
        # tf.nest flattens a dict in the order of its keys.
        self._auxiliary = sorted(self._outcomes[0].sums.auxiliary)
        rows = _fetch(self._outcomes)
        self._outcomes = []
        now = time.monotonic()
        self._judge_durations(waited=now - began, now=now)
        for step, row in enumerate(rows, self._step - count + 1):
            smoothed, _, _, tokens, *_, norm = row
            self._guard.check_step(step, smoothed / tokens, norm)
        self._rows.append(rows)

    @contextlib.contextmanager
    def pause(self):
        """Time that is not the steps' own: it counts in no rate."""
        began = time.monotonic()
        yield
        paused = time.monotonic() - began
        if self._since is not None:
            self._since += paused
            self._stepped_at += paused

    def say(self, text):
        """Prints a line without breaking the bar."""
        self._bar.write(text, file=sys.stderr)

    def validation_done(self, step, figures):
        """Shows and records {"loss": …, "perplexity": …, "accuracy": …}."""
        for name, value in figures.items():
            self._event(f"validation/{name}", value, step)
        shown = "  ".join(
            f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in figures.items()
        )
        self.say(f"step {step:,}: validation  {shown}")

    def flush(self):
        """Sends events to the disk: what comes before a checkpoint stays."""
        self._events.flush()

    def close(self):
        """Flushes events and ends the bar."""
        self._events.close()
        self._bar.close()

    def _event(self, name, value, step):
        with self._events.as_default(step):
            tf.summary.scalar(name, value)

    def _take_time(self, seconds, compiled):
        """Compiling is no time of the steps': a step that does is not timed."""
        if compiled:
            self._since += seconds
        else:
            self._durations[self._step] = seconds
        self._timed.append(not compiled)

    def _begin_interval(self):
        self._rows, self._timed = [], []
        self._since = self._stepped_at = time.monotonic()

    def _judge_durations(self, waited, now):
        """The device may lag behind the host: all steps share the wait."""
        share = waited / max(1, len(self._durations))
        line = self._slow_steps.judge(
            {step: own + share for step, own in self._durations.items()}, now
        )
        self._durations, self._stepped_at = {}, now
        if line:
            self.say(line)

    def _show(self):
        figures = self._figures(time.monotonic() - self._since)
        for name, value in figures.items():
            self._event(f"train/{name}", value, self._step)
        self._bar.set_postfix_str(_describe(figures), refresh=False)
        self._begin_interval()

    def _figures(self, seconds):
        """{name: value} of the interval's steps, which took `seconds`."""
        rows = np.concatenate(self._rows)
        smoothed, plain, correct, tokens, slots = rows[:, :5].sum(0)
        norms = rows[:, -1]
        taken = np.isfinite(norms)  # in float16 one may overflow
        figures = {
            "loss": smoothed / tokens,
            "perplexity": losses.perplexity(plain / tokens),
            "accuracy": correct / tokens,
            "padding": 1 - tokens / slots,
            "gradient_norm": norms[taken].mean() if taken.any() else math.inf,
            "learning_rate": float(self._rate(self._step)),
            "compilations": self._compilations,
            "host_memory_gb": utilization.host_memory() / 1e9,
        }
        auxiliary = rows[:, 5:-1].mean(0)
        figures |= dict(zip(self._auxiliary, auxiliary, strict=True))
        if not taken.all():
            figures["updates_left_out"] = np.count_nonzero(~taken)
        if any(self._timed):
            speed = rows[self._timed, 3].sum() / seconds
            figures["tokens_per_second"] = speed
            figures["steps_per_second"] = sum(self._timed) / seconds
            if self._full_speed:
                figures["share_of_peak"] = speed / self._full_speed
        device_memory = utilization.device_memory()
        if device_memory is not None:
            figures["device_memory_gb"] = device_memory / 1e9
        return figures


def _fetch(outcomes):
    """Return the numbers of outcomes in order, [steps, numbers] float64.

    In blocks, each one transfer. All are of one size, the last filled up: a
    stack of another number of tensors is an operation that TensorFlow has to
    build first, which takes 0.15 ms for each step.
    """
    missing = -len(outcomes) % _BLOCK
    filled = outcomes + outcomes[-1:] * missing
    blocks = [
        tf.stack(tf.nest.flatten(filled[first : first + _BLOCK])).numpy()
        for first in range(0, len(filled), _BLOCK)
    ]
    rows = np.concatenate(blocks).astype(np.float64)
    return rows.reshape(len(filled), -1)[: len(outcomes)]


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


def _describe(figures):
    """What fits a line; a narrow terminal cuts its end."""
    return ", ".join(
        form.format(figures[name])
        for name, form in _SHOWN.items()
        if name in figures
    )
