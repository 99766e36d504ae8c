"""Tests of gating against a literal transcription of the paper's equations."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import mixture_of_experts, randomness

D, E = 4, 5
REAL = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]], bool)
every_k = pytest.mark.parametrize("k", [2, 4, E])


def _x(*shape, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=shape).astype(np.float32)


def _rng():
    return randomness.step_rng(3, 5, 0, len(REAL))


def _layer(k):
    layer = mixture_of_experts.NoisyTopKGating(E, k, name="gating")
    layer(_x(1, 1, D))
    layer.set_weights([_x(D, E, seed=1), _x(D, E, seed=2)])
    return layer


def _numpy(k, x, normal):
    """Compute equations 2 to 11, one token and one expert at a time.

    Returns:
        gates [B, T, E] and both losses.
    """
    gate, noise = _x(D, E, seed=1), _x(D, E, seed=2)
    gates = np.zeros((*x.shape[:-1], E))
    load = np.zeros(E)
    for token in zip(*np.nonzero(REAL), strict=True):
        clean = x[token].astype(np.float64) @ gate
        deviation = np.log(1 + np.exp(x[token] @ noise))
        h = clean + normal[token] * deviation  # equation 4
        kept = np.where(h >= np.sort(h)[-k], np.exp(h), 0)  # equation 5
        gates[token] = kept / kept.sum()  # equation 3
        for i in range(E):
            others = np.sort(np.delete(h, i))[::-1]
            threshold = others[k - 1] if k < E else -math.inf
            z = (clean[i] - threshold) / deviation[i]  # equation 9
            load[i] += (1 + math.erf(z / math.sqrt(2))) / 2  # equation 10
    importance = gates.sum((0, 1))  # equation 6
    return gates, *((v.std() / v.mean()) ** 2 for v in (importance, load))


def _dense(gates):
    """Return gates [B, T, E] of Gates."""
    one_hot = np.eye(E + 1)[np.asarray(gates.experts)]
    return (one_hot * np.asarray(gates.values)[..., None]).sum(2)[..., :E]


@every_k
@pytest.mark.parametrize("training", [False, True])
def test_gates_and_losses_equal_equations(k, training):
    rng = _rng() if training else None
    layer, x = _layer(k), _x(*REAL.shape, D)
    normal = np.zeros((*REAL.shape, E))
    if rng is not None:
        stream = randomness.stream_id("gating")
        normal = np.asarray(randomness.normal(rng, stream, normal.shape))
    expected, importance, load = _numpy(k, x, normal)
    gates = layer(x, REAL, rng=rng)
    np.testing.assert_allclose(_dense(gates), expected, atol=1e-5)
    assert ((np.asarray(gates.experts) == E) == ~REAL[..., None]).all()
    np.testing.assert_allclose(gates.losses.importance, importance, rtol=1e-4)
    np.testing.assert_allclose(gates.losses.load, load, rtol=1e-4, atol=1e-9)


def test_gating_passes_layer_checks(run_layer_test):
    layer = run_layer_test(
        mixture_of_experts.NoisyTopKGating,
        {"num_experts": E, "experts_per_token": 2},
        (_x(2, 3, D),),
        (2, 3, 2),
        "float32",
    )
    assert {weight.path for weight in layer.weights} == {
        "tested/weight",
        "tested/noise_weight",
    }
    for weight in layer.weights:  # appendix A
        assert not np.asarray(weight).any(), weight.path


def test_new_layer_spreads_tokens_in_training():
    """Without a signal, noise alone chooses."""
    layer, x = mixture_of_experts.NoisyTopKGating(E, 2), _x(1, 1000, D)
    rng = randomness.step_rng(1, 1, 0, 1)
    counts = np.bincount(np.asarray(layer(x, rng=rng).experts).ravel())
    assert counts.min() > 330  # 400 ± 70, more than 4 deviations of 15.5


def test_noise_of_row_is_independent_of_batch():
    layer, x = _layer(2), _x(*REAL.shape, D)
    full = layer(x, rng=_rng())
    alone = layer(x[1:], rng=randomness.step_rng(3, 5, 1, 1))
    np.testing.assert_array_equal(alone.experts[0], full.experts[1])
    np.testing.assert_allclose(alone.values[0], full.values[1], rtol=1e-5)
    assert not np.allclose(full.values, layer(x).values, atol=1e-2)


def test_padding_does_not_change_losses():
    layer, x = _layer(2), _x(*REAL.shape, D)
    changed = np.where(REAL[..., None], x, 1e3)
    for expected, actual in zip(
        layer(x, REAL, rng=_rng()).losses,
        layer(changed, REAL, rng=_rng()).losses,
        strict=True,
    ):
        assert float(actual) == float(expected) > 0


def test_losses_without_tokens_are_0():
    layer, x = _layer(2), _x(*REAL.shape, D)
    losses = layer(x, np.zeros_like(REAL)).losses
    assert [float(loss) for loss in losses] == [0, 0]


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", mixture_of_experts.BalanceLosses._fields)
def test_gradients_of_losses_equal_finite_differences(kind):
    """The load has a gradient, although numbers of tokens have none."""
    import tensorflow as tf

    layer, x = _layer(2), _x(*REAL.shape, D)

    def loss():
        return getattr(layer(x, REAL, rng=_rng()).losses, kind)

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, [w.value for w in layer.weights])
    for weight, gradient in zip(layer.weights, gradients, strict=True):
        original, direction = weight.numpy(), np.asarray(gradient)
        norm = np.linalg.norm(direction)
        assert norm > 1e-3, weight.path
        ends = []
        for sign in (1, -1):
            weight.assign(original + sign * 1e-3 * direction / norm)
            ends.append(float(loss()))
        weight.assign(original)
        assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(norm, rel=0.02)


@pytest.mark.tensorflow
def test_gradients_are_finite_without_noise():
    """Softplus of -1000 is 0, by which equation 9 would divide."""
    import tensorflow as tf

    layer, x = _layer(2), np.ones((1, 3, D), np.float32)
    layer.noise_weight.assign(np.full((D, E), -250.0))
    with tf.GradientTape() as tape:
        total = sum(layer(x).losses)
    gradients = tape.gradient(total, [w.value for w in layer.weights])
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([2, 2, 2], 0), ([0, 0, 3], 2), ([0, 0], 0), ([1, 3], 0.25)],
)
def test_squared_variation_of_examples(values, expected):
    result = mixture_of_experts.squared_variation(
        ops.convert_to_tensor(values, "float32")
    )
    assert float(result) == pytest.approx(expected, abs=1e-6)


def test_losses_are_float32_in_mixed_precision():
    layer = mixture_of_experts.NoisyTopKGating(E, 2, dtype="float32")
    x = ops.cast(_x(*REAL.shape, D), "bfloat16")
    for tensor in keras.tree.flatten(layer(x, REAL).losses):
        assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
