"""Session of a training run: its construction and start."""

import dataclasses
import pathlib
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_repro.data import batch_plan, batches
from t2t_repro.models import building, seq2seq
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runs import checkpoint_files, run_log
from t2t_repro.runs.checkpoints import CheckpointManager, restore_weights
from t2t_repro.runtime import devices
from t2t_repro.training import anomalies, microbatch_size, optimizer, step
from t2t_repro.training.options import Options, ResolvedOptions
from t2t_repro.training.task import Task
from t2t_repro.training.validation import Validation, ValidationSample


class TrainingState(NamedTuple):
    """Model and optimizer, whose variables a checkpoint stores."""

    model: Seq2Seq
    optimizer: keras.optimizers.Optimizer

    @property
    def step(self) -> int:
        """Number of steps done."""
        return int(self.optimizer.iterations.numpy())

    @property
    def variables(self) -> list[keras.Variable]:
        """Variables of model and optimizer."""
        return self.model.variables + self.optimizer.variables


@dataclasses.dataclass(frozen=True)
class Session:
    """Everything that one session of a training run needs."""

    task: Task
    options: ResolvedOptions
    output_dir: pathlib.Path
    strategy: tf.distribute.Strategy
    worker: devices.Worker
    policy: str  # Keras's dtype policy
    xla: bool
    state: TrainingState
    # None if max_tokens_per_replica was given, or on CPUs.
    found_microbatch: microbatch_size.MicrobatchSize | None

    @property
    def flops_per_token(self) -> float:
        """Multiplications and additions of training on a target token."""
        plan = self.task.plan
        lengths = [n / plan.num_pairs for n in plan.tokens.values()]
        return seq2seq.training_flops(self.state.model, 1, *lengths)

    @property
    def validation_pairs(self) -> np.ndarray:
        """Indices of the pairs whose loss a validation measures."""
        return batch_plan.usable_pairs(
            self.task.corpora["validation"].lengths,
            self.task.hparams.max_length,
            self.options.eval_pairs,
        )

    @property
    def validation_steps(self) -> float:
        """Steps that take as long as the losses of the validations to come.

        Without the backward pass, a token has a third of a step's FLOPs.
        """
        plan = self.task.plan
        lengths = self.task.corpora["validation"].lengths["targets"]
        tokens = lengths[self.validation_pairs].sum() / 3
        count = self.options.validations_after(self.state.step)
        return count * tokens * plan.steps_per_epoch / plan.tokens["targets"]

    def build_checkpoint_manager(self) -> CheckpointManager:
        """Build the writer and reader of checkpoints."""
        return CheckpointManager(
            *self.state,
            self.output_dir / checkpoint_files.CHECKPOINTS,
            self.options.keep_checkpoint_max,
            self.task.vocabularies.sha256,
            self.options.keep_best_checkpoints,
        )

    @property
    def stopping_metric(self) -> str:
        """The early-stopping metric."""
        return self.options.stopping_metric(self.task.suite)

    @property
    def microbatches(self) -> batches.Microbatches:
        """The microbatches of a replica."""
        return batches.Microbatches(
            self.options.max_tokens_per_replica,
            devices.parallel_microbatches(self.strategy, self.xla),
        )

    def build_train_step(self) -> anomalies.CountedStep:
        """Build the training step, a function of a batch."""
        if self.found_microbatch:
            num_chunks = self.found_microbatch.num_chunks
        else:
            num_chunks = step.num_chunks(
                self.task.plan,
                self.strategy.num_replicas_in_sync,
                self.microbatches.max_tokens,
                self.state.model.vocab_size,
            )
        train_step = step.build_train_step(
            *self.state,
            self.task.hparams,
            self.options.random_seed,
            step.Execution(
                self.strategy,
                self.xla,
                num_chunks,
                self.microbatches.parallel,
                self.task.corpora["train"].is_aligned,
            ),
        )
        return anomalies.CountedStep(train_step, self.xla)

    def build_validation(self) -> Validation | None:
        """Build the pass over the validation split, if options ask for it."""
        if not self.options.eval_every:
            return None
        return Validation(
            self.state.model,
            self.task,
            self.strategy,
            self.xla,
            self.microbatches,
            self.options.eval_pairs,
        )

    def build_validation_sample(self) -> ValidationSample | None:
        """Build the sample that the chief translates, if options ask for it."""
        options = self.options
        translates = options.eval_every and options.eval_bleu_sentences
        if not (translates and self.worker.is_chief):
            return None
        return ValidationSample(
            self.state.model,
            self.task,
            options.eval_bleu_sentences,
            options.sample_suite(self.task.suite),
        )

    def build_finite_checker(self) -> anomalies.FiniteChecker:
        """Build the check for non-finite numbers."""
        return anomalies.FiniteChecker(
            self.policy, self._describe_batch, self.newest_checkpoint
        )

    def newest_checkpoint(self) -> pathlib.Path | None:
        """Return the path of the newest checkpoint, or None."""
        folder = self.output_dir / checkpoint_files.CHECKPOINTS
        return next(reversed(checkpoint_files.list_checkpoints(folder)), None)

    def batches(self, first_step: int) -> tf.distribute.DistributedDataset:
        """Return a distributed dataset of the steps from `first_step` on."""
        # Endless, because with a finite dataset workers would ask each other
        # before every step whether all of them have another batch.
        return self.strategy.distribute_datasets_from_function(
            lambda context: batches.training_dataset(
                self.task.corpora["train"],
                self.task.plan,
                first_step,
                self.options.train_steps,
                context,
                self.microbatches,
                self.task.sampler,
            ).repeat()
        )

    def _describe_batch(self, step: int) -> str:
        """Return a human-readable summary of the batch of step `step`."""
        batch = self.task.plan.batch(step - 1)
        inputs, targets = batch.row_lengths
        return (
            f"{len(batch.pairs):,} sentences in {batch.num_rows} rows of "
            f"{inputs} input and {targets} target slots"
        )


def build(
    task: Task,
    output_dir: pathlib.Path | str,
    options: Options,
    strategy: tf.distribute.Strategy,
) -> Session:
    """Build model and optimizer, and search for the microbatch size."""
    resolved = options.resolved(task.hparams)
    policy = devices.dtype_policy(options.mixed_precision)
    xla = devices.use_xla(options.xla)
    state = _build_state(task, options, strategy, policy, xla)
    found = None
    if not options.max_tokens_per_replica:
        aligned = task.corpora["train"].is_aligned
        found = microbatch_size.search(
            *state, task.plan, strategy, xla, aligned
        )
        slots = found.slots if found else microbatch_size.SLOTS_ON_CPUS
        resolved = dataclasses.replace(resolved, max_tokens_per_replica=slots)
    return Session(
        task,
        resolved,
        pathlib.Path(output_dir),
        strategy,
        devices.Worker(strategy),
        policy,
        xla,
        state,
        found,
    )


def _build_state(
    task: Task,
    options: Options,
    strategy: tf.distribute.Strategy,
    policy: str,
    xla: bool,
) -> TrainingState:
    # Initial weights depend on the seed too.
    keras.utils.set_random_seed(options.random_seed)
    with strategy.scope():
        model = building.build(
            task.hparams,
            **task.vocabularies.sizes,
            dtype=policy,
            recompute_grad=options.recompute_grad,
        )
        variables = model.trainable_variables
        return TrainingState(
            model, optimizer.build(task.hparams, variables, policy, xla)
        )


def restore(session: Session, manager: CheckpointManager) -> None:
    """Restore the latest checkpoint, or the weights of a warm start.

    The chief chooses the checkpoint, since it may have to rename damaged ones.
    """
    worker, start = session.worker, session.options.warm_start_from
    path = manager.restore_latest() if worker.is_chief else None
    latest = worker.broadcast(checkpoint_files.step_of(path) if path else 0)
    if latest and not worker.is_chief:
        path = manager.restore(latest)
    if path:
        run_log.show(f"Continuing from {path}.")
    elif start:
        model, path = session.state.model, checkpoint_files.require(start)
        restore_weights(model, path, session.task.vocabularies.sha256)
        optimizer.reset_weight_copies(
            session.state.optimizer, model.trainable_variables
        )
        run_log.show(f"Starting from the weights of {start}.")
