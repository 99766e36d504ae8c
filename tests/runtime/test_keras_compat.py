"""Assumptions of keras_compat.py on private parts of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.runtime import keras_compat


@pytest.mark.parametrize("floatx", ["float16", "float64"])
def test_program_with_another_default_type_is_refused(monkeypatch, floatx):
    keras_compat.require_defaults()
    monkeypatch.setattr(keras.config, "floatx", lambda: floatx)
    message = f"floatx must be 'float32'; got '{floatx}', which keras.json"
    with pytest.raises(errors.UserError, match=message):
        keras_compat.require_defaults()


def test_fresh_names_are_those_of_a_new_process():
    keras.layers.Dense(1)
    before = keras.layers.Dense(1).name
    with keras_compat.fresh_names():
        names = [keras.layers.Dense(1).name for _ in range(2)]
    assert names == ["dense", "dense_1"]
    # Outside, the count continues as before.
    count = int(before.removeprefix("dense_"))
    assert keras.layers.Dense(1).name == f"dense_{count + 1}"


def test_layers_without_values_have_shapes_and_are_traced():
    with keras_compat.without_values():
        layer = keras.layers.Dense(1 << 20)  # 4 TiB
        keras_compat.trace(layer, np.ones((1, 1 << 20), np.float32))
    assert layer.kernel.shape == (1 << 20, 1 << 20)
    assert layer.kernel._value is None
    usual = keras.layers.Dense(2)
    usual.build((1, 3))
    assert usual.kernel.numpy().shape == (3, 2)


@pytest.mark.parametrize("name", ["RandomNormal", "GlorotUniform", "HeNormal"])
def test_variables_without_random_values_are_zeros(name):
    def build():
        initializer = getattr(keras.initializers, name)()
        layer = keras.layers.Dense(3, kernel_initializer=initializer)
        return layer, np.asarray(layer(np.ones((1, 2))))

    with keras_compat.without_random_values():
        layer, output = build()
    assert layer.kernel.shape == (2, 3)
    assert not output.any()
    assert build()[1].any()


def test_all_layers_finds_nested_layers_once():
    shared, inner = keras.layers.Dense(1), keras.layers.Dense(2)

    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.stack = [shared, keras.Sequential([inner, shared])]

    outer = Outer()
    layers = keras_compat.all_layers(outer)
    for layer in (outer, shared, inner, outer.stack[1]):
        assert sum(item is layer for item in layers) == 1


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("disable", "sum_of"), [(True, 1), (False, 2)])
def test_gradients_are_summed_over_replicas_unless_disabled(
    strategy_of, disable, sum_of, scaled
):
    strategy = strategy_of(2)
    with strategy.scope():
        weight = keras.Variable(np.zeros(3, np.float32))
        built = keras.optimizers.SGD(1.0)
        if scaled:
            built = keras_compat.LossScaleOptimizer(built, initial_scale=1.0)
        built.build([weight])
    if disable:
        keras_compat.disable_gradient_all_reduce(built)
    tf.function(
        lambda: strategy.run(lambda: built.apply([tf.ones(3)], [weight]))
    )()
    np.testing.assert_array_equal(weight, [-sum_of] * 3)


@pytest.mark.parametrize("replicas", [1, 2])
def test_loss_scale_recovers_after_many_overflows(strategy_of, replicas):
    strategy = strategy_of(replicas)
    with strategy.scope():
        weight = keras.Variable(np.ones(2, np.float32))
        built = keras_compat.LossScaleOptimizer(
            keras.optimizers.SGD(1.0), dynamic_growth_steps=1
        )
        built.build([weight])

    @tf.function
    def update(gradient):
        strategy.run(lambda: built.apply([gradient], [weight]))

    for _ in range(200):
        update(tf.constant([np.nan, 0.0]))
    assert built.dynamic_scale.numpy() == np.float32(1e-4)
    update(tf.zeros(2))
    assert built.dynamic_scale.numpy() == np.float32(2e-4)
    np.testing.assert_array_equal(weight, [1, 1])
