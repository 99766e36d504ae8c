"""Tests of recurrent layers against loops in numpy and Keras's own layers."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import randomness, recurrence

B, T, E, D = 3, 5, 4, 6
MASK = np.arange(T) < np.array([[5], [2], [4]])
every_cell = pytest.mark.parametrize("cell_type", recurrence.CELLS)


def _normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _layer(cell_type, reverse=False, dropout_rate=0.0, dtype="float32"):
    """Return a layer whose weights are all random."""
    layer = recurrence.RecurrentLayer(
        cell_type, D, dropout_rate, reverse, name="layer", dtype=dtype
    )
    layer(_normal(B, T, E), MASK)
    for seed, weight in enumerate(layer.weights):
        weight.assign(_normal(*weight.shape, seed=seed) * 0.5)
    return layer


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _lstm_by_hand(x, kernel, recurrent_kernel, bias):
    h = c = np.zeros(D)
    outputs = []
    for vector in x:
        gates = vector @ kernel + bias + h @ recurrent_kernel
        i, f, g, o = (gates[k * D : (k + 1) * D] for k in range(4))
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return outputs


def _gru_by_hand(x, kernel, recurrent_kernel, bias, recurrent_bias):
    h = np.zeros(D)
    outputs = []
    for vector in x:
        gates, past = vector @ kernel + bias, h @ recurrent_kernel
        r, z, n = (gates[k * D : (k + 1) * D] for k in range(3))
        past_r, past_z, past_n = (past[k * D : (k + 1) * D] for k in range(3))
        reset, update = _sigmoid(r + past_r), _sigmoid(z + past_z)
        new = np.tanh(n + reset * (past_n + recurrent_bias))
        h = (1 - update) * new + update * h
        outputs.append(h)
    return outputs


BY_HAND = {"lstm": _lstm_by_hand, "gru": _gru_by_hand}


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(
    "layer_class", [recurrence.RecurrentLayer, recurrence.BidirectionalLayer]
)
@every_cell
def test_layer_passes_layer_checks(
    run_layer_test, layer_class, cell_type, dtype
):
    sides = 2 if layer_class is recurrence.BidirectionalLayer else 1
    run_layer_test(
        layer_class,
        {"cell_type": cell_type, "size": D, "dropout_rate": 0.1},
        (_normal(B, T, E), MASK),
        (B, T, sides * D),
        dtype,
    )


@pytest.mark.parametrize("reverse", [False, True])
@every_cell
def test_outputs_equal_formula(cell_type, reverse):
    """Each row is computed alone and without its padding."""
    layer, x = _layer(cell_type, reverse), _normal(B, T, E, seed=9)
    outputs = ops.convert_to_numpy(layer(x, MASK))
    order = slice(None, None, -1 if reverse else 1)
    for row in range(B):
        length = MASK[row].sum()
        expected = BY_HAND[cell_type](
            x[row, :length][order], *layer.get_weights()
        )[order]
        np.testing.assert_allclose(
            outputs[row, :length], expected, rtol=1e-4, atol=1e-5
        )


def _keras_weights(cell_type, kernel, recurrent_kernel, bias, *more):
    """Return the weights in the order of Keras's gates."""
    if cell_type == "lstm":
        return [kernel, recurrent_kernel, bias]

    def swap(array):  # r, z, n to z, r, n
        r, z, n = np.split(array, 3, axis=-1)
        return np.concatenate([z, r, n], axis=-1)

    recurrent_bias = np.pad(more[0], (2 * D, 0))
    biases = np.stack([swap(bias), recurrent_bias])
    return [swap(kernel), swap(recurrent_kernel), biases]


@every_cell
def test_outputs_equal_layer_of_keras(cell_type):
    layer, x = _layer(cell_type), _normal(B, T, E, seed=9)
    cls = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}[cell_type]
    peer = cls(D, return_sequences=True)
    peer.build(x.shape)
    peer.set_weights(_keras_weights(cell_type, *layer.get_weights()))
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(x, np.ones((B, T), bool))),
        ops.convert_to_numpy(peer(x)),
        rtol=1e-4,
        atol=1e-5,
    )


def test_lstm_remembers_at_first():
    cell = recurrence.LstmCell(2)
    cell.build((None, E))
    np.testing.assert_array_equal(cell.bias, [0, 0, 1, 1, 0, 0, 0, 0])


@every_cell
def test_states_are_float32_in_16_bits(cell_type):
    layer = _layer(cell_type, dtype="mixed_bfloat16")
    states = layer.cell.initial_states((B,))
    x = ops.cast(_normal(B, E), "bfloat16")
    output, states = layer.step(x, states)
    assert {keras.backend.standardize_dtype(s.dtype) for s in states} == {
        "float32"
    }
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"


@every_cell
def test_long_reverse_padding_leaves_result_in_16_bits(cell_type):
    layer = _layer(cell_type, reverse=True, dtype="mixed_float16")
    x = np.repeat(_normal(1, T, E), 2, axis=0)
    mask = np.arange(T) < np.array([[2], [2]])
    x[1, 2:] = 100.0
    outputs = ops.convert_to_numpy(layer(x, mask))
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-5)
    assert not outputs[:, 2:].any()


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("cell_type", "reverse"), [("lstm", True), ("gru", False)]
)
def test_gradients_are_equal_eagerly_and_with_xla(cell_type, reverse):
    import tensorflow as tf

    layer, x = _layer(cell_type, reverse), tf.constant(_normal(B, T, E, seed=9))

    def gradients():
        with tf.GradientTape() as tape:
            outputs = layer(x, MASK) * tf.cast(MASK, tf.float32)[..., None]
            loss = tf.reduce_sum(outputs**2)
        return tape.gradient(loss, [w.value for w in layer.weights])

    compiled = tf.function(gradients, jit_compile=True, autograph=False)
    for eager, fused in zip(gradients(), compiled(), strict=True):
        assert np.abs(eager).max() > 1e-3
        np.testing.assert_allclose(eager, fused, rtol=1e-3, atol=1e-5)


def test_directions_drop_different_inputs():
    layer = recurrence.BidirectionalLayer("lstm", D, 0.5, name="both")
    x, rng = np.ones((B, T, E), np.float32), randomness.step_rng(1, 2, 0, B)
    layer(x, MASK)
    kept = [
        ops.convert_to_numpy(side.dropout(x, rng=rng)) > 0
        for side in (layer.forward, layer.backward)
    ]
    assert (kept[0] != kept[1]).any()
