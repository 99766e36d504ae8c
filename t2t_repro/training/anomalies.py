"""What can go wrong in a training, and is noticed.

Numbers that are not finite, steps far slower than their fellows, and
compilations that nobody expects.
"""

import collections
import math
import statistics

import tensorflow as tf

from t2t_repro import errors

_FELLOWS = 100  # the last steps, whose median a step is compared with
_FEWEST = 10  # steps that make a median
# A step is slow that takes several times the median, and seconds more: where
# steps take milliseconds, any other process makes some of them slow.
_TIMES_SLOWER, _SECONDS_SLOWER = 4, 1.0
_QUIET = 60  # seconds between two lines about slow steps


class Guard:
    """Ends a training whose numbers are not finite, before they are saved."""

    def __init__(self, policy, describe_batch, newest_checkpoint):
        """Takes what its message will say.

        Args:
            policy: Keras's dtype policy.
            describe_batch: function of a step -> its batch, for people.
            newest_checkpoint: function -> path, or None.
        """
        self._policy = policy
        self._describe_batch = describe_batch
        self._newest_checkpoint = newest_checkpoint
        self._last_loss = None

    def check_step(self, step, loss, gradient_norm):
        """Looks at a step; to be called for each, in order.

        Raises:
            UserError: the loss, or the gradient, is not finite. In float16 a
                gradient may overflow: loss scaling leaves that update out.
        """
        if not math.isfinite(loss):
            self._stop(step, f"The loss of step {step:,} is {loss}")
        if self._policy != "mixed_float16" and not math.isfinite(gradient_norm):
            self._stop(
                step,
                f"The gradient of step {step:,} has the norm {gradient_norm}, "
                f"with a loss of {loss:.4g}",
            )
        self._last_loss = loss

    def check_weights(self, step, variables):
        """Looks at everything that a checkpoint of `step` would hold.

        Raises:
            UserError: a value is not finite; names the first such variable.
        """
        floats = [v for v in variables if tf.as_dtype(v.dtype).is_floating]
        finite = tf.stack(
            [tf.reduce_all(tf.math.is_finite(v.value)) for v in floats]
        )
        for variable, good in zip(floats, finite.numpy(), strict=True):
            if not good:
                self._stop(
                    step,
                    f"The update of step {step:,} left values in "
                    f"{variable.path} that are not finite",
                )

    def _stop(self, step, what):
        before = (
            f"; the step before had {self._last_loss:.4g}"
            if self._last_loss is not None
            else ""
        )
        newest = self._newest_checkpoint()
        kept = (
            f"the newest checkpoint, {newest}, is from before it"
            if newest
            else "there is no checkpoint yet"
        )
        precision = (
            "" if self._policy == "float32" else "--mixed_precision=float32, "
        )
        raise errors.UserError(
            f"{what}{before}. Its batch: {self._describe_batch(step)}. Nothing "
            f"of it is saved: {kept}. Try a lower learning rate "
            "(learning_rate_constant), a longer warm-up "
            f"(learning_rate_warmup_steps), {precision}or clipped gradients "
            "(clip_grad_norm), in another --output_dir; --warm_start_from "
            "takes the weights of a checkpoint along.",
            see="the-loss-is-nan-or-does-not-fall",
        )


class SlowSteps:
    """Tells of steps far slower than their fellows, once a minute at most."""

    def __init__(self):
        self._fellows = collections.deque(maxlen=_FELLOWS)  # seconds
        self._slow = {}  # {step: seconds}, not told yet
        self._told_at = -math.inf

    def judge(self, durations: dict[int, float], now: float) -> str | None:
        """{step: seconds} of new steps -> a line about the slow ones."""
        self._fellows.extend(durations.values())
        median = statistics.median(self._fellows) if self._fellows else 0.0
        if len(self._fellows) >= _FEWEST:
            limit = max(_TIMES_SLOWER * median, median + _SECONDS_SLOWER)
            self._slow |= {s: t for s, t in durations.items() if t > limit}
        if not self._slow or now - self._told_at < _QUIET:
            return None
        step = max(self._slow, key=self._slow.get)
        line = (
            f"step {step:,} took {self._slow[step]:.1f} s; "
            f"the median is {median:.2g} s"
        )
        if len(self._slow) > 1:
            line += f" ({len(self._slow)} slow steps since {min(self._slow):,})"
        self._slow, self._told_at = {}, now
        return line


class CountedStep:
    """A training step that counts how often it has been compiled.

    A compilation is a trace of the graph or, under XLA, a shape that is new.
    """

    def __init__(self, train_step, xla):
        """Takes a tf.function of a batch, and whether XLA compiles it."""
        self._train_step, self._xla = train_step, xla
        self._shapes = set()
        self.compilations = 0
        self.surprise = None  # a line, if the last call compiled a known shape

    def __call__(self, batch):
        """Runs the step on an element of a distributed dataset."""
        parts = tf.nest.flatten(batch["targets"], expand_composites=True)
        shape = tuple(parts[0].shape)  # replicas have parts of one shape
        is_new = shape not in self._shapes
        self._shapes.add(shape)
        traces = self._train_step.experimental_get_tracing_count()
        outcome = self._train_step(batch)
        traced = self._train_step.experimental_get_tracing_count() > traces
        self.compilations += traced or (self._xla and is_new)
        self.surprise = None
        if traced and not is_new:
            self.surprise = (
                f"compiled anew (number {self.compilations}) for parts of "
                f"{' x '.join(map(str, shape))}, a known shape"
            )
        return outcome
