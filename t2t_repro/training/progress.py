"""Progress of a training, on the screen and in TensorBoard events."""

import contextlib
import pathlib
import sys
import time

import tensorflow as tf

from t2t_repro import progress
from t2t_repro.training import loss as losses

SECONDS = 2  # between two looks at the loss: fetching it waits for the device


class Progress:
    """Takes each step's Sums; shows and records their means now and then."""

    def __init__(self, output_dir: pathlib.Path, first_step, last_step, rate):
        """Begins to show.

        Args:
            output_dir: TensorBoard events go here.
            first_step: steps that are done already.
            last_step: steps of the whole training.
            rate: function of a step that gives its learning rate.
        """
        self._step, self._last_step, self._rate = first_step, last_step, rate
        self._bar = progress.bar(
            desc="train", total=last_step, initial=first_step, unit="step"
        )
        self._events = tf.summary.create_file_writer(str(output_dir))
        self._sums, self._since, self._since_step = None, None, None

    def step_done(self, sums: losses.Sums):
        """Counts a step. Its values are fetched only when they are shown."""
        self._step += 1
        self._bar.update()
        if self._since is None:
            # The first step is mostly tracing and compiling: not counted.
            self._begin_interval()
            return
        self._sums = (
            sums
            if self._sums is None
            else tf.nest.map_structure(tf.add, self._sums, sums)
        )
        due = time.monotonic() - self._since >= SECONDS
        if due or self._step == self._last_step:
            self._show()

    @contextlib.contextmanager
    def pause(self):
        """Time that is not the steps' own: it counts in no rate."""
        began = time.monotonic()
        yield
        if self._since is not None:
            self._since += time.monotonic() - began

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

    def _begin_interval(self):
        self._sums = None
        self._since, self._since_step = time.monotonic(), self._step

    def _show(self):
        seconds = time.monotonic() - self._since
        smoothed, plain, correct, tokens, slots = map(float, self._sums)
        figures = {
            "loss": smoothed / tokens,
            "perplexity": losses.perplexity(plain / tokens),
            "accuracy": correct / tokens,
            "padding": 1 - tokens / slots,
            "learning_rate": float(self._rate(self._step)),
            "tokens_per_second": tokens / seconds,
            "steps_per_second": (self._step - self._since_step) / seconds,
        }
        for name, value in figures.items():
            self._event(f"train/{name}", value, self._step)
        self._bar.set_postfix_str(
            f"{figures['tokens_per_second']:,.0f} tokens/s, "
            f"{figures['padding']:.0%} padding, "
            f"loss {figures['loss']:.3f}, lr {figures['learning_rate']:.2e}",
            refresh=False,
        )
        self._begin_interval()
