"""Clipping, moving averages and slots of optimizers, compared with numpy."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.runs import checkpoints
from t2t_repro.runtime import graph, keras_compat
from t2t_repro.training import optimizer

SHAPES = ((3, 4), (5,))
RATE = 0.25
UPDATES = 4


def _gradients():
    """Return gradients, an array for each weight, for each update."""
    random = np.random.default_rng(1)
    return [[random.normal(size=s) for s in SHAPES] for _ in range(UPDATES)]


def _start():
    random = np.random.default_rng(0)
    return [random.normal(size=shape) for shape in SHAPES]


@pytest.fixture
def hparams(tiny_hparams):
    """Return a constant rate, and the paper's betas."""
    return dataclasses.replace(
        tiny_hparams,
        learning_rate_schedule="constant",
        learning_rate_constant=RATE,
    )


def _train(hparams, strategy, gradients, policy="float32"):
    """Return weights and optimizer after updates as in step.py."""
    with strategy.scope():
        variables = [keras.Variable(start) for start in _start()]
        built = optimizer.build(hparams, variables, policy)
    keras_compat.disable_gradient_all_reduce(built)

    @graph.function
    def update(tensors):
        strategy.run(lambda: built.apply(tensors, variables))

    for arrays in gradients:
        update([tf.constant(array, tf.float32) for array in arrays])
    assert int(built.iterations.numpy()) == len(gradients)
    return variables, built


def _copies(variable):
    """Return a variable's array on each replica."""
    values = getattr(variable.value, "values", [variable.value])
    return [value.numpy() for value in values]


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("limit", [0.5, 50.0])
def test_clipping_is_by_the_norm_of_the_whole_gradient(
    hparams, strategy_of, limit, replicas
):
    hparams = dataclasses.replace(hparams, clip_grad_norm=limit)
    gradients = _gradients()[:1]
    norm = np.sqrt(sum((array**2).sum() for array in gradients[0]))
    assert 0.5 < norm < 50
    _, adam = _train(hparams, strategy_of(replicas), gradients)
    for momentum, array in zip(adam._momentums, gradients[0], strict=True):
        expected = 0.1 * array * min(1, limit / norm)
        np.testing.assert_allclose(momentum, expected, rtol=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
def test_moving_average_begins_with_the_first_update(
    hparams, strategy_of, replicas
):
    gradients, weights = _gradients(), []
    for number in range(1, UPDATES + 1):
        variables, _ = _train(hparams, strategy_of(1), gradients[:number])
        weights.append([variable.numpy() for variable in variables])
    hparams = dataclasses.replace(hparams, ema_decay=0.75)
    variables, built = _train(hparams, strategy_of(replicas), gradients)
    averages = checkpoints.slots_of_kind(built, variables, "ema")
    for i, variable in enumerate(variables):
        expected = weights[0][i]
        for later in weights[1:]:
            expected = 0.75 * expected + 0.25 * later[i]
        for copy in _copies(averages[i]):
            np.testing.assert_allclose(copy, expected, rtol=1e-5, atol=1e-6)
        # The weights themselves are trained as without it.
        np.testing.assert_allclose(
            variable, weights[-1][i], rtol=1e-5, atol=1e-6
        )
    with optimizer.averaged_weights(built, variables):
        for i, variable in enumerate(variables):
            np.testing.assert_array_equal(variable, averages[i])
            assert np.abs(variable - weights[-1][i]).max() > 1e-3
    for i, variable in enumerate(variables):
        np.testing.assert_allclose(
            variable, weights[-1][i], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("replicas", [1, 2])
def test_moving_average_counts_skipped_updates(hparams, strategy_of, replicas):
    """Updates that overflow in float16 are skipped, the first included."""
    overflow = [np.full(shape, np.inf) for shape in SHAPES]
    gradients = [overflow, _gradients()[0], overflow]
    hparams = dataclasses.replace(hparams, ema_decay=0.75)
    variables, built = _train(
        hparams, strategy_of(replicas), gradients, "mixed_float16"
    )
    averages = checkpoints.slots_of_kind(built, variables, "ema")
    for i, start in enumerate(_start()):
        after = np.asarray(variables[i])
        assert np.abs(after - start).max() > 0.1
        expected = 0.75 * (0.75 * start + 0.25 * after) + 0.25 * after
        for copy in _copies(averages[i]):
            np.testing.assert_allclose(copy, expected, rtol=1e-5, atol=1e-6)
