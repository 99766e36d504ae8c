"""Tests of convolutions against sums over taps in numpy."""

import numpy as np
import pytest
from keras import ops
from numpy_layers import Layers, normal, relu, sigmoid

from t2t_repro.layers import convolution, randomness

MAPS, COLUMNS, ROWS = 4, 5, 3
BLOCK = {
    "hidden_size": 6,
    "kernel_width": 3,
    "dilation": 2,
    "causal": False,
    "dropout_rate": 0.4,
}
NUMPY = Layers(heads=1, epsilon=1e-6, pre_norm=True)


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
    layer.set_weights([normal(width, 3, 4), normal(4)])
    return layer


@pytest.mark.parametrize(
    ("width", "dilation"), [(1, 1), (3, 1), (5, 3), (3, 16)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_convolution_equals_sum_over_taps(width, dilation, causal):
    layer, x = _layer(width, dilation, causal), normal(2, 9, 3)
    expected = _convolve(x, *layer.get_weights(), dilation, causal)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    empty = layer(ops.zeros((0, 9, 3)))
    assert tuple(empty.shape) == (0, 9, 4)


@pytest.mark.parametrize(("width", "dilation"), [(1, 1), (3, 1), (5, 3)])
def test_steps_with_a_ring_equal_causal_convolution(width, dilation):
    """The ring of 12 slots, the largest, is passed once."""
    layer, x = _layer(width, dilation), normal(4, 15, 3)
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


def test_block_equals_figure_3_with_and_without_dropout():
    layer, x = convolution.DilatedBlock(**BLOCK), normal(2, 7, 6)
    visible = np.ones((2, 7, 1), np.float32)
    visible[1, 4:] = 0
    layer(x)
    random = np.random.default_rng(1)
    layer.set_weights(
        [random.normal(size=w.shape).astype("f") for w in layer.weights]
    )

    def rectified_norm(sublayer, y):
        return relu(NUMPY.norm(y, sublayer.get_weights()))

    def project(sublayer, y):
        return NUMPY.dense(y, sublayer.get_weights())

    y = project(layer.input_projection, rectified_norm(layer.input_norm, x))
    y = rectified_norm(layer.inner_norm, y) * visible
    y = _convolve(y, *layer.convolution.get_weights(), 2, causal=False)
    y = project(layer.output_projection, rectified_norm(layer.output_norm, y))
    np.testing.assert_allclose(
        layer(x, visible=visible), x + y, atol=1e-4, rtol=1e-4
    )
    rng = randomness.step_rng(1, 2, 0, len(x))
    kept = np.asarray(layer.dropout(np.ones_like(x), rng=rng))
    assert 0 < (kept == 0).mean() < 1
    np.testing.assert_allclose(
        layer(x, visible=visible, rng=rng), x + y * kept, atol=1e-4, rtol=1e-4
    )


def _convolve_image(image, kernel):
    """Return the convolution of [B, n, w, m], one tap at a time."""
    length, width = kernel.shape[:2]
    y = np.zeros((*image.shape[:3], kernel.shape[-1]))
    for n, w, i, j in np.ndindex(*image.shape[1:3], length, width):
        column, row = n + i - length // 2, w + j - width // 2
        if 0 <= column < image.shape[1] and 0 <= row < image.shape[2]:
            y[:, n, w] += image[:, column, row] @ kernel[i, j]
    return y


@pytest.fixture
def unit():
    """A unit with a tape and random weights, and its weights {name: array}."""
    layer = convolution.ConvolutionalGru(MAPS, 3, 3, True)
    layer.build()
    layer.set_weights([normal(*w.shape) * 0.5 for w in layer.weights])
    return layer, {w.name: np.asarray(w.value) for w in layer.weights}


def test_convolutional_gru_equals_its_equations(unit):
    """The outputs are written to row 0 of the tape; column 3 is hidden."""
    layer, weights = unit
    image, outputs = normal(2, COLUMNS, ROWS, MAPS), normal(2, 3, MAPS, seed=1)
    visible = np.ones((2, COLUMNS, 1, 1), np.float32)
    visible[1, 3:] = 0
    image *= visible
    tape, written = np.zeros_like(image), layer.empty_tape(2, COLUMNS)
    for column in range(3):
        tape[:, column, 0] = outputs[:, column]
        written = layer.write_tape(written, outputs[:, column], column)
    # The third row of taps sees rows of the tape that are zero.
    tape_kernel = np.pad(
        weights["tape_kernel"], ((0, 0), (0, 1), (0, 0), (0, 0))
    )
    seen = _convolve_image(tape, tape_kernel)
    gates = sigmoid(
        _convolve_image(image, weights["gates_kernel"])
        + weights["gates_bias"]
        + seen[..., : 2 * MAPS]
    )
    update, reset = gates[..., :MAPS], gates[..., MAPS:]
    candidate = np.tanh(
        _convolve_image(reset * image, weights["candidate_kernel"])
        + weights["candidate_bias"]
        + seen[..., 2 * MAPS :]
    )
    expected = (update * image + (1 - update) * candidate) * visible
    np.testing.assert_allclose(
        layer(image, visible, written), expected, atol=1e-5
    )
