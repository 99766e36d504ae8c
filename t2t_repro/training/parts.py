"""What a training is made of, and what it says of itself before it begins."""

import dataclasses
import pathlib

import keras
import tensorflow as tf

from t2t_repro import hparam
from t2t_repro.data import batches
from t2t_repro.models import transformer
from t2t_repro.training import (
    checkpoints,
    fitting,
    hardware,
    loss,
    optimizer,
    step,
    watch,
    workers,
)
from t2t_repro.training.evaluation import Sample
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
    decode_hparams: hparam.DecodeHParams = hparam.DecodeHParams()  # of these
    early_stopping_evals: int | None = None
    warm_start_from: str | None = None
    strategy: tf.distribute.Strategy = dataclasses.field(
        default_factory=tf.distribute.get_strategy  # one device
    )
    mixed_precision: str = "auto"
    xla: str = "auto"
    recompute_grad: bool = False
    profile: bool = False


class Parts:
    """Model, optimizer, checkpoints, steps, and what watches them."""

    def __init__(self, hparams, subwords, plan, corpora, output_dir, options):
        self.hparams, self.options = hparams, options
        self.subwords = subwords
        self.plan, self.corpora = plan, corpora
        self.output_dir = pathlib.Path(output_dir)
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
        self._find_what_fits()
        options = self.options
        self.checkpoints = checkpoints.Checkpoints(
            self.model,
            self.optimizer,
            self.output_dir / "checkpoints",
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
                options.decode_hparams,
            )
        self.guard = watch.Guard(
            self.policy, self._describe_batch, self._newest_checkpoint
        )

    def _find_what_fits(self):
        """Sets max_tokens_per_replica, where it is not given."""
        self.fit = None
        if self.options.max_tokens_per_replica:
            return
        self.fit = fitting.search(
            self.model, self.optimizer, self.plan, self.strategy, self.xla
        )
        slots = self.fit.slots if self.fit else fitting.SLOTS_ON_CPUS
        self.options = dataclasses.replace(
            self.options, max_tokens_per_replica=slots
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
            "hardware": hardware.describe(self.strategy, self.policy, self.xla),
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

    def batches(self, first_step):
        """A distributed dataset of the steps from `first_step` on."""
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
