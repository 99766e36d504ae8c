"""Check of the rules that a model must follow, on a tiny batch.

A model whose step of decoding, packed rows or padding differ from its full pass
trains without an error, and translates worse than its loss suggests. check()
builds a small model of the same settings, with random biases and small
vocabularies, and compares its results with each other.
"""

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from t2t_repro import errors
from t2t_repro.data import batches
from t2t_repro.data.corpus import ALIGNMENTS
from t2t_repro.hparam import HParams
from t2t_repro.layers import randomness
from t2t_repro.layers.embedding import Embedding
from t2t_repro.models import building, seq2seq
from t2t_repro.models.seq2seq import Seq2Seq, StepOutputs
from t2t_repro.runtime import graph, keras_compat
from t2t_repro.training import losses
from t2t_repro.training.step import Objective, batch_loss

# Sizes of vocabularies. Where a model has one for each side, they differ.
_TARGETS, _INPUTS = 29, 31
_BEAMS = 3
# Largest difference of equal results, as a share of the largest one: rounding
# with significands of 24, 11 and 8 bits, through all layers.
_TOLERANCE = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.1}


class Violation(Exception):
    """Rule that a model breaks, and how."""


class _Pass(NamedTuple):
    """Results of a full pass."""

    logits: np.ndarray  # [B, T, V]
    outputs: dict[str, np.ndarray]  # {path of a layer: its output}
    layers: list[keras.layers.Layer]  # as often as they were called


@dataclasses.dataclass(frozen=True)
class _Subject:
    """Model, and two pairs of sentences of different lengths.

    The second pair ends with padding. Ids are up to the sizes of both
    vocabularies.
    """

    model: Seq2Seq
    inputs: np.ndarray  # [2, L] int32
    targets: np.ndarray  # [2, T] int32

    @functools.cached_property
    def together(self) -> _Pass:
        """Full pass of both pairs as one batch."""
        return self.run(self.inputs, self.targets)

    @functools.cached_property
    def second(self) -> _Pass:
        """Full pass of the second pair by itself, without padding."""
        return self.run(*self.second_pair)

    @property
    def second_pair(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the second pair, without padding, [1, 4]."""
        return self.inputs[1:, :4], self.targets[1:, :4]

    def run(self, inputs: np.ndarray, targets: np.ndarray) -> _Pass:
        """Run the model on pairs, one in a row."""
        with _observed_layers() as observed:
            batch = seq2seq.one_sentence_per_row(inputs, targets)
            return _Pass(self.logits(batch), *observed)

    def logits(self, batch: Mapping[str, Any], **kwargs: Any) -> np.ndarray:
        """Return the model's logits of a batch, [B, T, V]."""
        return np.asarray(self.model(batch, **kwargs))

    def is_equal(self, actual: np.ndarray, expected: np.ndarray) -> bool:
        """Return whether results differ by no more than rounding."""
        largest = np.abs(expected).max(initial=1.0)
        difference = np.abs(actual - expected).max(initial=0)
        tolerance = _TOLERANCE.get(self.model.compute_dtype, 1e-4)
        return bool(difference <= tolerance * largest)

    def require_equal(
        self,
        actual: Any,
        expected: Any,
        rule: str,
        layers: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> None:
        """Raise a Violation of `rule` if results differ.

        `layers` {path: outputs that should be equal} serve to name the first
        that differs.
        """
        actual, expected = np.asarray(actual), np.asarray(expected)
        if actual.shape != expected.shape:
            raise Violation(
                f"{rule}; their shapes are {actual.shape} and {expected.shape}"
            )
        if self.is_equal(actual, expected):
            return
        found = (
            f", first in the layer {path}"
            for path, pair in (layers or {}).items()
            if not self.is_equal(*pair)
        )
        difference = np.abs(actual - expected).max()
        raise Violation(
            f"{rule}; they differ by up to {difference:.2g} where the largest "
            f"is {np.abs(expected).max():.2g}{next(found, '')}"
        )


def check(
    hparams: HParams, dtype: str = "float32", separate: bool = False
) -> None:
    """Check a model's rules in about a second, on the CPU.

    `dtype` is the Keras dtype policy of the run. If `separate`, each side has a
    vocabulary of its own.

    Raises:
        UserError: the model breaks a rule of docs/models.md. The message has
            the rule, the difference, and the layer where that is known.
    """
    keras.utils.set_random_seed(1)  # a verdict does not depend on chance
    with tf.device("CPU:0"):
        model = building.build(
            hparams,
            _TARGETS,
            dtype,
            source_vocab_size=_INPUTS if separate else None,
        )
        subject = _subject(model, _INPUTS if separate else _TARGETS)
        try:
            for rule in _RULES:
                _apply(rule, subject)
        except Violation as violation:
            raise errors.UserError(
                f"The model {hparams.model!r} breaks a rule of "
                f"{errors.page('models.md')}: {violation}."
            ) from violation


def _apply(rule: Callable[[_Subject], None], subject: _Subject) -> None:
    """Check a rule, and that it is broken by no weights that are new."""
    known = {weight.path for weight in subject.model.weights}
    try:
        rule(subject)
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"= (\d+) is not in (\[.*?\))", str(error))
        if found is None:
            raise
        raise Violation(
            "inputs have ids below source_vocab_size, and targets below "
            f"vocab_size; {found[1]} is refused, since a layer takes "
            f"{found[2]}. Pass source_vocab_size to super().__init__(), and "
            "give it to the embedding of inputs"
        ) from error
    finally:
        if new := [
            w.path for w in subject.model.weights if w.path not in known
        ]:
            raise Violation(
                "all weights are made by __init__() and the first call of "
                f"hidden_states(); {', '.join(new)} appeared only later, and "
                "would be neither trained nor stored. Call the layer in "
                "hidden_states(), too, or build it in build()"
            )


def _subject(model: Seq2Seq, source_vocab_size: int) -> _Subject:
    """Return the model with random biases and gains, and its two pairs."""
    generator = np.random.default_rng(0)
    for weight in model.weights:
        if len(weight.shape) < 2:  # initially 0 or 1, which would hide errors
            noise = generator.normal(0, 0.2, weight.shape)
            weight.assign(weight + ops.cast(noise, weight.dtype))
    inputs, targets = (
        generator.integers(2, size, (2, length), np.int32)
        for size, length in ((source_vocab_size, 6), (model.vocab_size, 5))
    )
    inputs[0, 1], targets[0, 1] = source_vocab_size - 1, _TARGETS - 1
    inputs[0, -1] = targets[0, -1] = 1  # EOS
    inputs[1, 3:], targets[1, 3:] = (1, 0, 0), (1, 0)
    return _Subject(model, inputs, targets)


# Rules


def _check_logits(subject: _Subject) -> None:
    logits, outputs, layers = subject.together
    known = {*map(id, keras_compat.all_layers(subject.model))}
    for layer in layers:
        if id(layer) not in known and layer.weights:
            raise Violation(
                "all layers are made by __init__() as attributes of a layer; "
                f"{layer.path} is none, and its weights would be neither "
                "trained nor stored"
            )
    expected = (*subject.targets.shape, subject.model.vocab_size)
    if logits.shape != expected or logits.dtype != np.float32:
        raise Violation(
            f"logits are float32 {expected}; got {logits.dtype} {logits.shape}"
        )
    if not np.isfinite(logits).all():
        found = (
            f"; the first layer with others is {path}"
            for path, x in outputs.items()
            if not np.isfinite(x).all()
        )
        raise Violation(f"logits are finite{next(found, '')}")


def _check_padding(subject: _Subject) -> None:
    """Compare the second sentence alone, without padding, with the batch."""
    both, in_batch, _ = subject.together
    alone, by_itself, _ = subject.second
    pairs = {
        path: (x[1:, : y.shape[1]], y)
        for path, y in by_itself.items()
        if (x := in_batch.get(path)) is not None
        and x.ndim == 3
        and y.shape[1] == 4
    }
    subject.require_equal(
        both[1:, :4],
        alone,
        "a sentence has the same logits alone as in a batch with padding",
        pairs,
    )


def _check_causality(subject: _Subject) -> None:
    changed = subject.targets.copy()
    changed[:, 2] = 2
    subject.require_equal(
        subject.run(subject.inputs, changed).logits[:, :3],
        subject.together.logits[:, :3],
        "logits depend on earlier targets alone; those of positions 0 to 2 are "
        "compared, with another target at position 2",
    )


def _check_packed_rows(subject: _Subject) -> None:
    """Compare two sentences in one row with the same in rows of their own."""
    if not subject.model.packed_rows:
        return
    first = seq2seq.one_sentence_per_row(
        subject.inputs[:1], subject.targets[:1]
    )
    second = seq2seq.one_sentence_per_row(*subject.second_pair)
    packed = {
        name: ops.concatenate(
            [first[name], second[name] * (2 if "segment" in name else 1)],
            axis=1,
        )
        for name in first
    }
    subject.require_equal(
        subject.logits(packed)[0],
        np.concatenate([subject.together.logits[0], subject.second.logits[0]]),
        "a sentence has the same logits in a packed row as in its own",
    )


def _check_random_numbers(subject: _Subject) -> None:
    """Compare a row's random numbers alone with those in a batch."""

    def logits(rows: slice) -> np.ndarray:
        inputs, targets = subject.inputs[rows], subject.targets[rows]
        rng = randomness.step_rng(1, 1, rows.start, len(inputs))
        batch = seq2seq.one_sentence_per_row(inputs, targets)
        return subject.logits(batch, rng=rng)

    subject.require_equal(
        logits(slice(1, 2)),
        logits(slice(0, 2))[1:],
        "random numbers are a function of the row: a row has the same in any "
        "batch",
    )


def _check_gradients(subject: _Subject) -> None:
    model = subject.model
    batch = tf.nest.map_structure(
        tf.constant,
        seq2seq.one_sentence_per_row(subject.inputs, subject.targets),
    )
    lengths = subject.targets.shape[1], subject.inputs.shape[1]
    batch[ALIGNMENTS] = tf.ones((2, *lengths), tf.int8)
    weights = model.trainable_variables
    with tf.GradientTape() as tape:
        rng = randomness.step_rng(1, 1, 0, 2)
        counts = dict.fromkeys(batches.DENOMINATORS, 1.0)
        objective = Objective(0.1, losses.build(model.hparams.loss))
        sums = batch_loss(model, batch, rng, objective, counts)
        loss = sums.smoothed + sum(sums.auxiliary.values())
    gradients = tape.gradient(loss, [weight.value for weight in weights])
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is None:
            raise Violation(
                "the loss depends on each weight that is trainable; it does "
                f"not depend on {weight.path}"
            )
        if not np.isfinite(tf.convert_to_tensor(gradient)).all():
            raise Violation(f"gradients are finite; {weight.path} has others")


def _check_auxiliary_losses(subject: _Subject) -> None:
    """Compare the sums of both pairs together with those of each alone."""
    model = subject.model
    if model.notes:  # losses that are no such sums
        return

    def totals(inputs: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
        batch = seq2seq.one_sentence_per_row(inputs, targets)
        found = model.hidden_states(batch).auxiliary_losses
        return {
            loss.name: np.asarray(ops.cast(loss.total, "float32"))
            for loss in found
        }

    both = totals(subject.inputs, subject.targets)
    first = totals(subject.inputs[:1], subject.targets[:1])
    second = totals(*subject.second_pair)
    for name, total in both.items():
        subject.require_equal(
            total,
            first[name] + second[name],
            "an auxiliary loss is a sum over rows, without padding; "
            f"{name} of two pairs is compared with the sum of each alone",
        )


def _check_decoding(subject: _Subject) -> None:
    """Compare steps of decoding with the full pass, as a search takes them.

    Beams change their places at each step, the state is compacted after each
    second one, and the first sentence is dropped after the third.
    """
    model, steps = subject.model, subject.targets.shape[1]
    generator = np.random.default_rng(1)
    shape = 2, _BEAMS, steps
    hypotheses = generator.integers(2, model.vocab_size, shape, np.int32)
    full = _full_pass(subject, hypotheses)
    state = model.start_decoding(
        ops.convert_to_tensor(subject.inputs),
        _BEAMS,
        2,
        model.decoding_constants(),
    )
    # Sentences that are left, and which hypothesis each of their beams is.
    rows, beams = np.arange(2), np.tile(np.arange(_BEAMS), (2, 1))
    for step in range(steps):
        if step:
            parents = generator.permuted(
                np.tile(range(_BEAMS), (len(rows), 1)), axis=1
            )
            state = model.reorder_beams(
                state, ops.convert_to_tensor(parents, "int32")
            )
            beams = np.take_along_axis(beams, parents, 1)
        if step in (2, 4):
            state = model.compact_state(state)
        place = rows[:, None], beams
        previous = hypotheses[place][..., step - 1]  # not read at step 0
        with _observed_layers() as (outputs_of_layers, _):
            outputs = model.decode_step(
                ops.convert_to_tensor(previous, "int32"),
                ops.convert_to_tensor(step, "int32"),
                state,
            )
        _compare_step(subject, outputs, outputs_of_layers, full, (*place, step))
        state = outputs.state
        if step == 2:
            rows, beams = rows[1:], beams[1:]
            left = [
                keras.tree.map_structure(lambda x: x[1:], part)
                for part in (state.sentences, state.hypotheses)
            ]
            state = state._replace(sentences=left[0], hypotheses=left[1])


def _check_graph(subject: _Subject) -> None:
    """Trace a step of decoding, as a search does."""
    model, inputs = subject.model, ops.convert_to_tensor(subject.inputs)
    constants = model.decoding_constants()
    state = model.start_decoding(inputs, _BEAMS, 2, constants)
    ids = tf.TensorSpec((len(inputs), _BEAMS), tf.int32)
    try:
        graph.function(model.decode_step).get_concrete_function(
            ids, tf.TensorSpec((), tf.int32), state
        )
    except tf.errors.OperatorNotAllowedInGraphError as error:
        raise Violation(
            "conditions and loops over tensors are ops.where, ops.cond and "
            "ops.while_loop; decode_step() has others: "
            f"{str(error).partition('. ')[0]}"
        ) from error


def _full_pass(subject: _Subject, hypotheses: np.ndarray) -> tuple:
    """Return results of all hypotheses [B, W, T] in one pass.

    They are logits [B, W, T, V], attention weights [B, W, T, L] or None, and
    {path: output [B * W, T, D]} of the layers.
    """
    shape = hypotheses.shape
    pairs = (
        np.repeat(subject.inputs, shape[1], 0),
        hypotheses.reshape(-1, shape[2]),
    )
    logits, outputs, _ = subject.run(*pairs)
    logits = logits.reshape(*shape, -1)
    if "cross" not in subject.model.attention_kinds:
        return logits, None, outputs
    batch = seq2seq.one_sentence_per_row(*pairs)
    weights = np.asarray(subject.model.attention_weights(batch).cross)
    return logits, weights.mean((0, 2)).reshape(*shape, -1), outputs


def _compare_step(
    subject: _Subject,
    outputs: StepOutputs,
    layers: dict[str, np.ndarray],
    full: tuple,
    place: tuple,
) -> None:
    """Compare a step with a _full_pass() at indices `place` of [B, W, T]."""
    logits, attention, layers_of_pass = full
    shape = logits.shape[:3]
    pairs = {
        path: (x.reshape(*place[1].shape, -1), layer.reshape(*shape, -1)[place])
        for path, x in layers.items()
        if (layer := layers_of_pass.get(path)) is not None
        and x.size % place[1].size == 0
        and x.size * math.prod(shape) == layer.size * place[1].size
    }
    rule = f"of decode_step() are those of the full pass (at step {place[2]})"
    subject.require_equal(
        outputs.logits, logits[place], f"logits {rule}", pairs
    )
    if attention is not None:
        subject.require_equal(
            outputs.attention, attention[place], f"attention weights {rule}"
        )


_RULES: tuple[Callable[[_Subject], None], ...] = (
    _check_logits,
    _check_padding,
    _check_causality,
    _check_packed_rows,
    _check_random_numbers,
    _check_gradients,
    _check_auxiliary_losses,
    _check_decoding,
    _check_graph,
)


@contextlib.contextmanager
def _observed_layers() -> Iterator[
    tuple[dict[str, np.ndarray], list[keras.layers.Layer]]
]:
    """Record {path: output} of the layers, and the layers, as called.

    Of a layer that is called more than once, the last output counts. Outputs of
    embeddings are left out, which a full pass shifts, and those that are no
    tensors.
    """
    outputs: dict[str, np.ndarray] = {}
    layers: list[keras.layers.Layer] = []

    def record(layer, output):
        if output is not None:
            layers.append(layer)
        if ops.is_tensor(output) and not isinstance(layer, Embedding):
            outputs[layer.path or layer.name] = np.asarray(
                ops.cast(output, "float32")
            )

    with keras_compat.observed_calls(record):
        yield outputs, layers
