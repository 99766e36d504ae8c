"""Tests of dilated convolutions against sums over taps in numpy."""

import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import convolution, randomness


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


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


def _layer(width=3, dilation=2, causal=True):
    layer = convolution.DilatedConvolution(4, width, dilation, causal)
    layer.build((None, None, 3))
    layer.set_weights([_x(width, 3, 4), _x(4)])
    return layer


@pytest.mark.parametrize(
    ("width", "dilation"), [(1, 1), (3, 1), (3, 2), (5, 3), (3, 16)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_convolution_equals_sum_over_taps(width, dilation, causal):
    layer, x = _layer(width, dilation, causal), _x(2, 9, 3)
    expected = _convolve(x, *layer.get_weights(), dilation, causal)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "dilation"), [(1, 1), (3, 1), (3, 2), (5, 3)]
)
def test_steps_with_a_ring_equal_causal_convolution(width, dilation):
    """The ring of 12 slots, the largest, is passed once."""
    layer, x = _layer(width, dilation), _x(4, 15, 3)
    beams = x.reshape(2, 2, 15, 3)
    ring = np.zeros((2, 2, layer.reach, 3), np.float32)
    outputs = []
    for step in range(15):
        y, ring = layer.step(
            ops.convert_to_tensor(beams[:, :, step]),
            ops.convert_to_tensor(ring),
            ops.convert_to_tensor(step, "int32"),
        )
        outputs.append(np.asarray(y))
    actual = np.stack(outputs, 2).reshape(4, 15, 4)
    np.testing.assert_allclose(actual, layer(x), atol=1e-5)


def test_convolution_passes_layer_checks(run_layer_test, dtype):
    run_layer_test(
        convolution.DilatedConvolution,
        {"filters": 4, "kernel_width": 3, "dilation": 2, "causal": False},
        (_x(2, 7, 3),),
        (2, 7, 4),
        dtype,
    )


BLOCK = {
    "hidden_size": 6,
    "kernel_width": 3,
    "dilation": 2,
    "causal": False,
    "dropout_rate": 0.4,
}


def test_block_passes_layer_checks(run_layer_test, dtype):
    layer = run_layer_test(
        convolution.DilatedBlock,
        BLOCK,
        (_x(2, 7, 6),),
        (2, 7, 6),
        dtype,
    )
    shapes = {w.path.removeprefix("tested/"): w.shape for w in layer.weights}
    assert shapes["input_projection/kernel"] == (6, 3)
    assert shapes["convolution/kernel"] == (3, 3, 3)
    assert shapes["output_projection/kernel"] == (3, 6)


def _normalize(x, gamma, beta):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + 1e-6) + beta


def test_block_equals_figure_3_with_and_without_dropout():
    layer, x = convolution.DilatedBlock(**BLOCK), _x(2, 7, 6)
    visible = np.ones((2, 7, 1), np.float32)
    visible[1, 4:] = 0
    layer(x)
    random = np.random.default_rng(1)
    layer.set_weights(
        [random.normal(size=w.shape).astype("f") for w in layer.weights]
    )
    weights = {
        w.path.partition("/")[2]: np.asarray(w.value) for w in layer.weights
    }

    def pick(name, *parts):
        return [weights[f"{name}/{part}"] for part in parts]

    def rectified_norm(name, y):
        return np.maximum(_normalize(y, *pick(name, "gamma", "beta")), 0)

    def project(name, y):
        kernel, bias = pick(name, "kernel", "bias")
        return y @ kernel + bias

    y = project("input_projection", rectified_norm("input_norm", x))
    y = rectified_norm("inner_norm", y) * visible
    y = _convolve(y, *pick("convolution", "kernel", "bias"), 2, causal=False)
    y = project("output_projection", rectified_norm("output_norm", y))
    np.testing.assert_allclose(
        layer(x, visible=visible), x + y, atol=1e-4, rtol=1e-4
    )
    rng = randomness.step_rng(1, 2, 0, len(x))
    kept = np.asarray(layer.dropout(np.ones_like(x), rng=rng))
    assert 0 < (kept == 0).mean() < 1
    np.testing.assert_allclose(
        layer(x, visible=visible, rng=rng), x + y * kept, atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("causal", [False, True])
def test_empty_batch_has_no_rows_of_the_same_length(causal):
    layer = convolution.DilatedConvolution(5, 3, 2, causal)
    layer.build((None, None, 4))
    assert tuple(layer(ops.zeros((0, 7, 4))).shape) == (0, 7, 5)
