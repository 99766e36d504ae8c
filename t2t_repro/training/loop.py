"""The training of section 5: data, hardware, optimizer, regularization."""

import dataclasses
import math
import pathlib
import signal
import time

import tensorflow as tf

from t2t_repro.data import batches
from t2t_repro.data import plan as plans
from t2t_repro.models import transformer
from t2t_repro.training import (
    checkpoints,
    hardware,
    optimizer,
    progress,
    step,
)
from t2t_repro.training import loss as losses


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
    early_stopping_evals: int | None = None
    warm_start_from: str | None = None
    distribution: str = "auto"
    mixed_precision: str = "auto"
    xla: str = "auto"
    profile: bool = False


def train(hparams, vocab_size, plan, corpora, output_dir, options) -> int:
    """Trains to options.train_steps, from the latest checkpoint if there is.

    Args:
        hparams: HParams.
        vocab_size: V.
        plan: of corpora["train"].
        corpora: {"train": Corpus, "validation": Corpus}.
        output_dir: checkpoints/ and TensorBoard events go here.
        options: Options.

    Returns:
        The exit code: 0, or 130 or 143 after Ctrl-C or SIGTERM.
    """
    training = _Training(
        hparams, vocab_size, plan, corpora, pathlib.Path(output_dir), options
    )
    first_step = training.restore()
    training.describe(first_step)
    if first_step >= options.train_steps:
        print(
            f"Nothing to do: {first_step:,} steps are done, "
            f"--train_steps={options.train_steps}."
        )
        return 0
    return training.run(first_step)


class _Training:
    """The parts of a training, and the loop over them."""

    def __init__(self, hparams, vocab_size, plan, corpora, output_dir, options):
        self.hparams, self.options = hparams, options
        self.plan, self.corpora = plan, corpora
        self.output_dir = output_dir
        self.strategy = hardware.strategy(options.distribution)
        self.xla = hardware.use_xla(options.xla)
        self.policy = hardware.dtype_policy(options.mixed_precision)
        # Initial weights are a function of the seed as well.
        tf.keras.utils.set_random_seed(options.random_seed)
        with self.strategy.scope():
            self.model = transformer.build(hparams, vocab_size, self.policy)
            self.optimizer = optimizer.build(
                hparams, self.model.trainable_variables
            )
        self.checkpoints = checkpoints.Checkpoints(
            self.model,
            self.optimizer,
            output_dir / "checkpoints",
            options.keep_checkpoint_max,
        )
        self.train_step = step.build_train_step(
            self.model,
            self.optimizer,
            hparams,
            options.random_seed,
            self.strategy,
            self.xla,
        )
        self.validate = _Validation(self)

    def restore(self) -> int:
        """Restores the latest checkpoint; the steps that are done."""
        path = self.checkpoints.restore_latest()
        if path:
            print(f"Continuing from {path}.")
        elif self.options.warm_start_from:
            checkpoints.restore_weights(
                self.model, self.options.warm_start_from
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
        pairs = len(self.corpora["train"])
        lines = {
            "parameters": f"{self.model.count_params():,}",
            "vocabulary": f"{self.model.vocab_size:,} subwords",
            "hardware": f"{hardware.describe(self.strategy)}, {self.policy}, "
            f"XLA {'on' if self.xla else 'off'}",
            "batch": self.plan.describe()
            + f" (batch_tokens={hparams.batch_tokens:,})",
            "per replica": f"1/{replicas} of it"
            + (f", at most {limit:,} slots at once" if limit else ""),
            "steps": f"{options.train_steps:,} = {epochs:,.1f} epochs of "
            f"{pairs:,} pairs; {first_step:,} done",
            "learning rate": f"{hparams.learning_rate_schedule}, peak "
            f"{optimizer.peak_learning_rate(hparams):.3g} at step "
            f"{hparams.learning_rate_warmup_steps:,}",
            "output": str(self.output_dir),
        }
        for name, text in lines.items():
            print(f"{name:>14}: {text}", flush=True)

    def run(self, first_step) -> int:
        """Steps, validations and checkpoints; the exit code."""
        options = self.options
        show = progress.Progress(
            self.output_dir,
            first_step,
            options.train_steps,
            lambda done: optimizer.learning_rate(self.hparams, done),
        )
        stop = _StopSignals()
        saved_at = time.monotonic()
        elements = iter(self._batches(first_step))
        for done in range(first_step + 1, options.train_steps + 1):
            self._profile(done - first_step)
            show.step_done(self.train_step(next(elements)))
            last = done == options.train_steps or stop.received
            if done % options.eval_every == 0 or done == options.train_steps:
                show.validation_done(done, self.validate.figures())
                if self.validate.stopped_improving:
                    show.say(
                        "The validation loss has not improved for "
                        f"{options.early_stopping_evals} evaluations."
                    )
                    last = True
            if last or self._checkpoint_due(done, saved_at):
                self.checkpoints.save(done)
                saved_at = time.monotonic()
            if last:
                break
        show.close()
        print(f"Stopped after step {done:,}; checkpoint ckpt-{done}.")
        return stop.exit_code

    def _batches(self, first_step):
        return self.strategy.distribute_datasets_from_function(
            lambda _: batches.training_dataset(
                self.corpora["train"],
                self.plan,
                first_step,
                self.options.train_steps,
                self.strategy.num_replicas_in_sync,
                self.options.max_tokens_per_replica,
            )
        )

    def _checkpoint_due(self, done, saved_at):
        if self.options.save_checkpoints_secs:
            seconds = time.monotonic() - saved_at
            return seconds >= self.options.save_checkpoints_secs
        return done % self.options.save_checkpoints_steps == 0

    def _profile(self, step_of_session):
        """Traces steps 11 to 20 of this session, for TensorBoard."""
        if self.options.profile and step_of_session == 11:
            tf.profiler.experimental.start(str(self.output_dir))
        if self.options.profile and step_of_session == 21:
            tf.profiler.experimental.stop()


class _Validation:
    """Loss on the validation split, and whether it still improves."""

    def __init__(self, training):
        hparams, options = training.hparams, training.options
        self._constant = losses.smoothing_constant(
            hparams.label_smoothing, training.model.vocab_size
        )
        self._patience = options.early_stopping_evals
        self._losses = []
        corpus = training.corpora["validation"]
        replicas = training.strategy.num_replicas_in_sync
        tokens = hparams.batch_tokens
        if options.max_tokens_per_replica:
            tokens = min(tokens, options.max_tokens_per_replica * replicas)
        plan = plans.build(
            corpus.lengths, "packed", tokens, hparams.max_length, seed=0
        )
        self._batches = training.strategy.distribute_datasets_from_function(
            lambda _: batches.evaluation_dataset(corpus, plan, replicas)
        )
        self._step = step.build_eval_step(
            training.model, hparams, training.strategy, training.xla
        )

    def figures(self) -> dict[str, float]:
        """Per real token: loss as trained on, perplexity, accuracy."""
        totals = [0.0] * len(losses.Sums._fields)
        for batch in self._batches:
            sums = self._step(batch)
            totals = [t + float(s) for t, s in zip(totals, sums, strict=True)]
        smoothed, plain, correct, tokens = totals
        self._losses.append(plain / tokens)
        return {
            "loss": smoothed / tokens,
            "loss_minus_smoothing_constant": smoothed / tokens - self._constant,
            "perplexity": math.exp(min(plain / tokens, 100.0)),
            "accuracy": correct / tokens,
        }

    @property
    def stopped_improving(self):
        """Whether the best loss is `early_stopping_evals` evaluations old."""
        if not self._patience or len(self._losses) <= self._patience:
            return False
        best = min(self._losses)
        return min(self._losses[-self._patience :]) > best


class _StopSignals:
    """Ctrl-C and SIGTERM let the step in progress end; a second one kills."""

    def __init__(self):
        self.received = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number, _):
        self.received = number
        print("\nFinishing this step, then saving. Again: stop at once.")
        signal.signal(number, signal.SIG_DFL)

    @property
    def exit_code(self):
        """0, or 128 + the signal's number, as shells do it."""
        return 128 + self.received if self.received else 0
