"""Log of a training run, on the screen and in TensorBoard events; its checks.

TrainLog comes first, then what it uses: checks for non-finite numbers and
memory, events of TensorBoard, and the utilization of the machine.
"""

import contextlib
import dataclasses
import logging
import math
import os
import pathlib
import re
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import keras
import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.io import progress
from t2t_repro.runtime import devices
from t2t_repro.training.step import Outcome, perplexity

SECONDS = 2  # time between fetches of the loss, which wait for the device
_BLOCK = 16  # number of outcomes fetched in one transfer
FORECAST_STEPS = 5  # that are timed, after the one that compiles
TRAIN_EVENTS, VALIDATION_EVENTS = "train", "validation"  # folders of the run
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
# In float16: skipped updates in a row after which training cannot recover.
# From any scale below 2^36 they lead to the lowest, 1e-4.
_MAX_SKIPPED = 50


class TrainLog:
    """Log that shows and records means of the Outcomes of steps."""

    def __init__(
        self,
        output_dir: pathlib.Path,
        first_step: int,
        last_step: int,
        rate: Callable[[int], Any],
        finite_checker: "FiniteChecker",
        peak_speed: float | None = None,
        validation_steps: float = 0.0,
    ):
        """Open the progress bar and the event files.

        The session takes the steps from `first_step` + 1 on, whose learning
        rates `rate` returns. Devices at their peak have `peak_speed` target
        tokens per second; None: unknown. The losses of the validations to come
        take as long as `validation_steps`.
        """
        self._step, self._last_step, self._rate = first_step, last_step, rate
        self._finite_checker, self._peak_speed = finite_checker, peak_speed
        self._steps = last_step - first_step
        self._validation_steps = validation_steps
        # The steps that a forecast is made from, and their time.
        self._forecast_steps, self._forecast_seconds = 0, 0.0
        self._bar = progress.bar(
            desc="train", total=last_step, initial=first_step, unit="step"
        )
        self._writers = _open_writers(output_dir)
        self._outcomes: list[Outcome] = []  # not fetched yet
        # The interval's Outcomes, whose fields are arrays [steps], and for each
        # step whether its time counts.
        self._fetched: list[Outcome] = []
        self._timed: list[bool] = []
        self._compilations = 0
        self._since: float | None = None  # when the interval began
        self._stepped_at = 0.0  # when the last step ended

    def step_done(self, outcome: Outcome, compilations: int) -> None:
        """Count a step and the compilations so far.

        Its values are fetched only when they are shown.
        """
        self._step += 1
        self._bar.update()
        self._outcomes.append(outcome)
        compiled = compilations > self._compilations
        self._compilations = compilations
        now = time.monotonic()
        if self._since is not None:
            self._timed.append(not compiled)
            if compiled:
                self._since += now - self._stepped_at
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
        count = len(self._outcomes)
        fetched = _fetch(self._outcomes)
        self._outcomes = []
        # The wait for the device is not part of the next step.
        self._stepped_at = time.monotonic()
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
        progress.log(text, level)
        # Lines of a bar without a terminal end each with a line feed.
        stream = getattr(self._bar.fp, "beside", self._bar.fp)
        self._bar.write(text, file=stream)

    def record_settings(self, settings: Mapping[str, Any]) -> None:
        """Record {name: value} as a text of TensorBoard."""
        rows = [{"name": key, "value": settings[key]} for key in settings]
        _add_table(self._writers[TRAIN_EVENTS], "hparams", rows, self._step)

    def validation_done(
        self,
        step: int,
        results: Mapping[str, float],
        translations: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Show and record {"loss": …, "perplexity": …, "accuracy": …}.

        Translations are rows of a table, a text of TensorBoard.
        """
        writer = self._writers[VALIDATION_EVENTS]
        _add_scalars(writer, results, step)
        if translations:
            _add_table(writer, "translations", translations, step)
        shown = "  ".join(
            f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in results.items()
        )
        self.write(f"step {step:,}: validation  {shown}")

    def flush(self) -> None:
        """Write events to the disk, so that a checkpoint has all before it."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write events to the disk, and end the bar."""
        for writer in self._writers.values():
            writer.close()
        self._bar.close()

    def _begin_interval(self):
        self._fetched, self._timed = [], []
        self._since = self._stepped_at = time.monotonic()

    def _show(self, seconds):
        metrics = self._metrics(seconds)
        _add_scalars(self._writers[TRAIN_EVENTS], metrics, self._step)
        # A narrow terminal cuts the end of the line.
        self._bar.set_postfix_str(_summary(metrics), refresh=False)
        self._show_forecast(seconds, metrics)
        self._begin_interval()

    def _show_forecast(self, seconds, metrics):
        """Show once how long all steps take, when enough of them are timed."""
        if self._forecast_steps >= FORECAST_STEPS:
            return
        self._forecast_steps += sum(self._timed)
        self._forecast_seconds += seconds
        if self._forecast_steps < FORECAST_STEPS:
            return
        total = self._forecast_seconds / self._forecast_steps * self._steps
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
            "host_memory_gb": host_memory() / 1e9,
        }
        metrics |= {
            name: values.mean()
            for name, values in (sums.terms | sums.auxiliary).items()
        }
        if not taken.all():
            metrics["updates_left_out"] = np.count_nonzero(~taken)
        if any(self._timed):
            speed = sums.tokens[self._timed].sum() / seconds
            metrics["tokens_per_second"] = speed
            metrics["steps_per_second"] = sum(self._timed) / seconds
            if self._peak_speed:
                metrics["share_of_peak"] = speed / self._peak_speed
        device_memory = peak_device_memory()
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


def _summary(metrics, *names):
    """Return a line of metrics; without names, of all that are shown."""
    return ", ".join(
        _SHOWN[name].format(metrics[name])
        for name in names or _SHOWN
        if name in metrics
    )


_SEE_NAN = "the-loss-is-nan-or-does-not-fall"


class NotFiniteError(errors.UserError):
    """A loss, a gradient or a weight that is not finite."""


@dataclasses.dataclass
class FiniteChecker:
    """Check that ends a run before non-finite numbers are saved."""

    policy: str  # Keras's dtype policy
    # For the error: a function of a step, and the path of a checkpoint or None.
    describe_batch: Callable[[int], str]
    newest_checkpoint: Callable[[], Any]
    _last_loss: float | None = dataclasses.field(default=None, init=False)
    _skipped: int = dataclasses.field(default=0, init=False)  # in a row

    def check_step(self, step: int, loss: float, gradient_norm: float) -> None:
        """Check the numbers of a step. Call it for each step, in order.

        Raises:
            NotFiniteError: the loss or the gradient is not finite. In float16 a
                gradient may overflow: loss scaling skips that update, but not
                50 in a row.
        """
        if not math.isfinite(loss):
            self._stop(step, f"The loss of step {step:,} is {loss}")
        self._skipped += 1
        if math.isfinite(gradient_norm):
            self._skipped = 0
        elif self.policy != "mixed_float16":
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
            NotFiniteError: a value is not finite; names the first variable.
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

    def check_validation(self, step: int, loss: float) -> None:
        """Check the loss of the validation that follows a step.

        Raises:
            NotFiniteError: it is not finite: weights may be too large to
                compute with.
        """
        if not math.isfinite(loss):
            raise NotFiniteError(
                f"The validation loss after step {step:,} is {loss}, so that "
                "its weights, which a checkpoint may have, are of no use. Try "
                f"{self._remedies}",
                see=_SEE_NAN,
            )

    @property
    def _remedies(self) -> str:
        precision = (
            "" if self.policy == "float32" else "--mixed_precision=float32, "
        )
        return (
            "a lower learning rate (learning_rate_constant), a longer warm-up "
            f"(learning_rate_warmup_steps), {precision}or gradient clipping "
            "(clip_grad_norm), in another --output_dir; --warm_start_from "
            "starts from the weights of a checkpoint."
        )

    def _stop(self, step: int, problem: str) -> NoReturn:
        before = (
            f"; the loss of the step before was {self._last_loss:.4g}"
            if self._last_loss is not None
            else ""
        )
        newest = self.newest_checkpoint()
        saved = (
            f"the newest checkpoint, {newest}, is from before it"
            if newest
            else "there is no checkpoint yet"
        )
        raise NotFiniteError(
            f"{problem}{before}. Its batch: {self.describe_batch(step)}. The "
            f"step is not saved: {saved}. Try {self._remedies}",
            see=_SEE_NAN,
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


# Events of TensorBoard


def _open_writers(output_dir):
    """Return a writer of events for each folder; both share tags."""
    # Readers order event files by this number, not by the time in their names,
    # since clocks may be set back.
    earlier = [*(output_dir / TRAIN_EVENTS).glob("events.*")]
    suffix = f".session-{1 + len(earlier)}"
    return {
        name: tf.summary.create_file_writer(
            str(output_dir / name), filename_suffix=suffix
        )
        for name in (TRAIN_EVENTS, VALIDATION_EVENTS)
    }


def _add_scalars(writer, scalars, step):
    with writer.as_default(step):
        for tag, value in scalars.items():
            _write(tag, np.float32(value), "scalars")


def _add_table(writer, tag, rows, step):
    """Write a table as text, with the keys of the rows as its header."""
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    for row in rows:
        cells = (str(x).replace("|", "\\|") for x in row.values())
        lines.append([cell.replace("\n", " ") for cell in cells])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    with writer.as_default(step):
        _write(tag, text, "text")


def _write(tag, value, plugin):
    """Write a value for a plugin, as tf.summary.scalar and text do.

    Those need TensorBoard.
    """
    summary = tf.compat.v1.SummaryMetadata
    metadata = summary(plugin_data=summary.PluginData(plugin_name=plugin))
    tf.summary.write(tag, value, metadata=metadata)


# Utilization of the machine


class PeakFlops(NamedTuple):
    """Published dense matrix-multiply rates of a GPU, in TFLOP/s."""

    half: float  # bfloat16 if supported, and float16, summed in float32
    single: float  # TF32 if supported, as TensorFlow computes; else float32


# The first name that is part of a device's name applies. Source: NVIDIA's data
# sheets; those of Ada and Hopper state twice these rates, with sparsity.
PEAKS = {
    "H200": PeakFlops(989.4, 494.7),
    "H100 PCIe": PeakFlops(756.5, 378.0),
    "H100 NVL": PeakFlops(835.5, 417.5),
    "H100": PeakFlops(989.4, 494.7),
    "A100": PeakFlops(312.0, 156.0),
    "A40": PeakFlops(149.7, 74.8),
    "A30": PeakFlops(165.0, 82.0),
    "A10": PeakFlops(125.0, 62.5),
    "L40S": PeakFlops(362.0, 183.0),
    "L40": PeakFlops(181.0, 90.5),
    "L4": PeakFlops(121.0, 60.0),
    "RTX 4090": PeakFlops(165.2, 82.6),  # white paper of AD102
    "RTX 3090": PeakFlops(71.0, 35.6),  # white paper of GA102
    "V100-SXM2": PeakFlops(125.0, 15.7),
    "V100-PCIE": PeakFlops(112.0, 14.0),
    "T4": PeakFlops(65.0, 8.1),
    "P100-SXM2": PeakFlops(21.2, 10.6),
    "P100-PCIE": PeakFlops(18.7, 9.3),
}


def peak_flops(policy: str, replicas: int) -> float | None:
    """Return the FLOP/s of all replicas, or None without a known GPU.

    The GPUs of other machines are assumed to be like those of this one.
    """
    names = (gpu.get("device_name", "") for gpu in devices.gpu_details())
    peaks = list(map(named_peak, names))
    if not peaks or None in peaks:
        return None
    kind = "single" if policy == "float32" else "half"
    mean = sum(getattr(peak, kind) for peak in peaks) / len(peaks)
    return 1e12 * mean * replicas


def named_peak(device_name: str) -> PeakFlops | None:
    """Return PEAKS["A100"] for "NVIDIA A100-SXM4-40GB"; None if unknown."""
    for name, peak in PEAKS.items():
        if re.search(rf"\b{name}\b", device_name):
            return peak
    return None


def host_memory() -> int:
    """Return the bytes of this process in memory.

    Linux reports the present size; macOS the largest so far, in bytes.
    """
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_device_memory() -> int | None:
    """Return the highest peak of bytes on any GPU, or None without a GPU."""
    gpus = tf.config.list_logical_devices("GPU")
    peaks = [
        tf.config.experimental.get_memory_info(gpu.name)["peak"] for gpu in gpus
    ]
    return max(peaks, default=None)
