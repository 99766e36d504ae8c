"""Tests of the Transformer and its variants against numpy.

That a sentence is independent of others, of padding and of later targets
follows from equality with numpy, which computes each sentence alone.
"""

import numpy as np
import pytest
from numpy_transformer import NumpyTransformer
from transformer_variants import (
    INPUTS,
    PACKED,
    VARIANTS,
    arrays,
    features,
    sentences,
)

from t2t_repro.layers import randomness

DROPOUTS = ["layer_prepostprocess_dropout", "attention_dropout", "relu_dropout"]


def _logits(model, batch, rng=None):
    return np.asarray(model(batch, rng=rng))


@pytest.mark.parametrize(
    ("name", "rows"),
    [(name, "packed") for name in VARIANTS]
    + [("default", "padded"), ("together", "padded")],
)
def test_logits_and_attention_weights_equal_numpy(transformer_of, name, rows):
    """Weights of every head agree, and ids of padding have no effect."""
    model = transformer_of(name)
    batch = arrays(PACKED) if rows == "packed" else features()
    for side in ("inputs", "targets"):
        batch[side][batch[f"{side}_segment"] == 0] = 7
    logits = _logits(model, batch)
    assert logits.shape == (*batch["targets"].shape, model.vocab_size)
    assert logits.dtype == np.float32
    attention = model.attention_weights(batch)
    reference = NumpyTransformer(model)
    for row, inputs, targets in sentences(batch):
        expected, weights = reference.run(
            batch["inputs"][row, inputs], batch["targets"][row, targets]
        )
        np.testing.assert_allclose(
            logits[row, targets], expected, rtol=2e-4, atol=2e-4
        )
        for kind, queries, keys in (
            ("encoder", inputs, inputs),
            ("decoder", targets, targets),
            ("cross", targets, inputs),
        ):
            actual = np.asarray(getattr(attention, kind))[:, row]
            actual = actual[:, :, queries]
            np.testing.assert_allclose(
                actual[..., keys], weights[kind], atol=1e-4
            )
            assert not actual[..., ~keys].any(), "attends to another sentence"


@pytest.mark.parametrize("rate", DROPOUTS)
def test_each_dropout_hparam_has_an_effect(build_transformer, rate):
    none, batch = dict.fromkeys(DROPOUTS, 0.0), features()
    rng = randomness.step_rng(3, 5, 0, len(INPUTS))
    expected = _logits(build_transformer(none), batch, rng)
    dropped = _logits(build_transformer(none | {rate: 0.2}), batch, rng)
    assert np.abs(dropped - expected).max() > 0.01
