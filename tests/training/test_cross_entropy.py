"""The loss and its gradients, compared with label distributions in float64."""

import types

import numpy as np
import numpy_layers
import pytest
import tensorflow as tf

from t2t_repro.runtime import graph
from t2t_repro.training import cross_entropy, step

# Rows end in padding. An array, because a tensor would start TensorFlow at
# import.
SEGMENTS = np.array([[1, 1, 2, 0], [1, 1, 2, 2], [1, 0, 0, 0]], np.int32)


def _labels(targets, vocab_size, smoothing):
    """Return [..., V]: 1 - e for the target, e / (V - 1) for each other."""
    is_target = np.arange(vocab_size) == np.asarray(targets)[..., None]
    return np.where(is_target, 1 - smoothing, smoothing / (vocab_size - 1))


def _by_hand(x, weight, bias, targets, smoothing):
    """Compute the sums, and gradients of the smoothed one, in float64."""
    probabilities = numpy_layers.softmax(x @ weight.T + bias)
    log_probs = np.log(probabilities)
    labels = _labels(targets, len(bias), smoothing)
    real = SEGMENTS > 0
    sums = [
        -(labels * log_probs)[real].sum(),
        -log_probs[real, targets[real]].sum(),
        (log_probs.argmax(-1) == targets)[real].sum(),
        real.sum(),
        real.size,
    ]
    grad_logits = (probabilities - labels) * real[..., None]
    grad_weight = np.einsum("btv,bte->ve", grad_logits, x)
    return sums, [grad_logits @ weight, grad_weight, grad_logits.sum((0, 1))]


# 12 slots: 5 and 13 chunks leave a remainder.
@pytest.mark.parametrize(
    ("vocab_size", "smoothing", "num_chunks", "has_bias", "xla"),
    [
        (7, 0.0, 1, False, False),
        (2, 0.4, 1, False, False),
        (5_000, 0.1, 1, False, False),
        (30, 0.1, 1, True, False),
        (30, 0.1, 2, False, False),
        (30, 0.0, 2, False, False),
        (30, 0.1, 5, False, False),
        (30, 0.1, 13, True, False),
        (7, 0.1, 1, False, True),
        (30, 0.0, 1, False, True),
        (30, 0.1, 5, True, True),
    ],
)
def test_sums_and_gradients_equal_those_of_label_distributions(
    vocab_size, smoothing, num_chunks, has_bias, xla
):
    """The loss is multiplied by 3, so that the upstream gradient counts."""
    shapes = [(3, 4, 8), (vocab_size, 8), (vocab_size,)]
    inputs = [
        numpy_layers.normal(*shape, seed=seed)
        for seed, shape in enumerate(shapes[: 2 + has_bias])
    ]
    targets = np.random.default_rng(0).integers(0, vocab_size, (3, 4), np.int32)

    @graph.function(jit_compile=xla)
    def compute(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            sums = cross_entropy.smoothed_cross_entropy(
                inputs[0],
                inputs[1:],
                targets,
                SEGMENTS,
                smoothing,
                num_chunks,
                xla,
            )
            total = 3 * sums.smoothed
        return sums[:5], tape.gradient(total, inputs)

    sums, gradients = compute([*map(tf.constant, inputs)])
    assert all(s.dtype == tf.float32 and s.shape == () for s in sums)
    x, weight, *bias = (array.astype(np.float64) for array in inputs)
    bias = bias[0] if has_bias else np.zeros(vocab_size)
    expected_sums, expected = _by_hand(x, weight, bias, targets, smoothing)
    np.testing.assert_allclose(sums, expected_sums, rtol=1e-5)
    assert np.abs(expected[0]).max() > 0.1
    for actual, oracle in zip(gradients, expected, strict=False):
        np.testing.assert_allclose(actual, 3 * oracle, rtol=1e-5, atol=5e-6)
    assert not gradients[0].numpy()[SEGMENTS == 0].any()


def test_smoothed_loss_equals_hand_computed_value():
    """V = 4, e = 0.1: the target has 0.9, each other 0.1 / 3.

    lse = ln(e^2 + e^1 + e^0 + e^-1) = ln 11.475217 = 2.440190
    loss = lse - 0.9 * 1 - (0.1 / 3) * (2 + 0 - 1) = 1.506856

    With e / V for every subword, including the target, it would be 1.490190.
    """
    logits, one = tf.constant([[[2.0, 1.0, 0.0, -1.0]]]), tf.constant([[1]])
    sums = cross_entropy.smoothed_cross_entropy(
        logits, [tf.eye(4)], one, one, 0.1
    )
    assert float(sums.smoothed) == pytest.approx(1.506856, abs=1e-5)
    assert float(sums.nll) == pytest.approx(1.440190, abs=1e-5)


def test_chunks_limit_the_size_of_logits():
    """25,000 slots of 37,000 subwords, as in the paper, are 3.4 GiB."""
    plan = types.SimpleNamespace(
        max_batch_slots=25_000, target_slots=lambda slots: slots
    )
    assert step.num_chunks(plan, 1, None, 37_000) == 2
    assert step.num_chunks(plan, 8, None, 37_000) == 1
    assert step.num_chunks(plan, 1, 12_500, 37_000) == 1
    assert step.num_chunks(plan, 1, None, 370_000) == 18
    plan.target_slots = lambda slots: slots / 2  # rows of half the length
    assert step.num_chunks(plan, 1, None, 37_000) == 1
    assert step.num_chunks(plan, 1, None, 370_000) == 9


@pytest.mark.parametrize(("smoothing", "vocab_size"), [(0.1, 37_000), (0.3, 9)])
def test_smoothing_constant_is_the_entropy_of_the_labels(smoothing, vocab_size):
    """No prediction has a lower loss."""
    labels = _labels(4, vocab_size, smoothing)
    constant = cross_entropy.smoothing_constant(smoothing, vocab_size)
    assert constant == pytest.approx(-(labels * np.log(labels)).sum())
    assert cross_entropy.smoothing_constant(0.0, vocab_size) == 0


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_in_16_bits_are_near_those_in_32(dtype, xla):
    """Rounding is unbiased: the mean over many tokens is near as well."""
    random = np.random.default_rng(2)
    x = tf.constant(random.normal(size=(1, 512, 16)), tf.float32)
    weight = tf.constant(random.normal(size=(400, 16)), tf.float32)
    targets = tf.constant(random.integers(0, 400, (1, 512)), tf.int32)
    results = []
    for cast_x in (x, tf.cast(x, dtype)):
        with tf.GradientTape() as tape:
            tape.watch((cast_x, weight))
            sums = cross_entropy.smoothed_cross_entropy(
                cast_x, [weight], targets, tf.ones_like(targets), 0.1, xla=xla
            )
        gradients = tape.gradient(sums.smoothed, (cast_x, weight))
        assert [g.dtype for g in gradients] == [cast_x.dtype, tf.float32]
        results.append([tf.cast(g, tf.float32).numpy() for g in gradients])
    for exact, rounded in zip(*results, strict=True):
        error = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
        assert error < 0.01
    exact, rounded = (grad_x.mean((0, 1)) for grad_x, _ in results)
    assert np.linalg.norm(rounded - exact) < 0.01 * np.linalg.norm(exact)
