"""Equality of the update from one global batch, however it is computed."""

import dataclasses
import functools
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from step_trials import SEED, Trial, assert_same_update, distance

from t2t_repro import errors, registry
from t2t_repro.data import batches
from t2t_repro.data.corpus import SIDES
from t2t_repro.layers import randomness
from t2t_repro.layers.embedding import Embedding
from t2t_repro.models import building
from t2t_repro.models.seq2seq import AuxiliaryLoss, HiddenStates
from t2t_repro.training import cross_entropy, step


class TinyModel:
    """A model of two matrices, with random numbers and an auxiliary loss."""

    def __init__(self, vocab_size, width=4):
        self.embedding = keras.Variable(
            tf.zeros((vocab_size, width)), name="embedding"
        )
        self.output_layer = Embedding(
            vocab_size, width, use_bias=True, name="output"
        )
        self.output_layer.build()
        self.weights = [self.embedding, *self.output_layer.weights]
        self.trainable_variables = self.weights

    def hidden_states(self, batch, rng):
        inputs, states = (
            tf.gather(self.embedding.value, batch[side]) for side in SIDES
        )
        if rng is not None:  # in validation, nothing depends on the row
            states += tf.reduce_mean(inputs, axis=1, keepdims=True)
            stream = randomness.stream_id("tiny")
            states *= randomness.uniform(rng, stream, ops.shape(states))
        is_real = tf.cast(batch["targets_segment"] > 0, tf.float32)
        squares = tf.reduce_sum(states**2, -1) * is_real
        auxiliary = AuxiliaryLoss(
            "norms", tf.reduce_sum(squares), "target_tokens"
        )
        return HiddenStates(states, (auxiliary,))


@pytest.fixture(scope="module")
def trial_of(one_layer, tiny_corpora, vocab_size, strategy_of, randomize):
    """Return a function that returns a Trial of a model.

    It is `model`, or that of an hparams set; without both, a Transformer of one
    layer.
    """
    assert one_layer.layer_prepostprocess_dropout == 0.1

    @functools.cache
    def make(
        replicas=1, xla=False, policy="float32", model=None, name="", **settings
    ):
        hparams = one_layer
        if name:
            hparams = dataclasses.replace(
                registry.build_hparams(name),
                batch_tokens=one_layer.batch_tokens,
                max_length=one_layer.max_length,
            )
        hparams = dataclasses.replace(hparams, **settings)
        return Trial(
            lambda: (
                model(vocab_size)
                if model
                else building.build(hparams, vocab_size, policy)
            ),
            hparams,
            tiny_corpora["train"],
            strategy_of(replicas),
            randomize,
            xla,
            policy,
        )

    return make


@pytest.fixture(scope="module")
def tiny_trial(trial_of):
    """Return a function that returns a Trial of TinyModel."""
    return functools.partial(trial_of, model=TinyModel)


@pytest.fixture(scope="module")
def expected_of_tiny(tiny_trial):
    """Return the result of one replica, one microbatch and a plain graph."""
    return tiny_trial().run()


@pytest.mark.parametrize(
    ("replicas", "microbatches", "xla"),
    [
        (1, 3, False),  # 8 rows: the last microbatch ends in a padding row
        (1, 1, True),
        (1, 2, True),
        (2, 1, False),
        (2, 4, False),
        (2, 1, True),
        pytest.param(8, 1, False, marks=pytest.mark.slow),
    ],
)
def test_update_of_tiny_model_does_not_depend_on_distribution(
    tiny_trial, expected_of_tiny, replicas, microbatches, xla, monkeypatch
):
    unused = "_target_terms" if xla else "_target_terms_in_xla"
    monkeypatch.setattr(cross_entropy, unused, None)
    trial = tiny_trial(replicas, xla)
    assert_same_update(trial.run(microbatches), expected_of_tiny)
    assert len(trial.adam._compiled_updates) == xla


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("replicas", "microbatches", "optimizer", "is_one"),
    [
        (1, 1, "adam", True),
        (1, 2, "adam", False),
        (2, 1, "adam", False),
        (1, 1, "sign_sgd", False),  # may have operations unknown to XLA
    ],
)
def test_xla_compiles_one_program_for_one_replica_and_microbatch(
    tiny_trial, replicas, microbatches, optimizer, is_one
):
    trial = tiny_trial(replicas, True, optimizer=optimizer)
    graph = trial.train_step.get_concrete_function(
        next(iter(trial.dataset(microbatches)))
    ).graph
    compiled = [
        call
        for call in graph.get_operations()
        if "PartitionedCall" in call.type and call.get_attr("_XlaMustCompile")
    ]
    updates = {"AssignAddVariableOp", "ResourceApplyAdam"}
    outside = updates & {call.type for call in graph.get_operations()}
    assert (len(compiled) == 1 and not outside) == is_one


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("loss", "replicas", "microbatches", "xla"),
    [("focal", 1, 3, True), ("noisy:weight=0.5", 2, 2, False)],
)
def test_update_of_registered_loss_does_not_depend_on_distribution(
    tiny_trial, expected_of_tiny, loss, replicas, microbatches, xla
):
    expected = tiny_trial(1, loss=loss).run()
    assert distance(expected, expected_of_tiny) > 0.01
    trial = tiny_trial(replicas, xla, loss=loss)
    assert_same_update(trial.run(microbatches), expected)


def test_weight_that_the_loss_does_not_reach_is_named(trial_of):
    class Spare(TinyModel):
        def __init__(self, vocab_size):
            super().__init__(vocab_size)
            self.weights.append(keras.Variable(tf.zeros(3), name="spare"))

    with pytest.raises(errors.UserError, match="does not depend on spare. Use"):
        trial_of(model=Spare).run()


def test_gradient_equals_that_of_the_mean_loss_of_the_batch(trial_of):
    """The oracle is one tape over the whole batch, divided by real tokens."""
    trial = trial_of()
    result = trial.run(steps=1)
    trial.reset()
    arrays = batches.assemble(trial.corpus, trial.plan.batch(0))
    rng = randomness.step_rng(SEED, 0, 0, len(arrays["targets"]))
    with tf.GradientTape() as tape:
        sums = step.batch_loss(trial.model, arrays, rng, step.Objective(0.1))
        mean = sums.smoothed / np.count_nonzero(arrays["targets"])
    values = [weight.value for weight in trial.model.weights]
    gradients = tape.gradient(mean, values)
    np.testing.assert_allclose(result.sums[0], sums[:4], rtol=1e-5)
    norm = float(tf.linalg.global_norm(gradients))
    assert result.norms[0] == pytest.approx(norm, rel=1e-5)
    for weight, gradient in zip(trial.model.weights, gradients, strict=True):
        np.testing.assert_allclose(
            result.momentums[weight.path] / 0.1,
            tf.convert_to_tensor(gradient),
            rtol=1e-4,
            atol=1e-6,
            err_msg=weight.path,
        )


TRANSFORMER = {"hidden_size": 16, "filter_size": 32, "num_heads": 2}
MOE = TRANSFORMER | {"expert_filter_size": 8, "num_experts": 4}


@pytest.mark.slow
@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tiny", TRANSFORMER | {"layer_prepostprocess_dropout": 0.1}),
        ("toy_gru", {"hidden_size": 8}),
        (
            "transformer_moe_tiny",
            MOE | {"importance_loss_weight": 0.0, "load_loss_weight": 0.0},
        ),
    ],
)
def test_model_updates_do_not_depend_on_distribution(trial_of, name, settings):
    trial = trial_of(name=name, **settings)
    expected = trial.run()
    assert_same_update(trial.run(microbatches=2), expected)
    assert_same_update(trial_of(2, name=name, **settings).run(), expected)


@pytest.mark.slow
def test_update_with_balancing_losses_depends_on_number_of_parts(trial_of):
    """They are losses of a part; whether it is on a replica is the same."""
    of_set = functools.partial(trial_of, name="transformer_moe_tiny", **MOE)
    whole, halves = of_set().run(), of_set().run(microbatches=2)
    assert_same_update(of_set(2).run(), halves)
    assert distance(whole, halves) > 1e-3
    assert_same_update(of_set(1, xla=True).run(), whole)


@pytest.mark.slow
def test_update_does_not_depend_on_packing(trial_of):
    """Dropout is off, since its masks depend on rows."""
    trial = trial_of(layer_prepostprocess_dropout=0.0)

    def one_pair_a_row(number):
        batch = trial.plan.batch(number)
        count = len(batch.pairs)
        return batch._replace(rows=np.arange(count), num_rows=count)

    packed, dropped = trial.run(), trial_of().run()
    unpacked = trial.run(plan=types.SimpleNamespace(batch=one_pair_a_row))
    assert_same_update(unpacked, packed)
    assert abs(packed.sums[0, 0] / dropped.sums[0, 0] - 1) > 1e-3


@pytest.mark.parametrize(
    "policy",
    ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.slow)],
)
def test_gradients_in_16_bits_have_the_direction_of_float32(trial_of, policy):
    """The norm in float16 is that of the gradient without the loss scale."""
    actual = trial_of(policy=policy).run(steps=1)
    expected = trial_of().run(steps=1)
    np.testing.assert_allclose(
        actual.sums[:, 0], expected.sums[:, 0], rtol=0.02
    )
    np.testing.assert_allclose(actual.norms, expected.norms, rtol=0.02)
    assert actual.norms[0] != expected.norms[0]  # 16 bits were used
    for path, momentum in expected.momentums.items():
        gradient = actual.momentums[path]
        assert gradient.dtype == actual.updates[path].dtype == np.float32
        norms = np.linalg.norm(gradient) * np.linalg.norm(momentum)
        assert (gradient * momentum).sum() / norms > 0.95, path
