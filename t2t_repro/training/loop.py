"""The training of section 5: data, hardware, optimizer, regularization."""

import contextlib
import time

from t2t_repro.reports import cost
from t2t_repro.training import capacity, optimizer, progress
from t2t_repro.training.evaluation import Evaluation
from t2t_repro.training.history import History
from t2t_repro.training.parts import Parts
from t2t_repro.training.session import Profiler, StopSignals, exit_code


def train(hparams, subwords, plan, corpora, output_dir, options) -> int:
    """Trains to options.train_steps, from the latest checkpoint if there is.

    Args:
        hparams: HParams.
        subwords: Subwords, the vocabulary.
        plan: of corpora["train"].
        corpora: {"train": Corpus, "validation": Corpus}.
        output_dir: checkpoints/ and TensorBoard events go here, the chief's.
        options: parts.Options.

    Returns:
        The exit code: 0, or 130 or 143 after Ctrl-C or SIGTERM, to whichever
        worker.

    Raises:
        UserError: a loss, a gradient or a weight is not finite.
    """
    training = Parts(hparams, subwords, plan, corpora, output_dir, options)
    first_step = training.restore()
    training.describe(first_step)
    if first_step >= options.train_steps:
        print(
            f"Nothing to do: {first_step:,} steps are done, "
            f"--train_steps={options.train_steps}."
        )
        return 0
    patience = options.early_stopping_evals
    # What another session found, and stopped for.
    if History(training.output_dir, first_step).stopped_improving(patience):
        print(
            f"Nothing to do: after {first_step:,} steps the validation loss "
            f"had not improved for {patience} evaluations. Train on without "
            "--early_stopping_evals."
        )
        return 0
    with training.workers.folder_to_write(output_dir) as folder:
        return _Loop(training, folder, first_step).run()


class _Loop:
    """Steps, validations and checkpoints of one session."""

    def __init__(self, parts, folder, first_step):
        """Takes Parts, where events and figures go, and the steps done."""
        self.parts, self.options = parts, parts.options
        self.folder, self.first_step = folder, first_step
        self.last_step = parts.options.train_steps
        self.evaluation = Evaluation(
            parts.validation, parts.sample, folder, first_step
        )
        self.saved_at = time.monotonic()

    def run(self) -> int:
        """Steps until the last one, or a signal; the exit code."""
        parts, first_step = self.parts, self.first_step
        elements = iter(parts.batches(first_step))
        with (
            contextlib.closing(self._progress()) as show,
            parts.workers.watch(show.check),
            StopSignals() as stop,
            Profiler(self.folder, self.options.profile) as profiler,
        ):
            for done in range(first_step + 1, self.last_step + 1):
                profiler.before_step(done - first_step)
                outcome = parts.train_step(next(elements))
                show.step_done(outcome, parts.train_step.compilations)
                if parts.train_step.surprise:
                    show.say(f"step {done:,}: {parts.train_step.surprise}")
                # A signal to one worker stops all of them, after this step.
                signal = max(parts.workers.gather(stop.received))
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
            parts.workers.gather(0)  # none leaves while another is at work
        print(f"Stopped after step {done:,}; checkpoint ckpt-{done}.")
        return 0 if done == self.last_step else exit_code(signal)

    def _progress(self):
        parts = self.parts
        peak = capacity.peak_flops(
            parts.policy, parts.strategy.num_replicas_in_sync
        )
        mean_length = parts.plan.tokens["targets"] / parts.plan.num_pairs
        of_a_token = cost.training_flops_per_token(
            parts.hparams, parts.subwords.size, mean_length
        )
        return progress.Progress(
            self.folder,
            self.first_step,
            self.last_step,
            lambda done: optimizer.learning_rate(parts.hparams, done),
            parts.guard,
            peak and peak / of_a_token,
        )

    def _evaluate(self, done, show):
        """Measures, unless a weight is not finite; whether to stop early."""
        self._check_weights(done)
        with optimizer.averaged_weights(
            self.parts.optimizer, self.parts.model.trainable_variables
        ):
            self.evaluation.run(done, show)
        patience = self.options.early_stopping_evals
        enough = self.evaluation.no_longer_improves(patience, show)
        # The chief knows all validations of the run.
        return self.parts.workers.gather(enough)[0]

    def _save(self, done, show, scheduled):
        """The chief writes a checkpoint, unless something is not finite."""
        show.check()
        with show.pause():
            self._check_weights(done)
            show.flush()
            if self.parts.workers.is_chief:
                self.parts.checkpoints.save(done, scheduled)
        self.saved_at = time.monotonic()

    def _check_weights(self, done):
        parts = self.parts
        parts.guard.check_weights(
            done, parts.model.variables + parts.optimizer.variables
        )

    def _checkpoint_due(self, done):
        if self.options.save_checkpoints_secs:
            seconds = time.monotonic() - self.saved_at
            return seconds >= self.options.save_checkpoints_secs
        return done % self.options.save_checkpoints_steps == 0
