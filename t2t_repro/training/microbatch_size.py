"""Search for the number of slots that fit in a GPU's memory at once."""

import bisect
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.data import batches
from t2t_repro.data.batch_plan import Plan
from t2t_repro.data.corpus import ALIGNMENTS, SIDES
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runs import run_log
from t2t_repro.runtime import devices
from t2t_repro.training import step

# CPUs are not tried: a process that takes too much memory is killed. A
# whole batch of base takes more than 24 GB. Larger microbatches are not faster
# there: multi30k_tiny's steps took 1.12 s whole, and 0.95 s in halves.
SLOTS_ON_CPUS = 8_192


class MicrobatchSize(NamedTuple):
    """Largest microbatch that fits in a replica's memory."""

    slots: int  # slots of the side with longer rows
    trials: int  # number of steps that the search tried
    num_chunks: int  # chunks of its logits


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
    sizes = sorted({-(-rows // n) * multiple for n in range(1, rows + 1)})
    sizes.reverse()
    tried = []

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


def search(
    model: Seq2Seq,
    optimizer: keras.optimizers.Optimizer,
    plan: Plan,
    strategy: tf.distribute.Strategy,
    xla: bool,
    aligned: bool = False,
) -> MicrobatchSize | None:
    """Search for the slots that fit in a replica's memory; None on CPUs.

    A trial is a step of the largest batch on the first of a worker's GPUs,
    which are assumed to be alike. It runs on that GPU only, since a failure
    among replicas that wait for each other may end all of them. It updates
    nothing. With XLA, the first has all logits of the batch in memory at once,
    which is faster than chunks: the loss of 25,000 tokens and its gradients
    take 9.5 ms instead of 12.4 (V = 37,000, E = 512, H200). Workers agree on
    the smallest result. Model and optimizer are built in the strategy's scope.
    `aligned` is whether batches have alignments.

    Raises:
        UserError: not even one row fits.
    """
    if not tf.config.list_logical_devices("GPU"):
        return None
    replicas = strategy.num_replicas_in_sync
    longest = max(plan.row_lengths)
    full = _full_batch(plan, longest, aligned)

    def usual_chunks(slots):
        return step.num_chunks(plan, replicas, slots, model.vocab_size)

    def fits_in_memory(slots, num_chunks=None):
        note = "; to compile the step may take a minute" if xla else ""
        run_log.show(f"Trying {slots:,} slots at once{note}.")
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
    train_step = step.build_train_step(
        model,
        _NoUpdate(optimizer),
        model.hparams,
        0,
        step.Execution(tf.distribute.get_strategy(), xla, num_chunks),
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


class _NoUpdate:
    """Wrapper of an optimizer that replaces only its update, by nothing."""

    def __init__(self, optimizer: keras.optimizers.Optimizer):
        self._optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def apply(self, gradients: list[tf.Tensor], variables: list) -> None:
        """Leave the variables and the optimizer's slots unchanged."""
