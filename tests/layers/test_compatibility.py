"""Tests of compatibility functions against numpy and worked examples."""

import math

import numpy as np
import pytest

from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.layers import attention

B, H, T, L, K = 2, 3, 4, 5, 6
LN3 = math.log(3)


def _normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _query_and_key():
    return _normal(B, H, T, K), _normal(B, H, L, K, seed=1)


def _logit(layer, query, key):
    """Return the logit of one query and one key, given as lists."""
    pair = (np.array([[[x]]], np.float32) for x in (query, key))
    return float(layer(*pair)[0, 0, 0, 0])


@pytest.mark.parametrize("name", sorted(attention.COMPATIBILITIES))
def test_compatibility_function_passes_layer_checks(
    run_layer_test, dtype, name
):
    layer = run_layer_test(
        attention.COMPATIBILITIES[name],
        {},
        _query_and_key(),
        (B, H, T, L),
        dtype,
    )
    expected = {"tested/weight": (H, K)} if name == "additive" else {}
    assert {w.path: tuple(w.shape) for w in layer.weights} == expected


def test_hparams_allow_exactly_these_types():
    (rule,) = TransformerHParams.__dataclass_fields__[
        "attention_type"
    ].metadata["constraints"]
    assert all(map(rule.holds, attention.COMPATIBILITIES))
    assert rule.text == f"one of {tuple(attention.COMPATIBILITIES)}"


def test_scaled_dot_product_equals_literal_value():
    """(1·5 + 2·6 + 3·7 + 4·8) / sqrt(4) = 35."""
    layer = attention.DotProduct()
    assert _logit(layer, [1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(35)


def test_unscaled_dot_product_equals_literal_value():
    """1·5 + 2·6 + 3·7 + 4·8 = 70."""
    layer = attention.UnscaledDotProduct()
    assert _logit(layer, [1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(70)


def test_additive_logit_equals_literal_value():
    """tanh(ln 3 / 2) = 1/2 and tanh(ln 3) = 4/5: 1 · 1/2 + 10 · 4/5 = 8.5."""
    layer = attention.Additive()
    _logit(layer, [0, 0], [0, 0])
    layer.weight.assign([[1.0, 10.0]])
    logit = _logit(layer, [LN3 / 2, LN3 / 4], [0, LN3 * 3 / 4])
    assert logit == pytest.approx(8.5, rel=1e-5)


@pytest.mark.parametrize("name", sorted(attention.COMPATIBILITIES))
def test_logits_equal_loop_over_pairs(name):
    layer = attention.COMPATIBILITIES[name]()
    query, key = _query_and_key()
    logits = layer(query, key)
    for b, h, t, i in np.ndindex(B, H, T, L):
        q, k = query[b, h, t], key[b, h, i]
        if name == "additive":
            expected = layer.weight.numpy()[h] @ np.tanh(q + k)
        else:
            expected = q @ k
        if name == "dot_product":
            expected /= math.sqrt(K)
        np.testing.assert_allclose(logits[b, h, t, i], expected, atol=1e-5)


def test_scaled_dot_product_has_variance_one():
    """Footnote 4: q · k has variance K if q and k have variance 1."""
    query, key = _normal(1, 1, 300, 64), _normal(1, 1, 300, 64, seed=1)
    scaled = np.asarray(attention.DotProduct()(query, key))
    unscaled = np.asarray(attention.UnscaledDotProduct()(query, key))
    assert scaled.var() == pytest.approx(1, rel=0.1)
    assert unscaled.var() == pytest.approx(64, rel=0.1)
