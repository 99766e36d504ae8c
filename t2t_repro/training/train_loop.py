"""The training of section 5: data, hardware, optimizer, regularization."""

import contextlib
import time

import tensorflow as tf

from t2t_repro.reports import cost
from t2t_repro.training import (
    optimizer,
    schedules,
    setup,
    train_log,
    utilization,
)
from t2t_repro.training.history import History, Monitor
from t2t_repro.training.session import Profiler, StopSignals, exit_code


def train(task: setup.Task, output_dir, options, strategy=None) -> int:
    """Train to options.train_steps, from the latest checkpoint if there is.

    Args:
        task: what is trained on what.
        output_dir: checkpoints/ and TensorBoard events go here, the chief's.
        options: training.options.Options.
        strategy: tf.distribute strategy; None: one device.

    Returns:
        The exit code: 0, or 130 or 143 after Ctrl-C or SIGTERM, to whichever
        worker.

    Raises:
        UserError: a loss, a gradient or a weight is not finite.
    """
    strategy = strategy or tf.distribute.get_strategy()
    session = setup.build(task, output_dir, options, strategy)
    checkpoints = session.checkpoints()
    setup.restore(session, checkpoints)
    for name, text in setup.summary(session).items():
        print(f"{name:>14}: {text}", flush=True)
    if reason := _nothing_to_do(session):
        print(f"Nothing to do: {reason}")
        return 0
    with session.workers.folder_to_write(output_dir) as folder:
        return _Loop(session, checkpoints, folder).run()


def _nothing_to_do(session):
    """Return why there is no step to take, or None."""
    options, done = session.options, session.state.step
    if done >= options.train_steps:
        return f"{done:,} steps are done, --train_steps={options.train_steps}."
    patience, metric = (
        options.early_stopping_evals,
        options.early_stopping_metric,
    )
    # What another session found, and stopped for.
    if History(session.output_dir, done).stopped_improving(patience, metric):
        return (
            f"after {done:,} steps the validation {metric} had not improved "
            f"for {patience} evaluations. Train on without "
            "--early_stopping_evals."
        )
    return None


class _Loop:
    """Steps, validations and checkpoints of one session."""

    def __init__(self, session, checkpoints, folder):
        """Build the steps; events and figures go to `folder`."""
        self.session, self.options = session, session.options
        self.state, self.workers = session.state, session.workers
        self.checkpoints, self.folder = checkpoints, folder
        self.first_step = self.state.step
        self.last_step = self.options.train_steps
        self.train_step = session.train_step()
        self.monitor = Monitor(
            session.validation(), session.sample(), folder, self.first_step
        )
        self.guard = session.guard()
        self.saved_at = time.monotonic()

    def run(self) -> int:
        """Take steps until the last one, or a signal; return the exit code."""
        elements = iter(self.session.batches(self.first_step))
        with (
            contextlib.closing(self._progress()) as show,
            self.workers.watch(show.check),
            StopSignals() as stop,
            Profiler(self.folder, self.options.profile) as profiler,
        ):
            for done in range(self.first_step + 1, self.last_step + 1):
                profiler.before_step(done - self.first_step)
                outcome = self.train_step(next(elements))
                show.step_done(outcome, self.train_step.compilations)
                if self.train_step.surprise:
                    show.say(f"step {done:,}: {self.train_step.surprise}")
                # A signal to one worker stops all of them, after this step.
                signal = max(self.workers.gather(stop.received))
                last = done == self.last_step or signal
                if done % self.options.eval_every == 0 or (
                    done == self.last_step
                ):
                    enough = self._evaluate(done, show)
                    last = last or enough
                due = self._checkpoint_due(done)
                if last or due:
                    self._save(done, show, due)
                if last:
                    break
            self.workers.barrier()  # none leaves while another is at work
        print(f"Stopped after step {done:,}; checkpoint ckpt-{done}.")
        return 0 if done == self.last_step else exit_code(signal)

    def _progress(self):
        hparams, plan = self.session.task.hparams, self.session.task.plan
        peak = utilization.peak_flops(
            self.session.policy, self.session.strategy.num_replicas_in_sync
        )
        lengths = [n / plan.num_pairs for n in plan.tokens.values()]
        of_a_token = cost.training_flops(self.state.model, 1, *lengths)
        return train_log.Progress(
            self.folder,
            self.first_step,
            self.last_step,
            lambda done: schedules.learning_rate(hparams, done),
            self.guard,
            peak and peak / of_a_token,
        )

    def _evaluate(self, done, show):
        """Measure, unless a weight is not finite; whether to stop early."""
        self._check_weights(done)
        with optimizer.averaged_weights(
            self.state.optimizer, self.state.model.trainable_variables
        ):
            self.monitor.measure(done, show)
        enough = self.monitor.no_longer_improves(
            self.options.early_stopping_evals,
            self.options.early_stopping_metric,
            show,
        )
        # The chief knows all validations of the run.
        return self.workers.broadcast(enough)

    def _save(self, done, show, scheduled):
        """Let the chief write a checkpoint, unless something is not finite."""
        show.check()
        with show.pause():
            self._check_weights(done)
            show.flush()
            if self.workers.is_chief:
                self.checkpoints.save(done, scheduled)
        self.saved_at = time.monotonic()

    def _check_weights(self, done):
        self.guard.check_weights(done, self.state.variables)

    def _checkpoint_due(self, done):
        if self.options.save_checkpoints_secs:
            seconds = time.monotonic() - self.saved_at
            return seconds >= self.options.save_checkpoints_secs
        return done % self.options.save_checkpoints_steps == 0
