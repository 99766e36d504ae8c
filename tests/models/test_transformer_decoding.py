"""Tests of the Transformer's decoding against its full forward pass."""

import pathlib
import runpy

import keras
import numpy as np
import pytest
from keras import ops

CASES = runpy.run_path(str(pathlib.Path(__file__).with_name("variants.py")))
VARIANTS, INPUTS, TARGETS, features = (
    CASES[name] for name in ("VARIANTS", "INPUTS", "TARGETS", "features")
)
# Variants that change decode_step() or the cache; tests of others are slow.
VARIANTS_OF_DECODING = {
    "default",
    "pre_norm",
    "timing",
    "learned",
    "learned_start",
    "relative",
    "imported",
    "hidden_eos",
    "together",
    "additive_together",
}


def logits_of(model, batch):
    return np.asarray(model(batch))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[] if name in VARIANTS_OF_DECODING else pytest.mark.slow,
        )
        for name in VARIANTS
    ],
)
def test_decoding_step_by_step_equals_full_pass(transformer_of, name):
    _check_decoding(transformer_of(name), 1e-4)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("together", "mixed_bfloat16"),
        ("additive_together", "mixed_float16"),
        pytest.param("default", "mixed_bfloat16", marks=pytest.mark.slow),
        pytest.param("default", "mixed_float16", marks=pytest.mark.slow),
        pytest.param("together", "mixed_float16", marks=pytest.mark.slow),
    ],
)
def test_16_bit_logits_are_near_float32(
    build_transformer, transformer_of, name, dtype
):
    """The tolerance is that of 7 or 10 bits of mantissa, in decoding too."""
    model = build_transformer(VARIANTS[name], dtype)
    batch = features()
    expected, logits = (
        logits_of(transformer_of(name), batch),
        logits_of(model, batch),
    )
    assert logits.dtype == np.float32
    tolerance = {"mixed_bfloat16": 0.05, "mixed_float16": 0.01}[dtype]
    real = TARGETS > 0
    difference = np.abs(logits - expected)[real].max()
    assert 0 < difference < tolerance * np.abs(expected[real]).max()
    _check_decoding(model, tolerance * np.abs(expected[real]).max())


def _check_decoding(model, tolerance):
    """Check decode_step() with three beams, permuted at each step."""
    generator = np.random.default_rng(0)
    beams = generator.integers(2, 12, (2, 3, 5)).astype(np.int32)  # [B, W, T]
    # The beam of each sequence at each step, and the sequence of each beam.
    beam_of = np.stack(
        [[generator.permutation(3) for _ in range(5)] for _ in range(2)], 0
    ).transpose(0, 2, 1)
    sequence_of = beam_of.argsort(1)  # [B, W, T]
    # Full pass: logits [B, W, T, V], attention [B, W, T, L].
    batches = [features(INPUTS, beams[:, w]) for w in range(3)]
    full_logits = np.stack([logits_of(model, batch) for batch in batches], 1)
    full_attention = np.stack(
        [
            np.asarray(model.attention_weights(b).cross).mean((0, 2))
            for b in batches
        ],
        1,
    )
    state = model.start_decoding(
        INPUTS, num_beams=3, capacity=2, constants=model.decoding_constants()
    )
    rows = np.arange(2)[:, None]
    for step in range(5):
        if step in (2, 4):  # the capacity is used up
            state = model.compact_state(state)
        now = sequence_of[:, :, step]
        # The ids of step 0 are not read.
        previous = beams[rows, now, step - 1] if step else np.full((2, 3), 13)
        parents = beam_of[rows, now, step - 1] if step else np.zeros((2, 3))
        logits, state, attention = model.decode_step(
            ops.convert_to_tensor(previous, "int32"),
            ops.convert_to_tensor(step, "int32"),
            model.reorder_beams(state, ops.convert_to_tensor(parents, "int32")),
        )
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        np.testing.assert_allclose(
            np.asarray(logits),
            full_logits[rows, now, step],
            rtol=tolerance,
            atol=tolerance,
        )
        np.testing.assert_allclose(
            np.asarray(attention),
            full_attention[rows, now, step],
            atol=tolerance,
        )
