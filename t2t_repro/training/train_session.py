"""Session of a training run: its parts, and how many slots fit in memory."""

import bisect
import dataclasses
import pathlib
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_repro import errors, hparam
from t2t_repro.data import batch_plan, batches
from t2t_repro.data.corpus import ALIGNMENTS, SIDES
from t2t_repro.io import fields, progress
from t2t_repro.models import building, seq2seq
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runs import checkpoint_files, run_json
from t2t_repro.runs.checkpoints import CheckpointManager, restore_weights
from t2t_repro.runtime import devices
from t2t_repro.training import optimizer, step
from t2t_repro.training.options import Options, ResolvedOptions, Task
from t2t_repro.training.validation import Validation, ValidationSample

# CPUs are not tried: a process that takes too much memory is killed. A
# whole batch of base takes more than 24 GB. Larger microbatches are not faster
# there: multi30k_tiny's steps took 1.12 s whole, and 0.95 s in halves.
SLOTS_ON_CPUS = 8_192


class MicrobatchSize(NamedTuple):
    """Largest microbatch that fits in a replica's memory."""

    slots: int  # slots of the side with longer rows
    trials: int  # number of steps that the search tried
    num_chunks: int  # chunks of its logits


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


class CountedStep:
    """Training step that counts how often it has been compiled.

    A compilation is a trace of the graph or, under XLA, a new shape.
    """

    def __init__(self, train_step: Any, xla: bool):
        """Wrap a tf.function of a batch, which XLA may compile."""
        self._train_step, self._xla = train_step, xla
        self._shapes: set[tuple] = set()
        self.compilations = 0
        # A line, if the last call compiled again for a known shape.
        self.retrace_notice: str | None = None

    def __call__(self, batch: dict[str, Any]) -> Any:
        """Run the step on an element of a distributed dataset."""
        shape = tuple(  # the same for every replica
            tuple(tf.nest.flatten(batch[side], expand_composites=True)[0].shape)
            for side in SIDES
        )
        is_new = shape not in self._shapes
        self._shapes.add(shape)
        traces = self._train_step.experimental_get_tracing_count()
        outcome = self._train_step(batch)
        traced = self._train_step.experimental_get_tracing_count() > traces
        self.compilations += traced or (self._xla and is_new)
        self.retrace_notice = None
        if traced and not is_new:
            self.retrace_notice = (
                f"compiled again (number {self.compilations}) for a known "
                f"shape, {' x '.join(map(str, shape[-1]))}"
            )
        return outcome


@dataclasses.dataclass(frozen=True)
class Session:
    """Everything that one session of a training run needs."""

    task: Task
    options: ResolvedOptions
    output_dir: pathlib.Path
    worker: devices.Worker
    policy: str  # Keras's dtype policy
    execution: step.Execution
    state: TrainingState
    # None if max_tokens_per_replica was given, or on CPUs.
    found_microbatch: MicrobatchSize | None

    @property
    def flops_per_token(self) -> float:
        """Multiplications and additions of training on a target token."""
        means = self.task.plan.mean_tokens
        return seq2seq.training_flops(self.state.model, 1, *means)

    @property
    def validation_pairs(self) -> np.ndarray:
        """Indices of the pairs whose loss a validation measures."""
        return batch_plan.usable_pairs(
            self.task.corpora["validation"].lengths,
            self.task.hparams.max_length,
            self.options.eval_pairs,
        )

    def validation_steps(self, validations: int) -> float:
        """Return the steps that take as long as the losses of validations.

        Without the backward pass, a token has a third of a step's FLOPs.
        """
        lengths = self.task.corpora["validation"].lengths["targets"]
        tokens = lengths[self.validation_pairs].sum() / 3
        return validations * tokens / self.task.plan.target_tokens

    @property
    def stopping_metric(self) -> str:
        """The early-stopping metric."""
        return self.options.stopping_metric(self.task.suite)

    def build_train_step(self, element_spec: Any) -> CountedStep:
        """Build the training step, a function of an element of batches()."""
        execution = self.execution.for_plan(
            self.task.plan, self.state.model.vocab_size, element_spec
        )
        if self.found_microbatch:
            num_chunks = self.found_microbatch.num_chunks
            execution = execution._replace(num_chunks=num_chunks)
        seed = self.options.random_seed
        train_step = step.build_train_step(
            *self.state, self.task.hparams, seed, execution
        )
        return CountedStep(train_step, execution.xla)

    def build_validation(self) -> Validation | None:
        """Build the pass over the validation split, if options ask for it."""
        if not self.options.eval_every:
            return None
        return Validation(
            self.state.model,
            self.task,
            self.execution,
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

    def newest_checkpoint(self) -> pathlib.Path | None:
        """Return the path of the newest checkpoint, or None."""
        return next(reversed(checkpoint_files.saved(self.output_dir)), None)

    def batches(self, first_step: int) -> tf.distribute.DistributedDataset:
        """Return a distributed dataset of the steps from `first_step` on."""
        # Endless, because with a finite dataset workers would ask each other
        # before every step whether all of them have another batch.
        return self.execution.strategy.distribute_datasets_from_function(
            lambda context: batches.training_dataset(
                self.task.corpora["train"],
                self.task.plan,
                first_step,
                self.options.train_steps,
                context,
                self.execution.microbatches,
                self.task.sampler,
            ).repeat()
        )

    def describe_batch(self, step: int) -> str:
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
    policy = devices.dtype_policy(options.mixed_precision)
    xla = devices.use_xla(options.xla)
    state = _build_state(task, options, strategy, policy, xla)
    found, max_tokens = None, options.max_tokens_per_replica
    if not max_tokens:
        found = search_microbatch_size(*state, task, strategy, xla)
        max_tokens = found.slots if found else SLOTS_ON_CPUS
    parallel = devices.parallel_microbatches(strategy, xla)
    microbatches = batches.Microbatches(max_tokens, parallel)
    return Session(
        task,
        options.resolved(task.hparams),
        pathlib.Path(output_dir),
        devices.Worker(strategy),
        policy,
        step.Execution(strategy, xla, microbatches),
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


def restore(session: Session) -> CheckpointManager:
    """Restore the latest checkpoint, or the weights of a warm start.

    The chief chooses the checkpoint, since it may have to rename damaged ones,
    which a dry run does not.

    Returns:
        The manager of the run's checkpoints.
    """
    worker, options = session.worker, session.options
    sha256 = session.task.vocabularies.sha256
    manager = CheckpointManager(
        *session.state,
        session.output_dir / checkpoint_files.CHECKPOINTS,
        options.keep_checkpoint_max,
        sha256,
        options.keep_best_checkpoints,
    )
    start, path = options.warm_start_from, None
    if worker.is_chief:
        path = manager.restore_latest(rename=not options.dry_run)
    latest = worker.broadcast(checkpoint_files.step_of(path) if path else 0)
    if latest and not worker.is_chief:
        path = manager.restore(latest)
    if path:
        progress.show(f"Continuing from {path}.")
    elif start:
        model, path = session.state.model, checkpoint_files.require(start)
        restore_weights(model, path, sha256)
        optimizer.reset_weight_copies(
            session.state.optimizer, model.trainable_variables
        )
        progress.show(f"Starting from the weights of {start}.")
        _note_other_model(session.task.hparams, path)
    return manager


def _note_other_model(hparams, path):
    """Show how a model differs from that of a checkpoint's run, if it does."""
    here = hparam.of_model(hparams)
    known = run_json.of_checkpoint(path).get("hparams", here)
    there = {name: known.get(name, value) for name, value in here.items()}
    if found := list(fields.differences(there, here)):
        progress.show(
            "Note: these weights are of a model with other settings: "
            f"{'; '.join(found)}."
        )


def largest_microbatch(
    fits_in_memory: Callable[[int], bool], share: int, multiple: int
) -> tuple[int, int]:
    """Find the largest useful microbatch that fits, in slots.

    Useful sizes are a replica's share of a batch, its half, its third, …: a
    size in between needs as many microbatches as the next smaller one. The
    search assumes that if a size fits, smaller ones do. It begins with the
    whole share and doubles the distance between trials until one fits; then it
    bisects the last interval, since each trial costs a compilation. R rows have
    fewer than 2 sqrt(R) useful sizes, so that there are at most 3 + log2(R)
    trials; if few microbatches n > 1 are needed, at most 2 log2(n), rounded up;
    if n = 1, one.

    A replica has a `share` of the slots of the largest batch, in rows of
    `multiple`.

    Returns:
        Slots, whole rows of them, and the number of trials.

    Raises:
        UserError: not even one row fits.
    """
    rows = -(-share // multiple)
    useful = {-(-rows // n) * multiple for n in range(1, rows + 1)}
    sizes, tried = sorted(useful, reverse=True), []

    def try_size(index):
        tried.append(sizes[index])
        return fits_in_memory(sizes[index])

    last = len(sizes) - 1
    too_large, index = -1, 0
    while not try_size(index):
        if index == last:
            raise errors.UserError(
                f"Not even one row of {multiple:,} slots fits in a replica's "
                f"memory; tried {', '.join(f'{slots:,}' for slots in tried)} "
                "slots at once. Lower --hparams=max_length=…, compute in 16 "
                "bits (--mixed_precision), keep less (--recompute_grad), or "
                "take a smaller model.",
                see="out-of-memory",
            )
        too_large, index = index, min(2 * index + 1, last)
    best = bisect.bisect_left(
        range(index), True, lo=too_large + 1, key=try_size
    )
    return sizes[best], len(tried)


def search_microbatch_size(
    model: Seq2Seq,
    optimizer: keras.optimizers.Optimizer,
    task: Task,
    strategy: tf.distribute.Strategy,
    xla: bool,
) -> MicrobatchSize | None:
    """Search for the slots that fit in a replica's memory; None on CPUs.

    A trial is a step of the largest batch on the first of a worker's GPUs,
    which are assumed to be alike. It runs on that GPU only, since a failure
    among replicas that wait for each other may end all of them. It updates
    nothing. With XLA, the first has all logits of the batch in memory at once,
    which is faster than chunks: the loss of 25,000 tokens and its gradients
    take 9.5 ms instead of 12.4 (V = 37,000, E = 512, H200). Workers agree on
    the smallest result. Model and optimizer are built in the strategy's scope.

    Raises:
        UserError: not even one row fits.
    """
    if not tf.config.list_logical_devices("GPU"):
        return None
    plan, replicas = task.plan, strategy.num_replicas_in_sync
    longest = max(plan.row_lengths)
    full = _full_batch(plan, longest, task.corpora["train"].is_aligned)

    def usual_chunks(slots):
        return step.num_chunks(plan, replicas, slots, model.vocab_size)

    def fits_in_memory(slots, num_chunks=None):
        note = "; to compile the step may take a minute" if xla else ""
        progress.show(f"Trying {slots:,} slots at once{note}.")
        arrays = batches.split_rows(full, replicas, batches.Microbatches(slots))
        batch = {name: tf.constant(array[0]) for name, array in arrays.items()}
        num_chunks = num_chunks or usual_chunks(slots)
        return _fits_in_memory(model, optimizer, xla, num_chunks, batch)

    share = -(-plan.max_batch_slots // replicas)
    whole = -(-share // longest) * longest
    tries_whole = xla and usual_chunks(whole) > 1
    if tries_whole and fits_in_memory(whole, num_chunks=1):
        slots, trials, num_chunks = whole, 1, 1
    else:
        slots, trials = largest_microbatch(fits_in_memory, share, longest)
        trials, num_chunks = trials + tries_whole, usual_chunks(slots)
    smallest = min(devices.Worker(strategy).gather(slots))
    if smallest < slots:
        num_chunks = usual_chunks(smallest)
    return MicrobatchSize(smallest, trials, num_chunks)


def _fits_in_memory(model, optimizer, xla, num_chunks, batch):
    """Return whether one replica has memory for a step of a batch."""
    without_update = types.SimpleNamespace(
        iterations=optimizer.iterations,
        scale_loss=optimizer.scale_loss,
        apply=lambda gradients, variables: None,
    )
    train_step = step.build_train_step(
        model,
        without_update,
        model.hparams,
        0,
        step.Execution(
            tf.distribute.get_strategy(), xla, num_chunks=num_chunks
        ),
    )
    try:
        # For temporary tensors outside the steps, and fragmentation.
        reserve = tf.zeros(model.count_params())
        train_step(batch).gradient_norm.numpy()
        del reserve
    except tf.errors.ResourceExhaustedError:
        return False
    return True


def _full_batch(plan, longest, aligned):
    """Return {feature: rows without padding} of the largest batch.

    The side with longer rows has `longest` slots in each.
    """
    rows = -(-plan.max_batch_slots // longest)
    arrays = {
        name: np.ones((rows, length), np.int32)
        for side, length in zip(SIDES, plan.row_lengths, strict=True)
        for name in batches.ROW_FEATURES
        if name.startswith(side)
    }
    if aligned:
        arrays[ALIGNMENTS] = np.ones((rows, *plan.row_lengths[::-1]), np.int8)
    return arrays
