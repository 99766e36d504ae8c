"""One training step on each replica: forward, loss, backward, sum, update.

XLA compiles all of it as one program where there is one replica, whose batch is
one microbatch. Otherwise it compiles the forward and backward pass, the norm,
and Adam's update: between them, microbatches are summed, and MirroredStrategy
sums over replicas. Each replica divides its share of the loss by the tokens of
the whole batch, so that the sum of gradients over replicas is the gradient of
the batch's mean loss.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_repro import errors, registry
from t2t_repro.data import batches
from t2t_repro.data.batch_plan import Plan
from t2t_repro.hparam import HParams
from t2t_repro.layers import randomness
from t2t_repro.layers.randomness import Rng
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runtime import graph, keras_compat
from t2t_repro.training import losses
from t2t_repro.training.cross_entropy import Sums

# 2 GiB in float32; their softmax takes as much, and half of it in 16 bits.
MAX_LOGITS = 2**29


class Outcome(NamedTuple):
    """Loss sums and gradient norm of a training step."""

    sums: Sums  # over all replicas
    # [] float32, of the gradient that the optimizer receives: summed over all
    # replicas, before clipping and moments.
    gradient_norm: tf.Tensor


class Execution(NamedTuple):
    """Settings of devices; a step's result is the same, up to rounding."""

    strategy: tf.distribute.Strategy
    xla: bool  # whether to compile with XLA
    microbatches: batches.Microbatches = batches.ONE_MICROBATCH
    num_chunks: int = 1  # of logits, see smoothed_cross_entropy()
    # Of the distributed dataset of batches; several machines need it.
    element_spec: Any = None

    def for_plan(
        self, plan: Plan, vocab_size: int, element_spec: Any = None
    ) -> "Execution":
        """Return the settings of steps on a plan's batches."""
        replicas = self.strategy.num_replicas_in_sync
        limit = self.microbatches.max_tokens
        chunks = num_chunks(plan, replicas, limit, vocab_size)
        return self._replace(num_chunks=chunks, element_spec=element_spec)


class Objective(NamedTuple):
    """Loss that a model is trained on, and how cross-entropy is computed."""

    label_smoothing: float
    # Losses that are added; None is cross-entropy.
    own: tuple[losses.Loss | None, ...] = (None,)
    num_chunks: int = 1
    xla: bool = False

    @classmethod
    def build(cls, hparams: HParams, execution: Execution) -> "Objective":
        """Return the objective that hparams name; see losses.build()."""
        return cls(
            hparams.label_smoothing,
            losses.build(hparams.loss),
            execution.num_chunks,
            execution.xla,
        )


def build_train_step(
    model: Seq2Seq,
    optimizer: keras.optimizers.Optimizer,
    hparams: HParams,
    seed: int,
    execution: Execution,
) -> Callable[[dict[str, Any]], Outcome]:
    """Build the function that trains on an element of a distributed dataset."""
    variables, xla = model.trainable_variables, execution.xla
    objective = Objective.build(hparams, execution)
    # Gradients are summed below, to compute their norm and because clipping
    # needs the sum: Keras would clip each replica's gradient.
    keras_compat.disable_gradient_all_reduce(optimizer)

    @graph.function(jit_compile=xla, reduce_retracing=True)
    def forward_backward(rows, first_row, step, counts):
        """Return dense gradients of the loss of some rows, and their Sums.

        The loss is the rows' share of the mean loss of the whole batch.
        """
        rng = randomness.step_rng(
            seed, step, first_row, tf.shape(rows["targets"])[0]
        )
        with tf.GradientTape() as tape:
            sums = batch_loss(model, rows, rng, objective, counts)
            share = sums.smoothed / counts["target_tokens"]
            share += sum(sums.auxiliary.values())
            # Scaled here, where it is one number instead of many gradients.
            share = optimizer.scale_loss(share)
        gradients = tape.gradient(share, [v.value for v in variables])
        _require_gradients(variables, gradients)
        # The gradient of an embedding lookup is an IndexedSlices.
        return [tf.convert_to_tensor(g) for g in gradients], sums

    norm_of = graph.function(tf.linalg.global_norm, jit_compile=xla)

    def step_by_parts(batch):
        step = tf.cast(optimizer.iterations.value, tf.int32)
        counts = {name: batch[name] for name in batches.DENOMINATORS}
        gradients, sums = _accumulate(
            lambda rows, first: forward_backward(rows, first, step, counts),
            batch,
            execution.microbatches.parallel,
        )
        norm = norm_of(gradients) / optimizer.scale_loss(1.0)
        optimizer.apply(gradients, variables)
        return Outcome(sums, norm)

    compiled_step = graph.function(step_by_parts, jit_compile=True)

    def replica_step(batch):
        is_program = xla and _is_one_program(batch, optimizer, hparams)
        return (compiled_step if is_program else step_by_parts)(batch)

    return _on_replicas(replica_step, execution)


def _is_one_program(batch, optimizer, hparams):
    """Return whether XLA can compile a whole step, with the update.

    A strategy, even of one replica, sums and assigns outside of XLA. With more
    microbatches, the program would have the model twice: in the loop and before
    it. Registered optimizers may have operations that XLA cannot compile, and
    trials of memory replace the optimizer by an object without update.
    """
    return (
        _is_one(batch)
        and not tf.distribute.has_strategy()
        and isinstance(optimizer, keras.optimizers.Optimizer)
        and hparams.optimizer not in registry.optimizers
    )


def build_eval_step(
    model: Seq2Seq,
    hparams: HParams,
    execution: Execution,
    counts: Mapping[str, float],
) -> Callable[[dict[str, Any]], Sums]:
    """Build the function that evaluates an element of a distributed dataset.

    `counts` are those of the whole dataset, as batch_loss() takes them.
    """
    objective = Objective.build(hparams, execution)

    @graph.function(jit_compile=execution.xla, reduce_retracing=True)
    def forward(rows):
        return batch_loss(model, rows, None, objective, counts)

    def replica_step(batch):
        parallel = execution.microbatches.parallel
        return _accumulate(lambda rows, _: forward(rows), batch, parallel)

    return _on_replicas(replica_step, execution)


def batch_loss(
    model: Seq2Seq,
    batch: Mapping[str, tf.Tensor],
    rng: Rng | None,
    objective: Objective,
    counts: Mapping[str, Any] | None = None,
) -> Sums:
    """Run the model on row features of a batch, and sum its losses.

    `rng` is None at inference. `counts` {name: [] float32} of the whole batch
    are the denominators of the objective's own loss and of auxiliary losses;
    None: only the cross-entropy is computed.

    Raises:
        UserError: a loss is not as training.losses says; see divided().
    """
    hidden = model.hidden_states(batch, rng)
    sums = losses.cross_entropy(
        batch,
        hidden.states,
        model.output_layer,
        objective.label_smoothing,
        objective.num_chunks,
        objective.xla,
    )
    if counts is None:
        return sums
    auxiliary = losses.divided(hidden.auxiliary_losses, counts)
    if objective.own == (None,):
        return sums._replace(auxiliary=auxiliary)
    terms = losses.terms(
        objective.own,
        sums,
        {**batch, "cross_attention": hidden.cross_attention},
        hidden.states,
        model.output_layer,
        rng,
    )
    shares = losses.divided(terms, counts)
    if same := shares.keys() & auxiliary.keys():
        raise errors.UserError(
            f"Both the model and the hparam loss have a loss {min(same)!r}. "
            "Rename one of the two."
        )
    return sums._replace(
        smoothed=sum(shares.values()) * counts["target_tokens"],
        auxiliary=auxiliary,
        terms=shares if len(shares) > 1 else {},
    )


def _require_gradients(variables, gradients):
    """Raise a UserError that names the variables without a gradient."""
    unused = [
        variable.path
        for variable, gradient in zip(variables, gradients, strict=True)
        if gradient is None
    ]
    if unused:
        raise errors.UserError(
            f"The loss does not depend on {', '.join(unused)}. Use each weight "
            "in hidden_states(), or say trainable=False."
        )


def _on_replicas(replica_step, execution):
    """Return the tf.function of a distributed batch that all replicas run.

    Its values are those of the first replica, which all share. A graph for each
    shape is faster, by 2% on a CPU. Several machines use one graph for all
    shapes, because they must number its all-reduces alike.
    """
    strategy = execution.strategy

    def step(batch):
        return tf.nest.map_structure(
            lambda value: strategy.experimental_local_results(value)[0],
            strategy.run(replica_step, args=(batch,)),
        )

    if strategy.cluster_resolver is None:
        return graph.function(step, reduce_retracing=True)
    return graph.function(step, input_signature=[execution.element_spec])


def _accumulate(function, batch, parallel):
    """Sum the results of `function` over microbatches and replicas.

    The first and at most `parallel` of the others run at a time.
    """

    def compute(index):
        rows = {
            name: batch[name][index] for name in batches.row_features(batch)
        }
        return function(rows, batch["first_row"][index])

    def add(index, total):
        return index + 1, tf.nest.map_structure(tf.add, total, compute(index))

    total = compute(0)
    if not _is_one(batch):
        count = tf.shape(batch["first_row"])[0]
        _, total = tf.while_loop(
            lambda index, _: index < count,
            add,
            (1, total),
            parallel_iterations=parallel,
        )
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, total)


def _is_one(batch):
    """Return whether the graph is of batches of one microbatch."""
    return batch["first_row"].shape[0] == 1


def num_chunks(
    plan: Plan, replicas: int, max_tokens: int | None, vocab_size: int
) -> int:
    """Return the number of chunks of logits that fit a replica's memory.

    A replica has at most `max_tokens` slots at once, of the side with longer
    rows.
    """
    slots = -(-plan.max_batch_slots // replicas)
    slots = min(slots, max_tokens or slots)
    return math.ceil(plan.target_slots(slots) * vocab_size / MAX_LOGITS)


def perplexity(nll: float) -> float:
    """Return exp of the mean nll of a token, limited to float32's range."""
    return math.exp(min(nll, 80.0))  # float32 ends at exp(88.7)
