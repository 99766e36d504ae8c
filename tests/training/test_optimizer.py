"""The paper's Adam, compared with Adam in numpy."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.runtime import graph, keras_compat
from t2t_repro.training import optimizer, schedules


@pytest.fixture(scope="module")
def base(tiny_hparams):  # tiny_hparams loads the definitions
    """Return the base set."""
    return registry.build_hparams("base")


def _paper(step, hidden_size=512, warmup=4000):
    """Return the rate of equation 3."""
    return hidden_size**-0.5 * min(step**-0.5, step * warmup**-1.5)


@pytest.mark.parametrize("name", ["base", "tiny", "transformer_base"])
@pytest.mark.usefixtures("tiny_hparams")
def test_schedule_survives_json(name):
    """Keras serializes a schedule within an optimizer's config."""
    hparams = registry.build_hparams(name)
    config = keras.optimizers.serialize(optimizer.build(hparams, []))
    adam = keras.optimizers.deserialize(json.loads(json.dumps(config)))
    for iterations in (0, 99, 7_999):
        adam.iterations.assign(iterations)
        expected = float(schedules.learning_rate(hparams, iterations + 1))
        assert float(adam.learning_rate) == pytest.approx(expected, rel=2e-6)


def test_updates_equal_adam_in_numpy(base):
    """The oracle is Kingma and Ba's algorithm 1, with equation 3's rates."""
    hparams = dataclasses.replace(base, learning_rate_warmup_steps=3)
    random = np.random.default_rng(0)
    weights = [random.normal(size=shape) for shape in ((3, 4), (5,))]
    variables = [keras.Variable(weight) for weight in weights]
    adam = optimizer.build(hparams, variables)
    first = [np.zeros_like(weight) for weight in weights]
    second = [np.zeros_like(weight) for weight in weights]
    for step in range(1, 8):
        gradients = [random.normal(size=w.shape) for w in weights]
        tensors = [keras.ops.convert_to_tensor(g, "float32") for g in gradients]
        adam.apply(tensors, variables)
        for i, gradient in enumerate(gradients):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.98 * second[i] + 0.02 * gradient**2
            mean, square = (
                first[i] / (1 - 0.9**step),
                second[i] / (1 - 0.98**step),
            )
            rate = _paper(step, warmup=3)
            weights[i] -= rate * mean / (np.sqrt(square) + 1e-9)
            actual = variables[i].numpy()
            np.testing.assert_allclose(actual, weights[i], rtol=1e-5, atol=1e-6)
    assert int(adam.iterations) == 7


def test_epsilon_reduces_updates_of_tiny_gradients(base):
    """Keras adds epsilon to a second moment without bias correction."""
    variable = keras.Variable([0.0])
    adam = optimizer.build(base, [variable])
    adam.apply([keras.ops.convert_to_tensor([1e-8])], [variable])
    expected = -_paper(1) / (1 + 1e-9 / (0.02**0.5 * 1e-8))
    np.testing.assert_allclose(variable.numpy(), [expected], rtol=1e-4)


def test_amsgrad_equals_that_of_keras(base):
    """It has another slot, which the fused update would leave at 0."""
    hparams = dataclasses.replace(base, optimizer_arguments="amsgrad=true")
    random = np.random.default_rng(0)
    start = random.normal(size=(3, 4))
    actual, expected = keras.Variable(start), keras.Variable(start)
    ours = optimizer.build(hparams, [actual])
    keras_adam = keras.optimizers.Adam(
        schedules.build(base), 0.9, 0.98, 1e-9, amsgrad=True
    )
    for scale in (1, 100, 0.01):
        gradient = keras.ops.convert_to_tensor(
            scale * random.normal(size=(3, 4)), "float32"
        )
        ours.apply([gradient], [actual])
        keras_adam.apply([gradient], [expected])
    np.testing.assert_array_equal(actual, expected)
    assert np.abs(actual.numpy() - start).max() > 1e-7


@pytest.fixture
def updated(base, strategy_of):
    """Return a function that returns weights and slots after three updates."""

    def update(xla, policy, **changes):
        hparams = dataclasses.replace(base, **changes)
        strategy = strategy_of(2)
        with strategy.scope():
            weights = [
                keras.Variable(np.ones(shape), name=name)
                for name, shape in (("matrix", (3, 4)), ("vector", 5))
            ]
            built = optimizer.build(hparams, weights, policy, xla)
        keras_compat.disable_gradient_all_reduce(built)

        @graph.function
        def step(gradients):
            strategy.run(lambda: built.apply(gradients, weights))

        for size in (1e-3, np.nan if policy == "mixed_float16" else 1.0, 2.0):
            scaled = size * built.scale_loss(1.0)
            step([scaled * tf.ones(w.shape) for w in weights])
        variables = weights + built.variables
        for variable in weights:
            first, second = strategy.experimental_local_results(variable.value)
            np.testing.assert_array_equal(first, second)
        return [v.numpy() for v in variables]

    return update


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        ("mixed_float16", {}),
        ("float32", {"ema_decay": 0.9, "clip_grad_norm": 0.1}),
        ("float32", {"optimizer": "adamw", "weight_decay": 0.1}),
    ],
)
def test_compiled_updates_equal_the_others(updated, policy, changes):
    plain, compiled = (updated(xla, policy, **changes) for xla in (False, True))
    for expected, actual in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9)


def test_compiled_update_is_one_operation_of_the_graph(base):
    weights = [keras.Variable(np.ones(3), name=name) for name in "ab"]
    adam = optimizer.build(base, weights, xla=True)
    gradients = [tf.ones(3), tf.ones(3)]
    step = graph.function(lambda: adam.apply(gradients, weights))
    operations = step.get_concrete_function().graph.get_operations()
    assert "ResourceApplyAdam" not in {op.type for op in operations}
    compiled = [
        op
        for op in operations
        if op.type in ("PartitionedCall", "StatefulPartitionedCall")
    ]
    assert len(compiled) == 1


def test_compiled_update_accepts_any_order_and_part_of_the_weights():
    weights = [keras.Variable(np.ones(3), name=name) for name in "ab"]
    adam = optimizer.Adam(0.5)
    adam.xla = True
    adam.build(weights)
    adam.apply([tf.zeros(3), tf.ones(3)], weights[::-1])
    adam.apply([tf.ones(3)], weights[:1])
    first, second = (weight.numpy() for weight in weights)
    assert (first < 0.6).all()
    np.testing.assert_array_equal(second, 1.0)
