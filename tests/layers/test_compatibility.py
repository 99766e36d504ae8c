"""Compatibility functions, by hand and against loops over pairs."""

import math

import numpy as np
import pytest

from t2t_repro.hparams.transformer_hparams import TransformerHParams
from t2t_repro.layers import compatibility

B, H, T, L, K = 2, 3, 4, 5, 6
LN3 = math.log(3)


def _normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _query_and_key():
    return _normal(B, H, T, K), _normal(B, H, L, K, seed=1)


def _one(layer, query, key):
    """The logit of one query and one key, as lists."""
    pair = (np.array([[[x]]], np.float32) for x in (query, key))
    return float(layer(*pair)[0, 0, 0, 0])


@pytest.mark.parametrize("name", sorted(compatibility.TYPES))
def test_layer(run_layer_test, dtype, name):
    layer = run_layer_test(
        compatibility.TYPES[name], {}, _query_and_key(), (B, H, T, L), dtype
    )
    expected = {"tested/weight": (H, K)} if name == "additive" else {}
    assert {w.path: tuple(w.shape) for w in layer.weights} == expected


def test_every_type_of_the_settings_is_here():
    (rule,) = TransformerHParams.__dataclass_fields__[
        "attention_type"
    ].metadata["rules"]
    assert all(map(rule.holds, compatibility.TYPES))
    assert rule.text == f"one of {tuple(compatibility.TYPES)}"


def test_dot_product_by_hand():
    """(1·5 + 2·6 + 3·7 + 4·8) / sqrt(4) = 35."""
    layer = compatibility.DotProduct()
    assert _one(layer, [1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(35)


def test_unscaled_by_hand():
    """1·5 + 2·6 + 3·7 + 4·8 = 70."""
    layer = compatibility.UnscaledDotProduct()
    assert _one(layer, [1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(70)


def test_additive_by_hand():
    """tanh(ln 3 / 2) = 1/2 and tanh(ln 3) = 4/5: 1 · 1/2 + 10 · 4/5 = 8.5."""
    layer = compatibility.Additive()
    _one(layer, [0, 0], [0, 0])
    layer.weight.assign([[1.0, 10.0]])
    logit = _one(layer, [LN3 / 2, LN3 / 4], [0, LN3 * 3 / 4])
    assert logit == pytest.approx(8.5, rel=1e-5)


@pytest.mark.parametrize("name", sorted(compatibility.TYPES))
def test_equals_a_loop_over_pairs(name):
    layer = compatibility.TYPES[name]()
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


def test_scale_keeps_the_variance_at_one():
    """Footnote 4: of q · k it is K, where q and k have variance 1."""
    query, key = _normal(1, 1, 300, 64), _normal(1, 1, 300, 64, seed=1)
    scaled = np.asarray(compatibility.DotProduct()(query, key))
    unscaled = np.asarray(compatibility.UnscaledDotProduct()(query, key))
    assert scaled.var() == pytest.approx(1, rel=0.1)
    assert unscaled.var() == pytest.approx(64, rel=0.1)
