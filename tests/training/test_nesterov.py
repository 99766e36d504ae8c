"""Tests of ConvS2S's optimizer against the formulas of its sources."""

import keras
import numpy as np

from t2t_repro import registry
from t2t_repro.training import optimizer

MOMENTUM, RATE, MAX_NORM = 0.99, 0.25, 0.1  # ConvS2S, section 4.2


def test_updates_are_nesterovs_with_renormalized_gradients():
    """Sutskever et al. 2013, equations 3 and 4, on a quadratic function.

    Keras's weights are those at which the gradient is computed, theta + mu v.
    Gradients whose norm exceeds 0.1 get this norm (Pascanu et al. 2013).
    """
    registry.load_definitions()
    hparams = registry.build_hparams("convs2s")
    random = np.random.default_rng(0)
    factor = random.normal(size=(6, 6))
    hessian = 0.02 * factor @ factor.T
    theta, velocity = random.normal(size=6), np.zeros(6)
    with keras.name_scope("layer"):
        weights = [
            keras.Variable(part.astype(np.float32), name=name)
            for name, part in (("a", theta[:2]), ("b", theta[2:]))
        ]
    sgd = optimizer.build(hparams, weights)
    renormalized = []
    for _ in range(60):
        ahead = np.concatenate([weight.numpy() for weight in weights])
        np.testing.assert_allclose(
            ahead, theta + MOMENTUM * velocity, rtol=1e-4, atol=1e-5
        )
        gradient = hessian @ (theta + MOMENTUM * velocity)
        sgd.apply([(hessian @ ahead)[:2], (hessian @ ahead)[2:]], weights)
        norm = np.sqrt((gradient**2).sum())
        renormalized.append(norm > MAX_NORM)
        if norm > MAX_NORM:
            gradient = gradient * MAX_NORM / norm
        velocity = MOMENTUM * velocity - RATE * gradient
        theta = theta + velocity
    assert 0 < sum(renormalized) < 60
