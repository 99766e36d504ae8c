"""How much of a batch fits in a GPU's memory, found by trying."""

import bisect
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.data import batches
from t2t_repro.training import loss, step, workers

# CPUs are not tried: a process that takes too much memory is killed. A
# whole batch of base takes more than 24 GB. Nor is more at once faster
# there: multi30k_tiny's steps took 1.12 s whole, and 0.95 s in halves.
SLOTS_ON_CPUS = 8_192


class Fit(NamedTuple):
    """What a search has found."""

    slots: int  # of one side, in a replica's memory at once
    trials: int

    def describe(self) -> str:
        """How it was found, for people."""
        return f"found by {self.trials} trial{'s' * (self.trials > 1)}"


def largest_that_fits(fits, share, multiple) -> Fit:
    """The largest of the amounts that matter, and fit.

    Those are a replica's share of a batch as a whole, its half, its third …:
    what fits beyond them makes no part fewer. What fits is supposed to do so
    with less, too. From the whole on, the distance between trials doubles;
    then the last of them is bisected. R rows of `multiple` make fewer than
    2 sqrt(R) different amounts, so that trials are at most 3 + log2(R); where n
    parts are needed, and these are few, 2 log2(n), rounded up; one for one.

    Args:
        fits: function of slots -> whether they do; costs a compilation.
        share: slots of a replica's share of the largest batch.
        multiple: amounts are of whole rows, so many slots each.

    Raises:
        UserError: not even one row fits.
    """
    rows = -(-share // multiple)
    amounts = sorted({-(-rows // n) * multiple for n in range(1, rows + 1)})
    amounts.reverse()
    tried = []

    def fits_at(index):
        tried.append(amounts[index])
        return fits(amounts[index])

    last = len(amounts) - 1
    too_much, index = -1, 0
    while not fits_at(index):
        if index == last:
            raise errors.UserError(
                f"Not even one row of {multiple:,} slots fits in a replica's "
                f"memory; tried {', '.join(f'{slots:,}' for slots in tried)} "
                "slots at once. Lower --hparams=max_length=…, compute in 16 "
                "bits (--mixed_precision), keep less (--recompute_grad), or "
                "take a smaller model.",
                see="out-of-memory",
            )
        too_much, index = index, min(2 * index + 1, last)
    best = bisect.bisect_left(range(index), True, lo=too_much + 1, key=fits_at)
    return Fit(amounts[best], len(tried))


def search(model, optimizer, plan, strategy, xla) -> Fit | None:
    """What fits in a replica's memory; None on CPUs, which are not tried.

    A trial is a step of the largest batch on the first of a worker's GPUs,
    which are taken to be alike: alone, since a failure among replicas that
    wait for each other may end all of them. Nothing is updated. Workers agree
    on the least that one of them has found.

    Args:
        model: in the strategy's scope, as the optimizer is, with its slots.
        optimizer: of the training.
        plan: of the training's batches.
        strategy: tf.distribute strategy.
        xla: whether the training compiles.

    Raises:
        UserError: not even one row fits.
    """
    if not tf.config.list_logical_devices("GPU"):
        return None
    replicas = strategy.num_replicas_in_sync
    rows = -(-plan.max_slots // plan.row_length)
    full = np.ones((rows, plan.row_length), np.int32)  # no padding

    def fits(slots):
        print(f"Trying {slots:,} slots at once.", flush=True)
        train_step = step.build_train_step(
            model,
            _Resting(optimizer),
            model.hparams,
            0,
            tf.distribute.get_strategy(),
            xla,
            loss.num_chunks(plan, replicas, slots, model.vocab_size),
        )
        arrays = batches.split_rows(
            dict.fromkeys(batches.ROW_FEATURES, full), replicas, slots
        )
        batch = {name: tf.constant(of[0]) for name, of in arrays.items()}
        try:
            # For what comes and goes beside the steps, and leaves holes.
            reserve = tf.zeros(model.count_params())
            train_step(batch).gradient_norm.numpy()
            del reserve
        except tf.errors.ResourceExhaustedError:
            return False
        return True

    share = -(-plan.max_slots // replicas)
    found = largest_that_fits(fits, share, plan.row_length)
    return found._replace(slots=_least(found.slots, strategy))


class _Resting:
    """An optimizer that is asked for everything, but updates nothing."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def __getattr__(self, name):
        return getattr(self._optimizer, name)

    def apply(self, gradients, variables):
        """Leaves the variables, and the optimizer's own, as they are."""
        return None  # AutoGraph warns of a docstring alone.


def _least(number, strategy):
    """The least of all workers' numbers."""
    return min(workers.of(strategy).gather(number))
