"""Tests of weight normalization against its formula in numpy."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import gated_convolution


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _layer(dtype="float32"):
    layer = gated_convolution.WeightNormDense(4, 3, name="dense", dtype=dtype)
    layer.build()
    return layer


def _weight(direction, gain):
    """Return g v / ||v||, row by row."""
    pairs = zip(direction, gain, strict=True)
    rows = [g * v / math.sqrt(v @ v) for v, g in pairs]
    return np.stack(rows)


def test_weight_norm_passes_layer_checks(run_layer_test, dtype):
    layer = run_layer_test(
        gated_convolution.WeightNormDense,
        {"input_size": 4, "units": 3, "initial_variance": 2.0},
        (_x(2, 5, 4),),
        (2, 5, 3),
        dtype,
    )
    assert {weight.path: weight.shape for weight in layer.weights} == {
        "tested/direction": (3, 4),
        "tested/gain": (3,),
        "tested/bias": (3,),
    }


def test_output_equals_formula():
    layer, x = _layer(), _x(2, 5, 4)
    direction, gain, bias = _x(3, 4), np.array([2.0, -0.5, 0.1]), _x(3)
    layer.set_weights([direction, gain, bias])
    weight = _weight(direction, gain)
    np.testing.assert_allclose(layer.weight, weight, rtol=1e-5)
    expected = x @ weight.T + bias
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    np.testing.assert_allclose(layer.logits(x), expected, atol=1e-5)


def test_scale_of_direction_has_no_effect():
    layer, x = _layer(), _x(5, 4)
    before = np.asarray(layer(x))
    layer.direction.assign(3.0 * layer.direction.numpy())
    np.testing.assert_allclose(layer(x), before, rtol=1e-5)


def test_initial_weight_is_direction_of_given_variance():
    layer = gated_convolution.WeightNormDense(64, 2_000, initial_variance=3.2)
    layer.build()
    np.testing.assert_allclose(layer.weight, layer.direction, rtol=1e-5)
    deviation = math.sqrt(3.2 / 64)
    assert np.std(layer.direction.numpy()) == pytest.approx(deviation, rel=0.02)
    assert not np.asarray(layer.bias).any()


def test_weight_and_logits_are_float32(dtype):
    """The norm is computed in float32, within a call as well."""
    layer = _layer(dtype)
    small = np.full((3, 4), 1e-5, np.float32)  # its square is 0 in float16
    layer.direction.assign(small)
    outputs = layer(ops.ones((1, 4), layer.compute_dtype))
    assert np.isfinite(np.asarray(ops.cast(outputs, "float32"))).all()
    for tensor in (layer.weight, layer.logits(ops.ones((1, 4)))):
        assert keras.backend.standardize_dtype(tensor.dtype) == "float32"


def test_shared_kernels_give_same_outputs():
    layer, x = _layer(), _x(2, 4)
    kernels = {layer.path: layer.kernel()}
    for function in (layer, layer.logits):
        expected = np.asarray(function(x))
        np.testing.assert_array_equal(function(x, kernels), expected)
