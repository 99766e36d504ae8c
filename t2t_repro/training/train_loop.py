"""The training loop: steps, validations, checkpoints (section 5).

train() prints a summary and runs a _Loop.
"""

import contextlib
import logging
import math
import pathlib
import shutil
import signal
import time
from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from t2t_repro.io import files, progress
from t2t_repro.io.progress import Stopped, StopSignals, exit_code
from t2t_repro.runs import checkpoint_files
from t2t_repro.runs.checkpoints import CheckpointManager
from t2t_repro.runs.history import History
from t2t_repro.runtime import devices
from t2t_repro.training import optimizer, schedules, train_log, train_session
from t2t_repro.training.callbacks import Callback, Callbacks
from t2t_repro.training.options import Options, Task
from t2t_repro.training.step import Outcome
from t2t_repro.training.train_log import FiniteChecker, NotFiniteError, TrainLog
from t2t_repro.training.train_session import Session

# Steps of a session that are profiled, after compilation. The trace of all
# operations stays in memory until it is written.
_PROFILED = range(11, 16)


def train(
    task: Task,
    output_dir: pathlib.Path,
    options: Options,
    strategy: tf.distribute.Strategy | None = None,
    callbacks: Sequence[Callback] = (),
) -> int:
    """Train to options.train_steps, from the latest checkpoint if there is one.

    `output_dir` gets checkpoints/ and, by the chief, TensorBoard events. The
    default strategy is one device. The chief calls the callbacks. The result
    and the errors are those of job.train().
    """
    strategy = strategy or tf.distribute.get_strategy()
    session = train_session.build(task, output_dir, options, strategy)
    checkpoints = train_session.restore(session)
    owes_validation = _owes_validation(session)
    for name, text in session_summary(session, owes_validation).items():
        progress.show(f"{name:>14}: {text}")
    if not owes_validation and (reason := _nothing_to_do(session)):
        progress.show(f"Nothing to do: {reason}")
        return 0
    if options.dry_run:
        return 0
    with session.worker.folder_to_write(output_dir) as folder:
        observers = callbacks if session.worker.is_chief else ()
        loop = _Loop(session, checkpoints, folder, observers)
        return loop.run(owes_validation)


def _owes_validation(session):
    """Return whether the step of the checkpoint is still to be validated.

    The last session ended between the two, by a signal or an error.
    """
    options, step = session.options, session.state.step
    is_missing = (
        0 < step <= options.train_steps
        and options.validates(step)
        and step not in History(session.output_dir, step).steps
    )
    return bool(session.worker.broadcast(is_missing))


def _nothing_to_do(session):
    """Return why there is no step to take, or None."""
    options, step = session.options, session.state.step
    if step >= options.train_steps:
        return f"{step:,} steps are done, --train_steps={options.train_steps}."
    patience = options.early_stopping_evals
    metric = session.stopping_metric
    # An earlier session may have stopped early. The chief wrote its file, which
    # others may see as it was before.
    history = History(session.output_dir, step)
    if session.worker.broadcast(history.stopped_improving(patience, metric)):
        return (
            f"after {step:,} steps the validation {metric} had not improved "
            f"for {patience} evaluations. To train on, leave out "
            "--early_stopping_evals."
        )
    return None


class _Loop:
    """Loop over the steps, validations and checkpoints of one session."""

    def __init__(
        self,
        session: train_session.Session,
        checkpoints: CheckpointManager,
        folder: pathlib.Path,
        callbacks: Sequence[Callback],
    ):
        """Build the steps; events and validation results go to `folder`."""
        self.session, self.options = session, session.options
        self.state, self.worker = session.state, session.worker
        self.checkpoints, self.folder = checkpoints, folder
        self.first_step = self.state.step
        self.last_step = self.options.train_steps
        self.batches = session.batches(self.first_step)
        spec = self.batches.element_spec
        self.train_step = session.build_train_step(spec)
        self.validation = session.build_validation()
        self.sample = session.build_validation_sample()
        self.history = History(folder, self.first_step)
        self.finite_checker = FiniteChecker(
            session.policy, session.describe_batch, session.newest_checkpoint
        )
        self.log, self.is_validated = self._open_log(), False
        self.trace = contextlib.ExitStack()  # of TensorFlow's profiler
        self.callbacks = Callbacks(
            callbacks, session.task.plan.steps_per_epoch, self.log.pause
        )
        self.stop_signals, self.stops = StopSignals(), False
        self.is_stop_requested = False  # by a callback
        self.saved_at = time.monotonic()

    def run(self, owes_validation: bool) -> int:
        """Take steps until the last one, or a signal; return the exit code.

        A validation that is owed precedes the first step.
        """
        step, code = self.first_step, None
        with (
            contextlib.closing(self.log),
            self.worker.report_lost_workers(self.log.check),
            train_log.report_out_of_memory(
                cast(int, self.session.execution.microbatches.max_tokens),
                self.session.newest_checkpoint,
            ),
            self.stop_signals,
            self.trace,
            self.callbacks.session(self.folder, self.first_step),
        ):
            if owes_validation:
                code = self._validate_saved(step)
            batches = iter(self.batches)
            while code is None:
                step += 1
                self._take_step(step, next(batches))
                code = self._finish_step(step)
            self.worker.barrier()  # the others would fail if one left
        is_done = code == 0 and step == self.last_step
        done = "Finished" if is_done else "Stopped"
        progress.show(f"{done} after step {step:,}; checkpoint ckpt-{step}.")
        return code

    def _open_log(self) -> TrainLog:
        hparams = self.session.task.hparams
        validations = self.session.options.validations_after(
            self.session.state.step
        )
        replicas = self.session.execution.strategy.num_replicas_in_sync
        peak = train_log.peak_flops(self.session.policy, replicas)
        log = train_log.TrainLog(
            self.folder,
            self.first_step,
            self.last_step,
            lambda step: schedules.learning_rate(hparams, step),
            self.finite_checker,
            peak and peak / self.session.flops_per_token,
            self.session.validation_steps(validations),
        )
        log.record_settings(vars(hparams))
        return log

    def _take_step(self, step: int, batch: dict) -> None:
        """Update the weights, and log the step."""
        number = step - self.first_step
        if self.options.profile and number == _PROFILED.start:
            profile = tf.profiler.experimental.Profile(str(self.folder))
            self.trace.enter_context(profile)
        if number == _PROFILED.stop:
            self.trace.close()
        self.callbacks.step_begin(step)
        outcome = self.train_step(batch)
        self.log.step_done(outcome, self.train_step.compilations)
        if notice := self.train_step.retrace_notice:
            self.log.write(f"step {step:,}: {notice}", logging.WARNING)
        self.callbacks.step_end(step, lambda: self._values(step, outcome))

    def _values(self, step: int, outcome: Outcome) -> dict[str, float]:
        """Return what callbacks observe of a step."""
        sums, hparams = outcome.sums, self.session.task.hparams
        return {
            "loss": float(sums.smoothed) / float(sums.tokens),
            "learning_rate": float(schedules.learning_rate(hparams, step)),
            "gradient_norm": float(outcome.gradient_norm),
        }

    def _finish_step(self, step: int) -> int | None:
        """Save and validate if due; return the exit code if the run ends here.

        The checkpoint is written first: a validation may fail, or take longer
        than the time from a signal to a kill. After a signal the next session
        validates.
        """
        received = self._stop_signal()
        is_last = step == self.last_step or self.is_stop_requested
        scheduled = step % self.options.save_checkpoints_steps == 0
        if seconds := self.options.save_checkpoints_secs:
            scheduled = time.monotonic() - self.saved_at >= seconds
        if is_saved := bool(scheduled or is_last or received):
            self._save(step, scheduled)
        code = exit_code(received) if received or is_last else None
        if self.options.validates(step) and not received:
            if is_saved:
                code = self._validate_saved(step)
            else:
                code = self._validate_unsaved(step)
                is_saved = code is not None
        if is_saved and self.worker.is_chief:
            path = self.checkpoints.path(step)
            self.callbacks.call("on_checkpoint_saved", step, path)
        return code

    def _validate_saved(self, step: int) -> int | None:
        """Validate after a checkpoint, as _validate() does; remove older ones.

        The validation may show that a checkpoint is not one of the best.
        """
        code = self._validate(step)
        if self.worker.is_chief:
            self.checkpoints.prune(self._rankings())
        return code

    def _validate_unsaved(self, step: int) -> int | None:
        """Validate, as _validate() does; save if training ends, or fails.

        Weights with which the loss is not finite are not saved.
        """
        self.log.check()
        self.finite_checker.check_weights(step, self.state.variables)
        try:
            code = self._validate(step)
        except NotFiniteError:
            raise
        except Exception:
            self._save(step, scheduled=False)
            raise
        if code is not None:
            self._save(step, scheduled=False)
        return code

    def _stop_signal(self) -> int:
        """Return the signal that any worker has received, or 0.

        Note, too, whether a callback has requested a stop.
        """
        reason = self.callbacks.stop_reason
        # One exchange for both: it takes place after each step.
        numbers = self.worker.gather(
            2 * self.stop_signals.received + (reason is not None)
        )
        number = max(numbers) // 2
        self.is_stop_requested |= any(each % 2 for each in numbers)
        if not self.stops and (number or reason is not None):
            cause, hint = f"The {reason}", ""
            if number:
                cause = signal.Signals(number).name
                hint = " A second signal stops at once."
            self.log.write(
                f"{cause}: stopping after step {self.state.step:,}, with a "
                f"checkpoint.{hint}"
            )
            self.stops = True
        return number

    def _validate(self, step: int) -> int | None:
        """Validate the weights; return the exit code if the run ends here.

        The caller has checked, or saved, or restored them.
        """
        self.trace.close()  # a search has many times a step's operations
        results = self._measure(step)
        stops = False
        if results is not None:
            self.callbacks.call("on_validation_end", step, results)
            patience = self.options.early_stopping_evals
            metric = self.session.stopping_metric
            stops = self.history.stopped_improving(patience, metric)
            if stops:
                self.log.write(
                    f"The validation {metric} has not improved for {patience} "
                    "evaluations."
                )
        # Only the chief has all validations of the run.
        stops_early = self.worker.broadcast(stops)
        is_validated = self.worker.broadcast(results is not None)
        received = self._stop_signal()
        is_last = step == self.last_step or self.is_stop_requested
        if is_last and is_validated:
            return 0
        return exit_code(received) if received or stops_early else None

    def _measure(self, step: int) -> dict[str, Any] | None:
        """Return the results of a validation; None if a signal stopped it.

        All workers stop before the same batch of the loss. The chief alone
        translates the sample, and stops for its own signals.
        """
        start = time.monotonic()
        weights = self.state.model.trainable_variables
        self.log.check()
        try:
            with (
                optimizer.averaged_weights(self.state.optimizer, weights),
                self.log.pause(),
            ):
                results = self._results(step)
                # A validation in the history is not repeated.
                self.log.flush()
                self.history.add(step, results)
        except Stopped:
            return None
        left = self.options.validations_after(step)
        if left and not self.is_validated:
            seconds = time.monotonic() - start
            self.log.write(
                f"This validation took {progress.duration(seconds)}; at that "
                f"speed, the {left:,} to come take "
                f"{progress.duration(left * seconds)}."
            )
        self.is_validated = True
        return results

    def _results(self, step: int) -> dict[str, Any]:
        """Measure loss and sample, and show them.

        Raises:
            Stopped: a signal arrived; the next session measures again.
            NotFiniteError: the loss is not finite.
        """
        assert self.validation, "--eval_every=0"
        results: dict[str, Any] = self.validation.measure(self._stop_signal)
        self.finite_checker.check_validation(step, results["loss"])
        if not self.sample:
            self.log.validation_done(step, results)
            return results | self.validation.conditions
        scores = self.sample.measure(lambda: self.stop_signals.received)
        values = {name: score.value for name, score in scores.items()}
        self.log.validation_done(
            step, results | values, self.sample.shown_translations()
        )
        if not self.is_validated:
            self.log.write(self.sample.summary(scores))
        return (
            results | self.sample.results(scores) | self.validation.conditions
        )

    def _save(self, step: int, scheduled: bool) -> None:
        """Check that all is finite, and let the chief write a checkpoint."""
        self.trace.close()
        self.log.check()
        self.callbacks.call("on_checkpoint_begin", step)
        with self.log.pause():
            self.finite_checker.check_weights(step, self.state.variables)
            self.log.flush()
            if self.worker.is_chief:
                self.checkpoints.save(step, scheduled)
        if self.worker.is_chief:
            self.callbacks.call("on_checkpoint_written", step)
            with self.log.pause():
                self.checkpoints.prune(self._rankings())
        self.saved_at = time.monotonic()

    def _rankings(self):
        return self.history.rankings(self.session.task.suite)


# Summary


def session_summary(
    session: Session, owes_validation: bool = False
) -> dict[str, str]:
    """Return a human-readable summary, {label: text}."""
    task, options = session.task, session.options
    validations = owes_validation + options.validations_after(
        session.state.step
    )
    hparams, plan = task.hparams, task.plan
    strategy = session.execution.strategy
    max_tokens, parallel = session.execution.microbatches
    epochs = options.train_steps / plan.steps_per_epoch
    peak = schedules.peak(hparams, options.train_steps)
    found = session.found_microbatch
    pairs, used = len(task.corpora["train"]), plan.num_pairs
    return {
        "parameters": f"{session.state.model.count_params():,}",
        "vocabulary": " and ".join(
            f"{vocabulary.size:,} subwords"
            for vocabulary in task.vocabularies.files.values()
        ),
        "hardware": devices.summary(
            strategy, session.policy, session.execution.xla
        ),
        "batch": f"{plan.summary()} (batch_tokens={hparams.batch_tokens:,}, "
        f"in {hparams.batch_unit.replace('_', ' ')}{_rounding(hparams, plan)})",
        "per replica": f"1/{strategy.num_replicas_in_sync} of it, at most "
        f"{max_tokens:,} slots at once"
        + (f", in {parallel} microbatches" if parallel > 1 else "")
        + (
            f", found by {found.trials} trial{'s' * (found.trials > 1)}"
            if found
            else ""
        ),
        "pairs": f"{used:,}; {pairs - used:,} longer than max_length="
        f"{hparams.max_length} are dropped",
        "validation": _validation(session, validations),
        "steps": f"{options.train_steps:,} = {epochs:,.1f} epochs; "
        f"{session.state.step:,} done",
        **_forecast(session, validations),
        "learning rate": f"{hparams.learning_rate_schedule}, peak "
        f"{peak.rate:.3g} at step {peak.step:,}",
        "checkpoints": _checkpoint_space(session),
        "output": str(session.output_dir),
    }


def _rounding(hparams, plan):
    """Return by how much a batch misses batch_tokens, if it is noticeable."""
    share = plan.target_tokens / hparams.batch_tokens - 1
    if hparams.batch_unit != "real_tokens" or abs(share) < 0.01:
        return ""
    return (
        f"; {abs(share):.0%} {'more' if share > 0 else 'fewer'} target tokens, "
        "because rows are a multiple of 8"
    )


def _validation(session, to_come):
    """Return when validations come, and what they measure."""
    options = session.options
    if not options.eval_every:
        return "none, by --eval_every=0"
    used = len(session.validation_pairs)
    translated = min(options.eval_bleu_sentences, used)
    return (
        f"after every {options.eval_every:,} steps and the last one, "
        f"{to_come:,} to come; of "
        f"{len(session.task.corpora['validation']):,} pairs {used:,} are used, "
        f"{translated:,} are translated"
    )


def _checkpoint_space(session):
    """Return the number and size of the checkpoints, and the free space."""
    options = session.options
    # One is written before another is removed.
    count = options.keep_checkpoint_max + options.keep_best_checkpoints + 1
    if not options.save_checkpoints_secs:
        count = min(
            count,
            math.ceil(options.train_steps / options.save_checkpoints_steps),
        )
    size = sum(
        math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
        for variable in session.state.variables
    )
    folder = files.nearest_existing(session.output_dir)
    free = shutil.disk_usage(folder).free
    text = (
        f"at most {count}, of {files.size_text(size)} each; the disk has "
        f"{files.size_text(free)} free"
    )
    present = len(checkpoint_files.saved(session.output_dir))
    if (count - present) * size > free:
        text += ", too few: make room, or lower --keep_checkpoint_max"
    return text


def _forecast(session, validations):
    """Return {label: text} of the time that the steps take on a CPU.

    Otherwise nothing is known of it until the first steps are done, each of
    which takes a minute for base.
    """
    steps = session.options.train_steps - session.state.step
    product = devices.cpu_product_flops(session.policy)
    if product is None or steps <= 0:
        return {}
    product *= session.execution.microbatches.parallel * session.worker.count
    step = session.task.plan.target_tokens * session.flops_per_token
    seconds = (steps + session.validation_steps(validations)) * step / product
    work = f"{steps:,} steps"
    if validations:
        work += f" and {validations:,} validation{'s' * (validations > 1)}"
    return {
        "time": f"a step needs {step / 1e12:.3g} TFLOP, and products of "
        f"matrices reach {product / 1e9:,.0f} GFLOP/s, so that {work} take "
        f"about {progress.duration(max(1.0, seconds))} or more"
    }
