"""The training of section 5: data, hardware, optimizer, regularization."""

import contextlib
import dataclasses
import pathlib
import time

import keras
import tensorflow as tf

from t2t_repro.data import batches
from t2t_repro.models import transformer
from t2t_repro.reports import cost
from t2t_repro.training import (
    capacity,
    checkpoints,
    fitting,
    hardware,
    loss,
    optimizer,
    progress,
    step,
    watch,
    workers,
)
from t2t_repro.training.evaluation import Evaluation, Sample
from t2t_repro.training.session import Profiler, StopSignals, exit_code
from t2t_repro.training.validation import Validation


@dataclasses.dataclass(frozen=True)
class Options:
    """What is not a hyperparameter: it changes no result, or names a run."""

    train_steps: int
    eval_every: int
    save_checkpoints_steps: int
    random_seed: int
    save_checkpoints_secs: int | None = None  # instead of …_steps
    keep_checkpoint_max: int = 20
    max_tokens_per_replica: int | None = None
    eval_bleu_sentences: int = 0
    early_stopping_evals: int | None = None
    warm_start_from: str | None = None
    strategy: tf.distribute.Strategy = dataclasses.field(
        default_factory=tf.distribute.get_strategy  # one device
    )
    mixed_precision: str = "auto"
    xla: str = "auto"
    recompute_grad: bool = False
    profile: bool = False


def train(hparams, subwords, plan, corpora, output_dir, options) -> int:
    """Trains to options.train_steps, from the latest checkpoint if there is.

    Args:
        hparams: HParams.
        subwords: Subwords, the vocabulary.
        plan: of corpora["train"].
        corpora: {"train": Corpus, "validation": Corpus}.
        output_dir: checkpoints/ and TensorBoard events go here, the chief's.
        options: Options.

    Returns:
        The exit code: 0, or 130 or 143 after Ctrl-C or SIGTERM, to whichever
        worker.

    Raises:
        UserError: a loss, a gradient or a weight is not finite.
    """
    training = _Training(
        hparams, subwords, plan, corpora, pathlib.Path(output_dir), options
    )
    first_step = training.restore()
    training.describe(first_step)
    if first_step >= options.train_steps:
        print(
            f"Nothing to do: {first_step:,} steps are done, "
            f"--train_steps={options.train_steps}."
        )
        return 0
    with training.workers.folder_to_write(output_dir) as folder:
        return training.run(first_step, folder)


class _Training:
    """The parts of a training, and the loop over them."""

    def __init__(self, hparams, subwords, plan, corpora, output_dir, options):
        self.hparams, self.options = hparams, options
        self.subwords = subwords
        self.plan, self.corpora = plan, corpora
        self.output_dir = output_dir
        self.strategy = options.strategy
        self.workers = workers.of(self.strategy)
        self.xla = hardware.use_xla(options.xla)
        self.policy = hardware.dtype_policy(options.mixed_precision)
        # Initial weights are a function of the seed as well.
        keras.utils.set_random_seed(options.random_seed)
        with self.strategy.scope():
            self.model = transformer.build(
                hparams, subwords.size, self.policy, options.recompute_grad
            )
            self.optimizer = optimizer.build(
                hparams, self.model.trainable_variables, self.policy
            )
        self.fit = None
        if not options.max_tokens_per_replica:
            self.fit = fitting.search(
                self.model, self.optimizer, plan, self.strategy, self.xla
            )
        if self.fit:
            options = self.options = dataclasses.replace(
                options, max_tokens_per_replica=self.fit.slots
            )
        self.checkpoints = checkpoints.Checkpoints(
            self.model,
            self.optimizer,
            output_dir / "checkpoints",
            options.keep_checkpoint_max,
            subwords.sha256,
        )
        self.train_step = watch.CountedStep(
            step.build_train_step(
                self.model,
                self.optimizer,
                hparams,
                options.random_seed,
                self.strategy,
                self.xla,
                loss.parts_needed(
                    plan,
                    self.strategy.num_replicas_in_sync,
                    options.max_tokens_per_replica,
                    subwords.size,
                ),
            ),
            self.xla,
        )
        self.validation = Validation(
            self.model,
            hparams,
            corpora["validation"],
            self.strategy,
            self.xla,
            options.max_tokens_per_replica,
        )
        self.sample = None
        if options.eval_bleu_sentences and self.workers.is_chief:
            self.sample = Sample(
                self.model,
                subwords,
                corpora["validation"],
                hparams,
                options.eval_bleu_sentences,
            )
        self.guard = watch.Guard(
            self.policy, self._describe_batch, self._newest_checkpoint
        )

    def restore(self) -> int:
        """Restores the latest checkpoint; the steps that are done.

        The chief's latest: it may have to set damaged ones aside.
        """
        chief = self.workers.is_chief
        path = self.checkpoints.restore_latest() if chief else None
        step = self.workers.gather(checkpoints.step_of(path) if path else 0)[0]
        if step and not chief:
            path = self.checkpoints.restore(step)
        if path:
            print(f"Continuing from {path}.")
        elif self.options.warm_start_from:
            checkpoints.restore_weights(
                self.model,
                self.options.warm_start_from,
                self.subwords.sha256,
            )
            print(
                f"Starting from the weights of {self.options.warm_start_from}."
            )
        return int(self.optimizer.iterations.numpy())

    def describe(self, first_step):
        """Prints what is about to happen."""
        hparams, options = self.hparams, self.options
        replicas = self.strategy.num_replicas_in_sync
        epochs = options.train_steps / self.plan.steps_per_epoch
        limit = options.max_tokens_per_replica
        pairs, used = len(self.corpora["train"]), self.plan.num_pairs
        lines = {
            "parameters": f"{self.model.count_params():,}",
            "vocabulary": f"{self.model.vocab_size:,} subwords",
            "hardware": f"{hardware.describe(self.strategy)}, {self.policy}, "
            f"XLA {'on' if self.xla else 'off'}",
            "batch": self.plan.describe()
            + f" (batch_tokens={hparams.batch_tokens:,}, in "
            f"{hparams.batch_unit.replace('_', ' ')})",
            "per replica": f"1/{replicas} of it"
            + (f", at most {limit:,} slots at once" if limit else "")
            + (f", {self.fit.describe()}" if self.fit else ""),
            "pairs": f"{used:,}; {pairs - used:,} longer than max_length="
            f"{hparams.max_length} are left out",
            "steps": f"{options.train_steps:,} = {epochs:,.1f} epochs; "
            f"{first_step:,} done",
            "learning rate": f"{hparams.learning_rate_schedule}, peak "
            f"{optimizer.peak_learning_rate(hparams):.3g} at step "
            f"{hparams.learning_rate_warmup_steps:,}",
            "output": str(self.output_dir),
        }
        for name, text in lines.items():
            print(f"{name:>14}: {text}", flush=True)

    def run(self, first_step, folder) -> int:
        """Steps, validations and checkpoints; the exit code.

        Events and figures go to `folder`.
        """
        last_step = self.options.train_steps
        patience = self.options.early_stopping_evals
        evaluation = Evaluation(
            self.validation, self.sample, folder, first_step
        )
        saved_at = time.monotonic()
        elements = iter(self._batches(first_step))
        with (
            contextlib.closing(self._progress(folder, first_step)) as show,
            self.workers.watch(show.check),
            StopSignals() as stop,
            Profiler(folder, self.options.profile) as profiler,
        ):
            for done in range(first_step + 1, last_step + 1):
                profiler.before_step(done - first_step)
                outcome = self.train_step(next(elements))
                show.step_done(outcome, self.train_step.compilations)
                if self.train_step.surprise:
                    show.say(f"step {done:,}: {self.train_step.surprise}")
                # A signal to one worker stops all of them, after this step.
                signal = max(self.workers.gather(stop.received))
                last = done == last_step or signal
                if done % self.options.eval_every == 0 or done == last_step:
                    self._evaluate(evaluation, done, show)
                    enough = evaluation.no_longer_improves(patience, show)
                    # The chief knows all validations of the run.
                    last = last or self.workers.gather(enough)[0]
                due = self._checkpoint_due(done, saved_at)
                if last or due:
                    self._save(done, show, due)
                    saved_at = time.monotonic()
                if last:
                    break
            self.workers.gather(0)  # none leaves while another is at work
        print(f"Stopped after step {done:,}; checkpoint ckpt-{done}.")
        return 0 if done == last_step else exit_code(signal)

    def _progress(self, folder, first_step):
        peak = capacity.peak_flops(self.policy)
        mean_length = self.plan.tokens["targets"] / self.plan.num_pairs
        of_a_token = cost.training_flops_per_token(
            self.hparams, self.subwords.size, mean_length
        )
        return progress.Progress(
            folder,
            first_step,
            self.options.train_steps,
            lambda done: optimizer.learning_rate(self.hparams, done),
            self.guard,
            peak and peak / of_a_token,
        )

    def _evaluate(self, evaluation, done, show):
        """Measures, unless a weight is not finite."""
        self._check_weights(done)
        with optimizer.averaged_weights(
            self.optimizer, self.model.trainable_variables
        ):
            evaluation.run(done, show)

    def _check_weights(self, done):
        self.guard.check_weights(
            done, self.model.variables + self.optimizer.variables
        )

    def _save(self, done, show, scheduled):
        """The chief writes a checkpoint, unless something is not finite."""
        show.check()
        with show.pause():
            self._check_weights(done)
            show.flush()
            if self.workers.is_chief:
                self.checkpoints.save(done, scheduled)

    def _describe_batch(self, done):
        """The batch of step `done`, for people."""
        batch = self.plan.batch(done - 1)
        counts = batches.count(self.corpora["train"], batch)
        return (
            f"{counts.sentences:,} sentences in {batch.num_rows} rows of "
            f"{batch.row_length} slots"
        )

    def _newest_checkpoint(self):
        listed = checkpoints.list_checkpoints(self.output_dir / "checkpoints")
        return listed[-1] if listed else None

    def _batches(self, first_step):
        # Endless: else workers would ask each other before every step whether
        # all of them have one more batch.
        return self.strategy.distribute_datasets_from_function(
            lambda context: batches.training_dataset(
                self.corpora["train"],
                self.plan,
                first_step,
                self.options.train_steps,
                context,
                self.options.max_tokens_per_replica,
            ).repeat()
        )

    def _checkpoint_due(self, done, saved_at):
        if self.options.save_checkpoints_secs:
            seconds = time.monotonic() - saved_at
            return seconds >= self.options.save_checkpoints_secs
        return done % self.options.save_checkpoints_steps == 0
