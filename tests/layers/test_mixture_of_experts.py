"""Tests of the mixture of experts against a sum over all experts in numpy."""

import numpy as np
import pytest

from t2t_repro.layers import randomness
from t2t_repro.layers.mixture_of_experts import MixtureOfExperts

D, F, E = 4, 6, 5
REAL = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]], bool)


def _x(*shape, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=shape).astype(np.float32)


def _rng():
    return randomness.step_rng(3, 5, 0, len(REAL))


def _layer(k=2):
    layer = MixtureOfExperts(E, k, F, name="mixture")
    layer(_x(1, 1, D))
    for seed, weight in enumerate(layer.weights):
        weight.assign(_x(*weight.shape, seed=seed))
    return layer


def _numpy(layer, x, gates):
    """Compute equation 1: every expert on every token."""
    w1, b1, w2, b2 = (
        np.asarray(weight)
        for weight in (
            layer.filter_kernel,
            layer.filter_bias,
            layer.output_kernel,
            layer.output_bias,
        )
    )
    y = np.zeros_like(x)
    for i in range(E):
        chosen = np.asarray(gates.values) * (np.asarray(gates.experts) == i)
        hidden = np.maximum(0, x @ w1[i] + b1[i])
        y += chosen.sum(-1, keepdims=True) * (hidden @ w2[i] + b2[i])
    return y


def test_mixture_passes_layer_checks(run_layer_test, dtype):
    layer = run_layer_test(
        MixtureOfExperts,
        {"num_experts": E, "experts_per_token": 2, "filter_size": F},
        (_x(2, 3, D),),
        (2, 3, D),
        dtype,
    )
    assert {weight.path: weight.shape for weight in layer.weights} == {
        "tested/filter_kernel": (E, D, F),
        "tested/filter_bias": (E, F),
        "tested/output_kernel": (E, F, D),
        "tested/output_bias": (E, D),
        "tested/gating/weight": (D, E),
        "tested/gating/noise_weight": (D, E),
    }


@pytest.mark.parametrize("k", [2, E])
@pytest.mark.parametrize("training", [False, True])
def test_output_equals_sum_over_all_experts(k, training):
    rng = _rng() if training else None
    layer, x = _layer(k), _x(*REAL.shape, D)
    y, losses = layer(x, REAL, rng=rng)
    gates = layer.gating(x, REAL, rng=rng)
    np.testing.assert_allclose(y, _numpy(layer, x, gates), atol=1e-5)
    assert not np.asarray(y)[~REAL].any()
    np.testing.assert_array_equal(losses, gates.losses)


def test_output_of_token_is_independent_of_others():
    """An expert that all tokens choose drops none of them."""
    layer = _layer()
    x = np.repeat(_x(1, 1, D), 50, axis=1)
    alone, crowded = layer(x[:, :1])[0], layer(x)[0]
    np.testing.assert_allclose(crowded, np.repeat(alone, 50, 1), rtol=1e-5)


def test_tokens_of_decoding_have_no_rows():
    layer, x = _layer(), _x(*REAL.shape, D)
    flat, _ = layer(x.reshape(-1, D))
    np.testing.assert_allclose(
        flat, np.asarray(layer(x)[0]).reshape(-1, D), rtol=1e-5
    )


def test_initial_experts_have_limits_of_glorot():
    layer = MixtureOfExperts(200, 2, 8)
    layer(_x(1, 1, D))
    limit = np.sqrt(6 / (D + 8))
    for kernel in (layer.filter_kernel, layer.output_kernel):
        assert 0.99 * limit < np.abs(np.asarray(kernel)).max() <= limit


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_equal_those_of_sum_over_all_experts(jit_compile):
    """Gates have gradients through their values alone."""
    import tensorflow as tf

    layer, x = _layer(), tf.constant(_x(*REAL.shape, D))
    variables = [w.value for w in layer.weights]

    def dense(x):
        gates = layer.gating(x, REAL, rng=_rng())
        one_hot = tf.one_hot(gates.experts, E) * gates.values[..., None]
        hidden = tf.einsum("btd,edf->btef", x, layer.filter_kernel.value)
        hidden = tf.nn.relu(hidden + layer.filter_bias.value)
        y = tf.einsum("btef,efd->bted", hidden, layer.output_kernel.value)
        y += layer.output_bias.value
        return tf.einsum("bted,btke->btd", y, one_hot)

    def gradients(function):
        @tf.function(jit_compile=jit_compile)
        def compute(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(function(x) ** 2)
            found = tape.gradient(total, [x, *variables])
            return [tf.convert_to_tensor(gradient) for gradient in found]

        return compute(x)

    for actual, expected in zip(
        gradients(lambda x: layer(x, REAL, rng=_rng())[0]),
        gradients(dense),
        strict=True,
    ):
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.tensorflow
def test_graph_of_any_batch_needs_no_xla():
    """TensorFlow Serving has no XLA; a batch may even be empty."""
    import tensorflow as tf

    layer, x = _layer(), _x(*REAL.shape, D)
    compute = tf.function(
        lambda x: layer(x)[0],
        input_signature=[tf.TensorSpec([None, None, D])],
    )
    np.testing.assert_allclose(compute(x), layer(x)[0], rtol=1e-5)
    assert compute(x[:0]).shape == (0, *x.shape[1:])
    graph = compute.get_concrete_function().graph.as_graph_def()
    assert not [node.op for node in graph.node if node.op.startswith("Xla")]
