"""The loss and its gradients, compared with label distributions in float64."""

import types

import numpy as np
import numpy_layers
import pytest
import tensorflow as tf

from t2t_repro.runtime import graph
from t2t_repro.training import cross_entropy, step

SMOOTHING = 0.1


def _batch(rows=3, length=4, vocab_size=7, scale=3.0, seed=0):
    """Return logits, targets and segments; rows end in padding."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(rows, length, vocab_size), scale=scale)
    targets = random.integers(0, vocab_size, (rows, length))
    segments = np.minimum(np.arange(length) // 2 + 1, 2) * np.ones((rows, 1))
    segments[0, -1] = segments[-1, 1:] = 0
    return (
        tf.constant(logits, tf.float32),
        tf.constant(targets, tf.int32),
        tf.constant(segments, tf.int32),
    )


def _sums(logits, targets, segments, smoothing, num_chunks=1, xla=False):
    """Return the sums of given logits, with the identity as weight."""
    weights = [tf.eye(logits.shape[-1])]
    return cross_entropy.smoothed_cross_entropy(
        logits, weights, targets, segments, smoothing, num_chunks, xla
    )


def _labels(targets, vocab_size, smoothing):
    """Return [..., V]: 1 - e for the target, e / (V - 1) for each other."""
    is_target = np.arange(vocab_size) == np.asarray(targets)[..., None]
    return np.where(is_target, 1 - smoothing, smoothing / (vocab_size - 1))


def _by_hand(logits, targets, segments, smoothing):
    """Compute the sums in float64."""
    log_probs = np.log(numpy_layers.softmax(logits.astype(np.float64)))
    labels = _labels(targets, logits.shape[-1], smoothing)
    real = segments > 0
    return [
        -(labels * log_probs)[real].sum(),
        -log_probs[real, targets[real]].sum(),
        (log_probs.argmax(-1) == targets)[real].sum(),
        real.sum(),
        real.size,
    ]


@pytest.mark.parametrize(
    ("smoothing", "vocab_size", "num_chunks", "xla"),
    [
        (0.0, 7, 1, False),
        (0.4, 2, 1, False),
        (0.1, 5_000, 1, False),
        (0.1, 7, 1, True),
        (0.1, 30, 2, False),
        (0.1, 30, 13, False),  # of 12 slots
    ],
)
def test_loss_equals_sums_over_label_distributions(
    smoothing, vocab_size, num_chunks, xla
):
    batch = _batch(vocab_size=vocab_size)
    function = graph.function(_sums, jit_compile=xla)
    sums = function(*batch, smoothing, num_chunks, xla=xla)
    assert all(s.dtype == tf.float32 and s.shape == () for s in sums[:5])
    expected = _by_hand(*(x.numpy() for x in batch), smoothing)
    np.testing.assert_allclose(sums[:5], expected, rtol=1e-5)


def test_smoothed_loss_equals_hand_computed_value():
    """V = 4, e = 0.1: the target has 0.9, each other 0.1 / 3.

    lse = ln(e^2 + e^1 + e^0 + e^-1) = ln 11.475217 = 2.440190
    loss = lse - 0.9 * 1 - (0.1 / 3) * (2 + 0 - 1) = 1.506856

    With e / V for every subword, including the target, it would be 1.490190.
    """
    logits = tf.constant([[[2.0, 1.0, 0.0, -1.0]]])
    sums = _sums(logits, tf.constant([[1]]), tf.constant([[1]]), 0.1)
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


V = 30
# Arrays, because a tensor would start TensorFlow at import.
TARGETS = np.array([[25, 19, 15, 8], [9, 1, 2, 0], [5, 24, 19, 27]], np.int32)
SEGMENTS = np.array([[1, 1, 2, 0], [1, 1, 2, 2], [1, 0, 0, 0]], np.int32)


def _smoothed(x, weight, smoothing, bias):
    """Sum the loss over real tokens, by the distributions of labels."""
    log_probs = tf.nn.log_softmax(x @ tf.transpose(weight) + bias)
    labels = _labels(TARGETS, V, smoothing) * (SEGMENTS > 0)[..., None]
    return -tf.reduce_sum(labels * log_probs)


# 12 slots: 5 and 13 chunks leave a remainder.
@pytest.mark.parametrize(
    ("num_chunks", "smoothing", "has_bias", "xla"),
    [
        (1, SMOOTHING, True, False),
        (2, 0.0, False, False),
        (5, SMOOTHING, False, False),
        (13, SMOOTHING, True, False),
        (1, 0.0, False, True),
        (5, SMOOTHING, True, True),
    ],
)
def test_gradients_equal_the_derived_ones(num_chunks, smoothing, has_bias, xla):
    """The loss is multiplied by 3, so that the upstream gradient counts."""
    x, weight, bias = (
        tf.constant(numpy_layers.normal(*shape, seed=seed))
        for seed, shape in enumerate([(3, 4, 8), (V, 8), (V,)])
    )
    inputs = (x, weight, bias)[: 2 + has_bias]

    @graph.function(jit_compile=xla)
    def gradients(losses):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = 3 * losses(*inputs)
        return total, *tape.gradient(total, inputs)

    actual = gradients(
        lambda x, *weights: (
            cross_entropy.smoothed_cross_entropy(
                x, weights, TARGETS, SEGMENTS, smoothing, num_chunks, xla
            ).smoothed
        )
    )
    expected = gradients(
        lambda x, weight, bias=0.0: _smoothed(x, weight, smoothing, bias)
    )
    assert np.abs(expected[1]).max() > 0.1
    for value, oracle in zip(actual, expected, strict=True):
        np.testing.assert_allclose(value, oracle, rtol=1e-5, atol=5e-6)
    assert not actual[1].numpy()[SEGMENTS == 0].any()


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
                cast_x,
                [weight],
                targets,
                tf.ones_like(targets),
                SMOOTHING,
                xla=xla,
            )
        gradients = tape.gradient(sums.smoothed, (cast_x, weight))
        assert [g.dtype for g in gradients] == [cast_x.dtype, tf.float32]
        results.append([tf.cast(g, tf.float32).numpy() for g in gradients])
    for exact, rounded in zip(*results, strict=True):
        error = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
        assert error < 0.01
    exact, rounded = (grad_x.mean((0, 1)) for grad_x, _ in results)
    assert np.linalg.norm(rounded - exact) < 0.01 * np.linalg.norm(exact)
