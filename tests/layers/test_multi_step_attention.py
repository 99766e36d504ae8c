"""Tests of ConvS2S's attention against equations 1 and 2 in numpy."""

import numpy as np
from keras import ops

from t2t_repro.layers.gated_convolution import MultiStepAttention, Source

B, T, L, C, D = 2, 3, 5, 6, 4
REAL = np.arange(L) < np.array([[5], [2]])


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


class _FlatArguments(MultiStepAttention):
    """Attention whose call takes arrays, as run_layer_test() gives them."""

    def call(self, x, embedded, states, values, real):
        return super().call(x, embedded, Source(states, values, real))


def test_attention_passes_layer_checks(run_layer_test, dtype):
    layer = run_layer_test(
        _FlatArguments,
        {"channels": C, "hidden_size": D},
        (_x(B, T, C), _x(B, T, D), _x(B, L, D), _x(B, L, D), REAL),
        (B, T, C),
        dtype,
    )
    assert layer.query.direction.shape == (D, C)
    assert layer.output_projection.direction.shape == (C, D)


def test_output_equals_equations_1_and_2():
    x, g, z, values = _x(B, T, C), _x(B, T, D), 2 * _x(B, L, D), _x(B, L, D)
    layer = MultiStepAttention(C, D)
    layer(x, g, Source(z, values, REAL))
    for dense in (layer.query, layer.output_projection):
        dense.bias.assign(_x(*dense.bias.shape))
    output, weights = layer(x, g, Source(z, values, REAL))
    query, back = (
        (np.asarray(dense.weight), np.asarray(dense.bias))
        for dense in (layer.query, layer.output_projection)
    )
    for b, t in np.ndindex(B, T):
        m = REAL[b].sum()
        d = (query[0] @ x[b, t] + query[1] + g[b, t]) * np.sqrt(0.5)
        powers = np.exp(z[b, :m] @ d)
        a = powers / powers.sum()
        c = (a @ values[b, :m]) * m * np.sqrt(1 / m)
        expected = (x[b, t] + back[0] @ c + back[1]) * np.sqrt(0.5)
        np.testing.assert_allclose(weights[b, t, :m], a, atol=1e-5)
        assert not np.asarray(weights[b, t, m:]).any()
        np.testing.assert_allclose(output[b, t], expected, atol=1e-5)


def test_shared_kernels_give_same_output():
    layer = MultiStepAttention(C, D)
    arguments = _x(B, T, C), _x(B, T, D), Source(_x(B, L, D), _x(B, L, D), REAL)
    expected, _ = layer(*arguments)
    kernels = {
        dense.path: dense.kernel()
        for dense in (layer.query, layer.output_projection)
    }
    output, _ = layer(*arguments, kernels)
    np.testing.assert_array_equal(output, ops.convert_to_numpy(expected))
