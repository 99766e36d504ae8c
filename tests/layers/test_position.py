"""Positional encodings, against the paper's formula in float64."""

import math

import keras
import numpy as np
import pytest

from t2t_repro.layers import embedding, position


@pytest.fixture
def bfloat16_policy():
    """mixed_bfloat16 as Keras's global policy, for one test."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


def test_literals():
    """D = 4: wavelengths 2π and 100·2π, sine and cosine in turn."""
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414710, 0.5403023, 0.0099998, 0.9999500],
        [0.9092974, -0.4161468, 0.0199987, 0.9998000],
    ]
    np.testing.assert_allclose(position.sinusoids(3, 4), expected, atol=1e-6)


@pytest.mark.parametrize(("length", "size"), [(300, 512), (1024, 64), (1, 2)])
def test_formula_of_section_3_5(length, size):
    expected = np.zeros((length, size))
    for place in range(length):
        for i in range(size // 2):
            angle = place / 10_000 ** (2 * i / size)
            expected[place, 2 * i] = math.sin(angle)
            expected[place, 2 * i + 1] = math.cos(angle)
    table = position.sinusoids(length, size)
    np.testing.assert_allclose(table, expected, atol=3e-4)
    np.testing.assert_allclose(table[:64], expected[:64], atol=1e-5)


def test_an_offset_is_a_rotation():
    """Section 3.5: PE(pos + k) is a linear function of PE(pos)."""
    table = position.sinusoids(60, 8).numpy().reshape(60, 4, 2)
    for i, k in np.ndindex(4, 10):
        angle = k / 10_000 ** (2 * i / 8)
        cosine, sine = math.cos(angle), math.sin(angle)
        rotation = np.array([[cosine, -sine], [sine, cosine]])
        rotated = table[: 60 - k, i] @ rotation
        np.testing.assert_allclose(table[k:, i], rotated, atol=1e-5)


@pytest.mark.usefixtures("bfloat16_policy")
def test_float32_under_mixed_bfloat16():
    table = position.sinusoids(258, 16)
    assert keras.backend.standardize_dtype(table.dtype) == "float32"
    assert not np.allclose(table[257], table[256], atol=0.1)
    np.testing.assert_allclose(table[257, 0], math.sin(257), atol=1e-4)


@pytest.mark.usefixtures("bfloat16_policy")
def test_positions_above_256_differ_once_added():
    embedded = keras.ops.zeros((1, 300, 16), "bfloat16")
    positions = np.arange(300)[None]
    output = embedding.add_positions(embedded, positions)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    output = keras.ops.convert_to_numpy(keras.ops.cast(output, "float32"))
    expected = position.sinusoids(300, 16)
    np.testing.assert_allclose(output[0], expected, atol=0.01)


def test_add_positions_follows_the_given_positions():
    embedded = np.random.default_rng(0).normal(size=(2, 4, 6))
    embedded = embedded.astype(np.float32)
    positions = np.array([[0, 1, 0, 1], [3, 2, 1, 0]])
    table = position.sinusoids(4, 6).numpy()
    output = embedding.add_positions(embedded, positions).numpy()
    for row, place in np.ndindex(2, 4):
        np.testing.assert_allclose(
            output[row, place],
            embedded[row, place] + table[positions[row, place]],
            atol=1e-6,
        )
