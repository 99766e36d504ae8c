"""The schedule's golden numbers, and Adam against Adam in numpy."""

import dataclasses

import keras
import numpy as np
import pytest

from t2t_repro import registry
from t2t_repro.training import optimizer

# 512^-0.5 = 0.04419417, times 4000^-1.5 = 3.952847e-6, 4000^-0.5 = 0.01581139
# and 100000^-0.5 = 0.003162278.
GOLDEN = [
    ("base", 1, 1.746928e-07),
    ("base", 2, 3.493856e-07),
    ("base", 2_000, 3.493856e-04),
    ("base", 4_000, 6.987712e-04),
    ("base", 16_000, 3.493856e-04),
    ("base", 100_000, 1.397542e-04),
    ("big", 4_000, 4.941059e-04),
    ("big", 300_000, 5.705443e-05),
    ("tiny", 400, 3.0e-03),
    ("tiny", 1_600, 1.5e-03),
    ("multi30k_tiny", 2_000, 4.999848e-03),  # 0.2236 / sqrt(2000)
]


@pytest.fixture(scope="module")
def base(tiny_hparams):  # tiny_hparams loads the definitions
    """The base set."""
    return registry.build_hparams("base")


def _paper(step, hidden_size=512, warmup=4000):
    """Equation 3."""
    return hidden_size**-0.5 * min(step**-0.5, step * warmup**-1.5)


@pytest.mark.parametrize(("name", "step", "rate"), GOLDEN)
@pytest.mark.usefixtures("tiny_hparams")
def test_golden_learning_rates(name, step, rate):
    hparams = registry.build_hparams(name)
    actual = float(optimizer.learning_rate(hparams, step))
    assert actual == pytest.approx(rate, rel=1e-6)


def test_equation_3(base):
    for step in (1, 3, 17, 3_999, 4_000, 4_001, 25_000, 1_000_000):
        rate = optimizer.learning_rate(base, step)
        assert keras.backend.standardize_dtype(rate.dtype) == "float32"
        assert float(rate) == pytest.approx(_paper(step), rel=1e-6)


def test_factors_multiply(base):
    for schedule, expected in (
        ("constant", 3.0),
        ("linear_warmup", 0.25),
        ("rsqrt_decay", 0.1),
        ("rsqrt_hidden_size", 512**-0.5),
        ("constant*linear_warmup*rsqrt_decay", 0.075),
    ):
        hparams = dataclasses.replace(
            base,
            learning_rate_schedule=schedule,
            learning_rate_constant=3.0,
            learning_rate_warmup_steps=100,
        )
        rate = float(optimizer.learning_rate(hparams, 25))
        assert rate == pytest.approx(expected, rel=1e-6)


def test_peak(base):
    peak = optimizer.peak_learning_rate(base)
    assert f"{peak:.2e}" == "6.99e-04"
    for step in (3_990, 3_999, 4_001, 4_010):
        assert float(optimizer.learning_rate(base, step)) < peak


def test_schedule_counts_the_first_update_as_1(base):
    """Keras's iterations are 0 there; taken literally, its rate would be 0."""
    schedule = optimizer.Schedule(base)
    for iterations in (0, 1, 3_999, 99_999):
        variable = keras.Variable(iterations, dtype="int32", trainable=False)
        rate = float(schedule(variable))
        assert rate == pytest.approx(_paper(iterations + 1), rel=1e-6)


def test_adam_has_the_papers_settings(base):
    adam = optimizer.build(base, [])
    assert (adam.beta_1, adam.beta_2) == (0.9, 0.98)
    assert adam.epsilon == 1e-9
    assert not adam.amsgrad
    assert adam.weight_decay is None
    assert (adam.clipnorm, adam.global_clipnorm, adam.clipvalue) == (None,) * 3


def test_updates_equal_adam_in_numpy(base):
    """Kingma and Ba's algorithm 1, at equation 3's learning rates."""
    hparams = dataclasses.replace(base, learning_rate_warmup_steps=3)
    random = np.random.default_rng(0)
    weights = [random.normal(size=shape) for shape in ((3, 4), (5,))]
    variables = [keras.Variable(weight) for weight in weights]
    adam = optimizer.build(hparams, variables)
    first = [np.zeros_like(weight) for weight in weights]
    second = [np.zeros_like(weight) for weight in weights]
    for step in range(1, 8):
        gradients = [random.normal(size=w.shape) for w in weights]
        tensors = [keras.ops.convert_to_tensor(g, "float32") for g in gradients]
        adam.apply(tensors, variables)
        for i, gradient in enumerate(gradients):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.98 * second[i] + 0.02 * gradient**2
            mean, square = (
                first[i] / (1 - 0.9**step),
                second[i] / (1 - 0.98**step),
            )
            rate = _paper(step, warmup=3)
            weights[i] -= rate * mean / (np.sqrt(square) + 1e-9)
            actual = variables[i].numpy()
            np.testing.assert_allclose(actual, weights[i], rtol=1e-5, atol=1e-6)
    assert int(adam.iterations) == 7


def test_first_update_moves_each_weight_by_the_learning_rate(base):
    variable = keras.Variable([1.0, 1.0, 1.0])
    adam = optimizer.build(base, [variable])
    adam.apply([keras.ops.convert_to_tensor([5.0, -0.01, 0.0])], [variable])
    # float32 steps near 1 are 6e-8, so the slots tell more than the weights.
    np.testing.assert_allclose(
        variable.numpy() - 1, [-1.7469e-7, 1.7469e-7, 0], atol=8e-8
    )
    np.testing.assert_allclose(adam._momentums[0], [0.5, -0.001, 0], rtol=1e-5)
    np.testing.assert_allclose(adam._velocities[0], [0.5, 2e-6, 0], rtol=1e-5)
