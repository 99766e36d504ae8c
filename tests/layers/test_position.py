"""Tests of positional encodings against the formulas in float64."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import embedding

SINUSOIDS = [
    embedding.Sinusoids,
    embedding.SinesThenCosines,
    embedding.TimingSignal,
]


def _table(layer, length, size):
    """Return the encodings [length, D] that a layer adds."""
    x, positions = np.zeros((1, length, size)), np.arange(length)[None]
    return np.asarray(layer(x, positions), np.float32)[0]


def _angle(layer_class, pos, i, size):
    """Return the angle of pair i: exponent 2i / D, or tensor2tensor's."""
    if layer_class is embedding.TimingSignal:
        return pos / 10_000 ** (i / max(size // 2 - 1, 1))
    return pos / 10_000 ** (2 * i / size)


def _pairs(layer_class, table):
    """Return the sines and cosines [T, D / 2] of a table [T, D]."""
    if layer_class is embedding.Sinusoids:
        return table[:, 0::2], table[:, 1::2]
    return np.split(table, 2, axis=1)


@pytest.mark.parametrize(
    ("layer_class", "settings"),
    [
        (embedding.Sinusoids, {}),
        (embedding.SinesThenCosines, {"first_position": 2}),
        (embedding.TimingSignal, {}),
        (embedding.LearnedPositions, {"max_length": 3}),
        (embedding.NoPositions, {}),
    ],
)
def test_position_encoding_passes_layer_checks(
    run_layer_test, dtype, layer_class, settings
):
    inputs = np.ones((2, 3, 4)), np.array([[0, 1, 2], [0, 1, 0]])
    layer = run_layer_test(layer_class, settings, inputs, (2, 3, 4), dtype)
    expected = {"tested/table": (3, 4)} if "max_length" in settings else {}
    assert {w.path: tuple(w.shape) for w in layer.weights} == expected


def test_sinusoids_of_size_4_have_literal_values():
    """D = 4: wavelengths 2π and 100·2π, sine and cosine in turn."""
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414710, 0.5403023, 0.0099998, 0.9999500],
        [0.9092974, -0.4161468, 0.0199987, 0.9998000],
    ]
    table = _table(embedding.Sinusoids(), 3, 4)
    np.testing.assert_allclose(table, expected, atol=1e-5)


def test_timing_signal_equals_literals_of_tensor2tensor():
    """D = 6: wavelengths 2π, 100·2π and 10000·2π; sines, then cosines."""
    expected = [
        [0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        [0.8414710, 0.0099998, 0.0001, 0.5403023, 0.9999500, 1.0],
        [0.9092974, 0.0199987, 0.0002, -0.4161468, 0.9998000, 1.0],
    ]
    table = _table(embedding.TimingSignal(), 3, 6)
    np.testing.assert_allclose(table, expected, atol=1e-5)


@pytest.mark.parametrize("layer_class", SINUSOIDS)
@pytest.mark.parametrize(("length", "size"), [(300, 64), (1024, 8), (9, 2)])
def test_encodings_equal_formula_of_section_3_5(layer_class, length, size):
    expected = np.zeros((2, length, size // 2))
    for pos, i in np.ndindex(length, size // 2):
        angle = _angle(layer_class, pos, i, size)
        expected[:, pos, i] = math.sin(angle), math.cos(angle)
    pairs = np.array(_pairs(layer_class, _table(layer_class(), length, size)))
    # Angles near 1,024 and near 64 are 6e-5 and 4e-6 apart in float32.
    np.testing.assert_allclose(pairs, expected, atol=3e-4)
    np.testing.assert_allclose(pairs[:, :64], expected[:, :64], atol=3e-5)


@pytest.mark.parametrize("layer_class", SINUSOIDS)
@pytest.mark.parametrize("k", [1, 40])
def test_offset_is_same_rotation_at_every_position(layer_class, k):
    """Section 3.5: PE(pos + k) is a linear function of PE(pos)."""
    size, length = 8, 256
    sines, cosines = _pairs(layer_class, _table(layer_class(), length, size))
    for i in range(size // 2):
        angle = _angle(layer_class, k, i, size)
        cosine, sine = math.cos(angle), math.sin(angle)
        rotation = np.array([[cosine, -sine], [sine, cosine]])
        pairs = np.stack([sines[:, i], cosines[:, i]], axis=1)
        rotated = pairs[: length - k] @ rotation
        np.testing.assert_allclose(pairs[k:], rotated, atol=1e-4)


@pytest.mark.parametrize("layer_class", SINUSOIDS)
def test_encodings_are_float32_under_every_policy(layer_class, dtype):
    layer = layer_class(dtype=dtype)
    _table(layer, 1, 16)
    table = layer.encode(ops.arange(258))
    assert keras.backend.standardize_dtype(table.dtype) == "float32"
    assert not np.allclose(table[257], table[256], atol=0.1)
    np.testing.assert_allclose(table[257, 0], math.sin(257), atol=1e-4)


@pytest.mark.parametrize("layer_class", SINUSOIDS)
def test_positions_above_256_differ_in_16_bits(layer_class, dtype):
    layer = layer_class(dtype=dtype)
    output = layer(np.zeros((1, 300, 16)), np.arange(300)[None])
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    expected = layer.encode(ops.arange(300))
    output = ops.convert_to_numpy(ops.cast(output, "float32"))
    np.testing.assert_allclose(output[0], expected, atol=0.01)


def _layers():
    """Return every kind that adds an encoding, built for D = 6."""
    layers = [
        embedding.Sinusoids(),
        embedding.TimingSignal(),
        embedding.LearnedPositions(4),
    ]
    return [(layer, _table(layer, 4, 6)) for layer in layers]


def test_encodings_follow_given_positions():
    x = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    positions = np.array([[0, 1, 0, 1], [3, 2, 1, 0]])
    for layer, table in _layers():
        output = np.asarray(layer(x, positions))
        np.testing.assert_allclose(output, x + table[positions], atol=1e-5)


def test_step_adds_encoding_of_its_position():
    x = np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32)
    for layer, table in _layers():
        for pos in range(4):
            output = layer.step(x, ops.convert_to_tensor(pos))
            np.testing.assert_allclose(output, x + table[pos], atol=1e-5)


def test_positions_beyond_learned_table_get_last_row():
    layer = embedding.LearnedPositions(3)
    table = _table(layer, 5, 2)
    layer.table.assign([[1, 2], [3, 4], [5, 6]])
    expected = [[1, 2], [3, 4], [5, 6], [5, 6], [5, 6]]
    assert not np.array_equal(table, expected)
    np.testing.assert_array_equal(_table(layer, 5, 2), expected)
    beyond = layer.step(np.zeros((1, 1, 2)), ops.convert_to_tensor(99))
    np.testing.assert_array_equal(beyond, [[[5, 6]]])


def test_layer_without_positions_returns_its_input():
    x, layer = ops.ones((1, 2, 4)), embedding.NoPositions()
    np.testing.assert_array_equal(layer(x, np.array([[0, 1]])), x)
    np.testing.assert_array_equal(layer.step(x, ops.convert_to_tensor(1)), x)


@pytest.mark.parametrize("layer_class", SINUSOIDS)
def test_first_position_shifts_encodings(layer_class):
    shifted = _table(layer_class(first_position=2), 5, 8)
    np.testing.assert_array_equal(shifted, _table(layer_class(), 7, 8)[2:])
