"""Tests of residuals in each order of norm, dropout and addition."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import attention, mixture_of_experts, randomness, residual

SHAPE = (3, 4, 8)
POST_NORM, PRE_NORM = ("none", "dan"), ("n", "da")
SEQUENCES = [POST_NORM, PRE_NORM, ("none", "da"), ("n", "dan")]


def _x(seed=0, scale=1.0):
    x = np.random.default_rng(seed).normal(size=SHAPE) * scale
    return x.astype(np.float32)


class _Doubled(keras.layers.Layer):
    """Sublayer 2 x without weights, which stores the rng it receives."""

    rng = None

    def call(self, x, rng=None):
        self.rng = rng
        return 2 * x


def _block(sequences=POST_NORM, rate=0.0, dtype="float32"):
    """Return a Residual whose norms have random gains and biases."""
    sublayer = _Doubled(name="sublayer", dtype=dtype)
    block = residual.Residual(
        sublayer, *sequences, rate, name="block", dtype=dtype
    )
    block(_x())
    generator = np.random.default_rng(9)
    for weight in block.weights:
        weight.assign(generator.normal(size=8))
    return block


def _norm(x, layer):
    x = x.astype(np.float64)
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    gain, bias = layer.get_weights()
    return (x - mean) / np.sqrt(variance + 1e-6) * gain + bias


def _expected(block, sequences, x, kept=1.0):
    """Compute the table of residual.py; `kept` is the dropout mask."""
    before = _norm(x, block.input_norm) if sequences[0] == "n" else x
    after = x + 2 * before * kept
    return _norm(after, block.norm) if sequences[1] == "dan" else after


@pytest.mark.parametrize("sequences", SEQUENCES)
def test_residual_passes_layer_checks(run_layer_test, dtype, sequences):
    settings = {
        "sublayer": residual.FeedForward(
            8, 6, 0.1, name="sublayer", dtype=dtype
        ),
        "preprocess_sequence": sequences[0],
        "postprocess_sequence": sequences[1],
        "dropout_rate": 0.1,
    }
    run_layer_test(residual.Residual, settings, (_x(),), SHAPE, dtype)


def test_attention_residual_passes_layer_checks(run_layer_test, dtype):
    settings = {
        "sublayer": attention.MultiHeadAttention(
            8, 2, 8, 8, "dot_product", 0.1, name="sublayer", dtype=dtype
        ),
        "preprocess_sequence": "n",
        "postprocess_sequence": "da",
        "dropout_rate": 0.1,
    }
    context = (np.ones((1, 1, 1, 1), bool),)
    run_layer_test(
        residual.AttentionResidual, settings, (_x(), context), SHAPE, dtype
    )


def test_mixture_residual_passes_layer_checks(run_layer_test):
    settings = {
        "sublayer": mixture_of_experts.MixtureOfExperts(
            3, 2, 6, name="sublayer"
        ),
        "preprocess_sequence": "n",
        "postprocess_sequence": "da",
        "dropout_rate": 0.1,
    }
    is_real = np.arange(SHAPE[1]) < [[4], [2], [1]]
    block = run_layer_test(
        residual.MixtureResidual, settings, (_x(), is_real), SHAPE, "float32"
    )
    y, losses = block(_x(), is_real)
    expected, expected_losses = block.sublayer(block.input_norm(_x()), is_real)
    np.testing.assert_allclose(y, _x() + expected, atol=1e-6)
    np.testing.assert_array_equal(losses, expected_losses)


@pytest.mark.parametrize("sequences", SEQUENCES)
def test_norm_is_placed_by_sequences(sequences):
    block, x = _block(sequences), _x()
    expected = _expected(block, sequences, x)
    np.testing.assert_allclose(block(x), expected, atol=1e-5)


@pytest.mark.parametrize("sequences", SEQUENCES)
def test_dropout_acts_on_sublayer_output_only(sequences):
    block, x = _block(sequences, rate=0.4), _x()
    rng = randomness.step_rng(1, 2, 0, SHAPE[0])
    kept = np.asarray(block.dropout(np.ones(SHAPE), rng=rng))
    assert 0 < (kept == 0).mean() < 1
    expected = _expected(block, sequences, x, kept)
    np.testing.assert_allclose(block(x, rng=rng), expected, atol=1e-5)
    expected = _expected(block, sequences, x)
    np.testing.assert_allclose(block(x), expected, atol=1e-5)


def test_rng_is_passed_to_sublayer():
    block, rng = _block(), randomness.step_rng(1, 2, 0, SHAPE[0])
    block(_x(), rng=rng)
    np.testing.assert_array_equal(block.sublayer.rng.rows, [0, 1, 2])
    block(_x())
    assert block.sublayer.rng is None


def test_pre_norm_self_attention_reads_normalized_input():
    """Queries, keys and values are of LayerNorm(x); x itself is added."""
    sublayer = attention.MultiHeadAttention(8, 2, 8, 8, "dot_product", 0.0)
    block = residual.AttentionResidual(sublayer, *PRE_NORM, 0.0)
    mask, x = np.tril(np.ones((4, 4), bool))[None, None], _x(scale=5.0)
    block(x, (mask,))
    block.input_norm.set_weights([_x(1)[0, 0], _x(2)[0, 0]])
    normed = _norm(x, block.input_norm).astype(np.float32)
    y, expected_weights = sublayer(normed, mask, normed)
    output, weights = block(x, (mask,))
    np.testing.assert_allclose(output, x + np.asarray(y), atol=1e-4)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)


def test_pre_norm_leaves_memory_unchanged():
    """The encoder has normalized memory; pre-norm applies to x alone."""
    sublayer = attention.MultiHeadAttention(8, 2, 8, 8, "dot_product", 0.0)
    block = residual.AttentionResidual(sublayer, *PRE_NORM, 0.0)
    mask, x, memory = np.ones((1, 1, 1, 1), bool), _x(), _x(1, scale=5.0)
    output, _ = block(x, (mask, memory))
    normed = _norm(x, block.input_norm).astype(np.float32)
    y, _ = sublayer(normed, mask, memory)
    np.testing.assert_allclose(output, x + np.asarray(y), atol=1e-4)


def test_epsilon_is_1e_6():
    """The test needs a variance near 1e-6 for epsilon to matter."""
    block, x = _block(), _x(scale=1e-3)
    y = np.zeros(SHAPE, np.float32)
    expected = _norm(x, block.norm)
    np.testing.assert_allclose(block.add(x, y), expected, atol=1e-4)


@pytest.mark.parametrize("sequences", SEQUENCES)
def test_weights_exist_only_for_existing_norms(sequences):
    """Only existing norms have weights, whose paths are in checkpoints."""
    block = _block(sequences)
    names = ["input_norm"] * (sequences[0] == "n")
    names += ["norm"] * (sequences[1] == "dan")
    assert [weight.path for weight in block.weights] == [
        f"block/{name}/{weight}"
        for name in names
        for weight in ("gamma", "beta")
    ]
    assert block.dropout.path == "block/dropout"


@pytest.mark.parametrize("offset", [0.0, 256.0])
def test_norm_statistics_are_float32_under_bfloat16(offset):
    """Squares of 256 + x have no digits for the variance in bfloat16."""
    block = _block(dtype="mixed_bfloat16")
    x = ops.cast(_x(scale=8.0) + offset, "bfloat16")
    zeros = ops.zeros(SHAPE, "bfloat16")
    output = block.add(x, zeros)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    rounded = ops.convert_to_numpy(ops.cast(x, "float32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(output, "float32")),
        _norm(rounded, block.norm),
        rtol=0.02,
        atol=0.02,
    )
