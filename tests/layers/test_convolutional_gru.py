"""Tests of the convolutional gated recurrent unit against sums in numpy."""

import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import convolution
from t2t_repro.models import neural_gpu

MAPS, COLUMNS, ROWS = 4, 5, 3


def _x(*shape, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=shape).astype(np.float32)


def _convolve(image, kernel):
    """Return the convolution of [B, n, w, m], one tap at a time."""
    length, width = kernel.shape[:2]
    y = np.zeros((*image.shape[:3], kernel.shape[-1]))
    for n, w, i, j in np.ndindex(*image.shape[1:3], length, width):
        column, row = n + i - length // 2, w + j - width // 2
        if 0 <= column < image.shape[1] and 0 <= row < image.shape[2]:
            y[:, n, w] += image[:, column, row] @ kernel[i, j]
    return y


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture
def unit():
    """A unit with a tape and random weights, and its weights {name: array}."""
    layer = convolution.ConvolutionalGru(MAPS, 3, 3, True)
    layer.build()
    layer.set_weights([_x(*w.shape) * 0.5 for w in layer.weights])
    return layer, {w.name: np.asarray(w.value) for w in layer.weights}


def test_unit_equals_its_equations(unit):
    """The outputs are written to row 0 of the tape; column 3 is hidden."""
    layer, weights = unit
    image, outputs = _x(2, COLUMNS, ROWS, MAPS), _x(2, 3, MAPS, seed=1)
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
    seen = _convolve(tape, tape_kernel)
    gates = _sigmoid(
        _convolve(image, weights["gates_kernel"])
        + weights["gates_bias"]
        + seen[..., : 2 * MAPS]
    )
    update, reset = gates[..., :MAPS], gates[..., MAPS:]
    candidate = np.tanh(
        _convolve(reset * image, weights["candidate_kernel"])
        + weights["candidate_bias"]
        + seen[..., 2 * MAPS :]
    )
    expected = (update * image + (1 - update) * candidate) * visible
    np.testing.assert_allclose(
        layer(image, visible, written), expected, atol=1e-5
    )


@pytest.mark.parametrize(("column", "changed"), [(-1, [0]), (5, [4]), (7, [])])
def test_output_beside_the_tape_is_seen_by_neighbours_only(
    unit, column, changed
):
    layer, _ = unit
    empty = layer.empty_tape(2, COLUMNS)
    written = np.asarray(layer.write_tape(empty, _x(2, MAPS), column))
    assert written.any((0, 2, 3)).nonzero()[0].tolist() == changed


@pytest.mark.parametrize("reads_tape", [False, True])
def test_unit_passes_layer_checks(run_layer_test, reads_tape, dtype):
    tape = (_x(2, COLUMNS, 2, 3 * MAPS),) if reads_tape else ()
    layer = run_layer_test(
        convolution.ConvolutionalGru,
        {
            "maps": MAPS,
            "kernel_length": 3,
            "kernel_width": 3,
            "reads_tape": reads_tape,
        },
        (_x(2, COLUMNS, ROWS, MAPS), np.ones((2, COLUMNS, 1, 1)), *tape),
        (2, COLUMNS, ROWS, MAPS),
        dtype,
    )
    assert len(layer.weights) == 4 + reads_tape


def test_repeat_passes_indices_and_state():
    state = (ops.convert_to_tensor(1.0), ops.zeros((2,)))
    result = neural_gpu.repeat(
        lambda index, state: (
            state[0] * 2,
            state[1] + ops.cast(index, "float32"),
        ),
        4,
        state,
    )
    assert float(result[0]) == 16
    assert np.asarray(result[1]).tolist() == [6, 6]
