"""Building what a training needs, and its summary before it begins."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_repro import hparam
from t2t_repro.data import batches
from t2t_repro.metrics.suite import Suite
from t2t_repro.models import building
from t2t_repro.training import (
    anomalies,
    checkpoints,
    hardware,
    loss,
    microbatch_size,
    optimizer,
    schedules,
    step,
    workers,
)
from t2t_repro.training.options import Options
from t2t_repro.training.validation import Validation
from t2t_repro.training.validation_sample import Sample


class Task(NamedTuple):
    """A model's settings and the data that it learns from."""

    hparams: hparam.HParams
    vocabularies: Any  # data.vocabulary_pair.Vocabularies
    plan: Any  # of corpora["train"]
    corpora: dict  # {"train": Corpus, "validation": Corpus}
    search: hparam.DecodeHParams = hparam.DecodeHParams()  # of the sample
    suite: Suite = Suite()  # the problem's metrics


class TrainingState(NamedTuple):
    """What a checkpoint holds: weights, and the optimizer's variables."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer

    @property
    def step(self) -> int:
        """Return how many steps are done."""
        return int(self.optimizer.iterations.numpy())

    @property
    def variables(self) -> list:
        """Return all variables."""
        return self.model.variables + self.optimizer.variables


@dataclasses.dataclass(frozen=True)
class Session:
    """A training that is ready to run on this machine."""

    task: Task
    options: Options  # resolved
    output_dir: pathlib.Path
    strategy: tf.distribute.Strategy
    workers: workers.SingleWorker | workers.Cluster
    policy: str  # Keras's dtype policy
    xla: bool
    state: TrainingState
    fit: microbatch_size.Fit | None  # how max_tokens_per_replica was found

    def checkpoints(self) -> checkpoints.Checkpoints:
        """Build the writer and reader of checkpoints."""
        return checkpoints.Checkpoints(
            *self.state,
            self.output_dir / checkpoints.FOLDER,
            self.options.keep_checkpoint_max,
            self.task.vocabularies.sha256,
        )

    def train_step(self) -> anomalies.CountedStep:
        """Build the function of a batch that takes a step."""
        num_chunks = loss.num_chunks(
            self.task.plan,
            self.strategy.num_replicas_in_sync,
            self.options.max_tokens_per_replica,
            self.state.model.vocab_size,
        )
        train_step = step.build_train_step(
            *self.state,
            self.task.hparams,
            self.options.random_seed,
            self.strategy,
            self.xla,
            num_chunks,
        )
        return anomalies.CountedStep(train_step, self.xla)

    def validation(self) -> Validation:
        """Build the pass over the validation split."""
        return Validation(
            self.state.model,
            self.task.hparams,
            self.task.corpora["validation"],
            self.strategy,
            self.xla,
            self.options.max_tokens_per_replica,
        )

    def sample(self) -> Sample | None:
        """Build the sample that the chief translates, if it is asked for."""
        if not (self.options.eval_bleu_sentences and self.workers.is_chief):
            return None
        return Sample(
            self.state.model,
            self.task.vocabularies,
            self.task.corpora["validation"],
            self.task.hparams,
            self.options.eval_bleu_sentences,
            self.task.search,
            self.options.sample_suite(self.task.suite),
        )

    def guard(self) -> anomalies.Guard:
        """Build the check for numbers that are not finite."""

        def newest():
            folder = self.output_dir / checkpoints.FOLDER
            return next(reversed(checkpoints.list_checkpoints(folder)), None)

        return anomalies.Guard(self.policy, self._describe_batch, newest)

    def batches(self, first_step):
        """Return a distributed dataset of the steps from `first_step` on."""
        # Endless: else workers would ask each other before every step whether
        # all of them have one more batch.
        return self.strategy.distribute_datasets_from_function(
            lambda context: batches.training_dataset(
                self.task.corpora["train"],
                self.task.plan,
                first_step,
                self.options.train_steps,
                context,
                self.options.max_tokens_per_replica,
            ).repeat()
        )

    def _describe_batch(self, done):
        """Return a human-readable summary of the batch of step `done`."""
        batch = self.task.plan.batch(done - 1)
        counts = batches.count(self.task.corpora["train"], batch)
        return (
            f"{counts.sentences:,} sentences in {batch.num_rows} rows of "
            f"{batch.row_length} slots"
        )


def build(task: Task, output_dir, options: Options, strategy) -> Session:
    """Build model and optimizer, and find how much fits in memory."""
    options = options.resolved(task.hparams)
    policy = hardware.dtype_policy(options.mixed_precision)
    xla = hardware.use_xla(options.xla)
    state = _build_state(task, options, strategy, policy)
    fit = None
    if not options.max_tokens_per_replica:
        fit = microbatch_size.search(*state, task.plan, strategy, xla)
        slots = fit.slots if fit else microbatch_size.SLOTS_ON_CPUS
        options = dataclasses.replace(options, max_tokens_per_replica=slots)
    return Session(
        task,
        options,
        pathlib.Path(output_dir),
        strategy,
        workers.of(strategy),
        policy,
        xla,
        state,
        fit,
    )


def _build_state(task, options, strategy, policy):
    # Initial weights are a function of the seed as well.
    keras.utils.set_random_seed(options.random_seed)
    with strategy.scope():
        model = building.build(
            task.hparams,
            **task.vocabularies.sizes,
            dtype=policy,
            recompute_grad=options.recompute_grad,
        )
        return TrainingState(
            model,
            optimizer.build(task.hparams, model.trainable_variables, policy),
        )


def restore(session: Session, stored: checkpoints.Checkpoints) -> None:
    """Restore the latest checkpoint, or the weights of a warm start.

    The chief's latest: it may have to set damaged ones aside.
    """
    processes, start = session.workers, session.options.warm_start_from
    path = stored.restore_latest() if processes.is_chief else None
    latest = processes.broadcast(checkpoints.step_of(path) if path else 0)
    if latest and not processes.is_chief:
        path = stored.restore(latest)
    if path:
        print(f"Continuing from {path}.")
    elif start:
        model, weights_optimizer = session.state
        sha256 = session.task.vocabularies.sha256
        checkpoints.restore_weights(model, start, sha256)
        optimizer.reset_weight_copies(
            weights_optimizer, model.trainable_variables
        )
        print(f"Starting from the weights of {start}.")


def summary(session: Session) -> dict[str, str]:
    """Return what is about to happen, a text for each label."""
    task, options = session.task, session.options
    hparams, plan = task.hparams, task.plan
    replicas = session.strategy.num_replicas_in_sync
    epochs = options.train_steps / plan.steps_per_epoch
    peak = schedules.peak(hparams)
    pairs, used = len(task.corpora["train"]), plan.num_pairs
    return {
        "parameters": f"{session.state.model.count_params():,}",
        "vocabulary": " and ".join(
            f"{one.size:,} subwords" for one in task.vocabularies.files.values()
        ),
        "hardware": hardware.describe(
            session.strategy, session.policy, session.xla
        ),
        "batch": f"{plan.summary()} (batch_tokens={hparams.batch_tokens:,}, "
        f"in {hparams.batch_unit.replace('_', ' ')})",
        "per replica": f"1/{replicas} of it, at most "
        f"{options.max_tokens_per_replica:,} slots at once"
        + (f", {session.fit.describe()}" if session.fit else ""),
        "pairs": f"{used:,}; {pairs - used:,} longer than max_length="
        f"{hparams.max_length} are left out",
        "steps": f"{options.train_steps:,} = {epochs:,.1f} epochs; "
        f"{session.state.step:,} done",
        "learning rate": f"{hparams.learning_rate_schedule}, peak "
        f"{peak.rate:.3g} at step {peak.step:,}",
        "output": str(session.output_dir),
    }
