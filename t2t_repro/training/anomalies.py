"""Checks of training: non-finite numbers, memory, slow steps, retracing."""

import collections
import contextlib
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import keras
import tensorflow as tf

from t2t_repro import errors

_WINDOW = 100  # the last steps, over which the median is taken
_MIN_STEPS = 10  # below this number no step is called slow
# A slow step takes several times the median and at least a second more: where
# steps take milliseconds, any other process makes some of them slow.
_SLOW_FACTOR, _SLOW_SECONDS = 4, 1.0
_REPORT_INTERVAL = 60  # seconds between two lines about slow steps
# In float16: skipped updates in a row after which training cannot recover.
# From any scale below 2^36 they lead to the lowest, 1e-4.
_MAX_SKIPPED = 50


class FiniteChecker:
    """Check that ends a run before non-finite numbers are saved."""

    def __init__(
        self,
        policy: str,
        describe_batch: Callable[[int], str],
        newest_checkpoint: Callable[[], Any],
    ):
        """Keep Keras's dtype policy and functions of what the error will say.

        They describe the batch of a step, and return the newest checkpoint.
        """
        self._policy = policy
        self._describe_batch = describe_batch
        self._newest_checkpoint = newest_checkpoint
        self._last_loss: float | None = None
        self._skipped = 0  # updates in a row

    def check_step(self, step: int, loss: float, gradient_norm: float) -> None:
        """Check the numbers of a step. Call it for each step, in order.

        Raises:
            UserError: the loss or the gradient is not finite. In float16 a
                gradient may overflow: loss scaling skips that update, but not
                50 in a row.
        """
        if not math.isfinite(loss):
            self._stop(step, f"The loss of step {step:,} is {loss}")
        self._skipped += 1
        if math.isfinite(gradient_norm):
            self._skipped = 0
        elif self._policy != "mixed_float16":
            self._stop(
                step,
                f"The gradient of step {step:,} has the norm {gradient_norm}, "
                f"with a loss of {loss:.4g}",
            )
        elif self._skipped >= _MAX_SKIPPED:
            self._stop(
                step,
                f"The gradients of the {_MAX_SKIPPED} steps up to {step:,} are "
                "not finite at any loss scale, so that float16 skipped all of "
                f"these updates; the gradient of step {step:,} has the norm "
                f"{gradient_norm}",
            )
        self._last_loss = loss

    def check_weights(
        self, step: int, variables: Iterable[keras.Variable]
    ) -> None:
        """Check every variable that a checkpoint of `step` would store.

        Raises:
            UserError: a value is not finite; names the first such variable.
        """
        floats = [v for v in variables if tf.as_dtype(v.dtype).is_floating]
        are_finite = tf.stack(
            [tf.reduce_all(tf.math.is_finite(v.value)) for v in floats]
        )
        for variable, is_finite in zip(floats, are_finite.numpy(), strict=True):
            if not is_finite:
                self._stop(
                    step,
                    f"The update of step {step:,} left values in "
                    f"{variable.path} that are not finite",
                )

    def _stop(self, step: int, problem: str) -> NoReturn:
        before = (
            f"; the loss of the step before was {self._last_loss:.4g}"
            if self._last_loss is not None
            else ""
        )
        newest = self._newest_checkpoint()
        saved = (
            f"the newest checkpoint, {newest}, is from before it"
            if newest
            else "there is no checkpoint yet"
        )
        precision = (
            "" if self._policy == "float32" else "--mixed_precision=float32, "
        )
        raise errors.UserError(
            f"{problem}{before}. Its batch: {self._describe_batch(step)}. The "
            f"step is not saved: {saved}. Try a lower learning rate "
            "(learning_rate_constant), a longer warm-up "
            f"(learning_rate_warmup_steps), {precision}or gradient clipping "
            "(clip_grad_norm), in another --output_dir; --warm_start_from "
            "starts from the weights of a checkpoint.",
            see="the-loss-is-nan-or-does-not-fall",
        )


@contextlib.contextmanager
def report_out_of_memory(
    slots: int, newest_checkpoint: Callable[[], Any]
) -> Iterator[None]:
    """Raise a UserError if a device has no memory for so many slots at once.

    The function returns a path, or None.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        if errors.disk_code(error):
            raise
        newest = newest_checkpoint()
        saved = (
            f"resumes from the newest checkpoint, {newest}"
            if newest
            else "starts again, since there is no checkpoint yet"
        )
        raise errors.UserError(
            f"The memory of a device does not suffice for {slots:,} slots at "
            f"once: {error.message.partition(chr(10))[0]} The same command "
            f"{saved}. End other programs that use the device, or add "
            f"--max_tokens_per_replica={max(1, slots // 2)}, or "
            "--recompute_grad.",
            see="out-of-memory",
        ) from error


class SlowStepDetector:
    """Detector of step-time outliers, which it reports once a minute."""

    def __init__(self) -> None:
        self._seconds: collections.deque[float] = collections.deque(
            maxlen=_WINDOW
        )
        self._slow: dict[int, float] = {}  # {step: seconds}, not reported
        self._reported_at = -math.inf

    def add(self, durations: dict[int, float], now: float) -> str | None:
        """Add {step: seconds} of new steps; return a line about slow ones."""
        self._seconds.extend(durations.values())
        median = statistics.median(self._seconds) if self._seconds else 0.0
        if len(self._seconds) >= _MIN_STEPS:
            limit = max(_SLOW_FACTOR * median, median + _SLOW_SECONDS)
            self._slow |= {s: t for s, t in durations.items() if t > limit}
        if not self._slow or now - self._reported_at < _REPORT_INTERVAL:
            return None
        step = max(self._slow, key=self._slow.__getitem__)
        line = (
            f"step {step:,} took {self._slow[step]:.1f} s; "
            f"the median is {median:.2g} s"
        )
        if len(self._slow) > 1:
            line += f" ({len(self._slow)} slow steps since {min(self._slow):,})"
        self._slow, self._reported_at = {}, now
        return line


class CountedStep:
    """Training step that counts how often it has been compiled.

    A compilation is a trace of the graph or, under XLA, a new shape.
    """

    def __init__(self, train_step: Any, xla: bool):
        """Wrap a tf.function of a batch, which XLA may compile."""
        self._train_step, self._xla = train_step, xla
        self._shapes: set[tuple[int, ...]] = set()
        self.compilations = 0
        # A line, if the last call compiled again for a known shape.
        self.retrace_notice: str | None = None

    def __call__(self, batch: dict[str, Any]) -> Any:
        """Run the step on an element of a distributed dataset."""
        copies = tf.nest.flatten(batch["targets"], expand_composites=True)
        shape = tuple(copies[0].shape)  # the same for every replica
        is_new = shape not in self._shapes
        self._shapes.add(shape)
        traces = self._train_step.experimental_get_tracing_count()
        outcome = self._train_step(batch)
        traced = self._train_step.experimental_get_tracing_count() > traces
        self.compilations += traced or (self._xla and is_new)
        self.retrace_notice = None
        if traced and not is_new:
            self.retrace_notice = (
                f"compiled again (number {self.compilations}) for a known "
                f"shape, {' x '.join(map(str, shape))}"
            )
        return outcome
