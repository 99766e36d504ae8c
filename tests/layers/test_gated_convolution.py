"""Tests of gated convolutions against loops in numpy."""

import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import randomness
from t2t_repro.layers.gated_convolution import GatedConvolution

B, N, C, CHANNELS = 2, 6, 3, 4


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _layer(width, causal, rate=0.0):
    layer = GatedConvolution(C, CHANNELS, width, rate, causal)
    layer(_x(B, N, C))
    layer.linear.gain.assign(_x(2 * CHANNELS))
    layer.linear.bias.assign(_x(2 * CHANNELS))
    return layer


def _oracle(layer, x, before):
    """Compute x [B, N, C] convolved, position by position, between zeros."""
    weight = np.asarray(layer.linear.weight)
    weight = weight.reshape(2, CHANNELS, layer.width, C)
    bias = np.asarray(layer.linear.bias).reshape(2, CHANNELS)
    output = np.zeros((B, N, CHANNELS))
    for b, i, channel in np.ndindex(*output.shape):
        value, gate = bias[:, channel]
        for tap in range(layer.width):
            j = i + tap - before
            if 0 <= j < N:
                value += weight[0, channel, tap] @ x[b, j]
                gate += weight[1, channel, tap] @ x[b, j]
        output[b, i, channel] = value / (1 + np.exp(-gate))
    return output


@pytest.mark.parametrize("causal", [False, True])
def test_gated_convolution_passes_layer_checks(run_layer_test, dtype, causal):
    layer = run_layer_test(
        GatedConvolution,
        {
            "input_channels": C,
            "channels": CHANNELS,
            "width": 3,
            "dropout_rate": 0.1,
            "causal": causal,
        },
        (_x(B, N, C), np.ones((B, N), bool)),
        (B, N, CHANNELS),
        dtype,
    )
    assert layer.linear.direction.shape == (2 * CHANNELS, 3 * C)
    assert layer.linear.initial_variance == 4 * 0.9


@pytest.mark.parametrize(
    ("width", "causal", "before"),
    [
        (1, False, 0),
        (2, False, 0),
        (3, False, 1),
        (5, False, 2),
        (9, False, 4),  # wider than the sentence
        (1, True, 0),
        (2, True, 1),
        (3, True, 2),
        (9, True, 8),
    ],
)
def test_output_equals_loops(width, causal, before):
    layer, x = _layer(width, causal), _x(B, N, C)
    expected = _oracle(layer, x, before)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_padding_is_zero_whatever_it_contains():
    layer, x = _layer(3, causal=False), _x(B, N, C)
    real = np.arange(N) < np.array([[6], [3]])
    expected = _oracle(layer, x * real[..., None], before=1)
    x[~real] = 1e6
    output = np.asarray(layer(x, real))
    np.testing.assert_allclose(output[real], expected[real], atol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_steps_equal_whole_sequence(width):
    layer, x = _layer(width, causal=True), _x(B, N, C)
    expected = np.asarray(layer(x))
    kernels = {layer.linear.path: layer.linear.kernel()}
    past = ops.zeros((1, B, width - 1, C)) if width > 1 else None
    for i in range(N):  # the B sequences are beams of one sentence
        output, past = layer.step(x[None, :, i], past, kernels)
        np.testing.assert_allclose(output[0], expected[:, i], atol=1e-5)


def test_dropout_acts_on_inputs():
    layer, x = _layer(3, causal=False, rate=0.4), _x(B, N, C)
    rng = randomness.step_rng(1, 2, 0, B)
    kept = np.asarray(layer.dropout(np.ones((B, N, C)), rng=rng))
    assert 0 < (kept == 0).mean() < 1
    expected = _oracle(layer, x * kept, before=1)
    np.testing.assert_allclose(layer(x, rng=rng), expected, atol=1e-5)
