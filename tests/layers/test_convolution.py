"""Convolutions and weight-normalized layers against sums in numpy."""

import math

import numpy as np
import pytest
from keras import ops
from numpy_layers import normal

from t2t_repro.layers import convolution


def _convolve(x, kernel, bias, dilation, causal):
    """Return the convolution of x [B, T, D], one position and tap at a time."""
    width, length = len(kernel), x.shape[1]
    centre = width - 1 if causal else (width - 1) // 2
    y = np.zeros((*x.shape[:2], kernel.shape[-1])) + bias
    for t in range(length):
        for tap in range(width):
            seen = t + (tap - centre) * dilation
            if 0 <= seen < length:
                y[:, t] += x[:, seen] @ kernel[tap]
    return y


@pytest.mark.parametrize(
    ("width", "dilation"), [(1, 1), (3, 1), (5, 3), (3, 16)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_convolution_equals_sum_over_taps(width, dilation, causal):
    layer = convolution.DilatedConvolution(4, width, dilation, causal)
    layer.build((None, None, 3))
    layer.set_weights([normal(width, 3, 4), normal(4)])
    x = normal(2, 9, 3)
    expected = _convolve(x, *layer.get_weights(), dilation, causal)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    empty = layer(ops.zeros((0, 9, 3)))
    assert tuple(empty.shape) == (0, 9, 4)


def test_initial_weight_is_direction_of_given_variance():
    layer = convolution.WeightNormDense(64, 2_000, initial_variance=3.2)
    layer.build()
    np.testing.assert_allclose(layer.weight, layer.direction, rtol=1e-5)
    deviation = math.sqrt(3.2 / 64)
    assert np.std(layer.direction.numpy()) == pytest.approx(deviation, rel=0.02)
    assert not np.asarray(layer.bias).any()
