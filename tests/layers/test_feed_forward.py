"""Tests of the feed-forward network against equation 2 in numpy."""

import numpy as np

from t2t_repro.layers import randomness, residual


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_feed_forward_passes_layer_checks(run_layer_test, dtype):
    layer = run_layer_test(
        residual.FeedForward,
        {"hidden_size": 4, "filter_size": 6, "dropout_rate": 0.1},
        (_x(2, 3, 4),),
        (2, 3, 4),
        dtype,
    )
    assert {weight.path: weight.shape for weight in layer.weights} == {
        "tested/filter/kernel": (4, 6),
        "tested/filter/bias": (6,),
        "tested/output_projection/kernel": (6, 4),
        "tested/output_projection/bias": (4,),
    }


def test_output_equals_equation_2_with_and_without_dropout():
    layer, x = residual.FeedForward(4, 6, 0.4), _x(2, 3, 4)
    layer(x)
    weights = [_x(4, 6), _x(6), _x(6, 4), _x(4)]
    layer.set_weights(weights)
    w1, b1, w2, b2 = weights
    hidden = np.maximum(0, x @ w1 + b1)
    np.testing.assert_allclose(layer(x), hidden @ w2 + b2, atol=1e-5)
    rng = randomness.step_rng(1, 2, 0, len(x))
    kept = np.asarray(layer.dropout(np.ones((2, 3, 6)), rng=rng))
    assert 0 < (kept == 0).mean() < 1
    expected = (hidden * kept) @ w2 + b2
    np.testing.assert_allclose(layer(x, rng=rng), expected, atol=1e-5)


def test_output_of_position_depends_on_its_input_only():
    layer, x = residual.FeedForward(4, 6, 0.0), _x(1, 5, 4)
    expected = np.asarray(layer(x))
    changed = x.copy()
    changed[:, 2] += 1
    output = np.asarray(layer(changed))
    others = [0, 1, 3, 4]
    np.testing.assert_allclose(
        output[:, others], expected[:, others], atol=1e-5
    )
    assert not np.allclose(output[:, 2], expected[:, 2], atol=1e-3)
