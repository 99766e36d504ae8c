"""Tests of the Transformer and its variants against numpy; properties."""

import pathlib
import runpy

import keras
import numpy as np
import pytest

from t2t_repro import errors
from t2t_repro.layers import randomness
from t2t_repro.models import building

_HERE = pathlib.Path(__file__).parent  # no package: read as files
CASES = runpy.run_path(f"{_HERE}/variants.py")
REFERENCE = runpy.run_path(f"{_HERE}/numpy_transformer.py")

VARIANTS, INPUTS, TARGETS, PACKED, features, arrays = (
    CASES[name]
    for name in "VARIANTS INPUTS TARGETS PACKED features arrays".split()
)
DROPOUTS = ["layer_prepostprocess_dropout", "attention_dropout", "relu_dropout"]
# For properties that follow from equality with numpy.
some_variants = pytest.mark.parametrize(
    "name",
    ["default", "relative", "restricted", "together", "additive_together"],
)


def _logits(model, batch, rng=None):
    return np.asarray(model(batch, rng=rng))


def _sentences(batch):
    """Yield the row of each sentence, and bool [L] where its tokens are."""
    for row in range(len(batch["inputs"])):
        for segment in range(1, 1 + batch["inputs_segment"][row].max()):
            yield (
                row,
                batch["inputs_segment"][row] == segment,
                batch["targets_segment"][row] == segment,
            )


@pytest.mark.parametrize(
    ("name", "rows"),
    [(name, "packed") for name in VARIANTS]
    + [("default", "padded"), ("together", "padded")],
)
def test_logits_and_attention_weights_equal_numpy(transformer_of, name, rows):
    """numpy computes each sentence separately; weights of every head agree."""
    model, batch = transformer_of(name), features()
    batch = arrays(PACKED) if rows == "packed" else batch
    logits = _logits(model, batch)
    assert logits.shape == (*batch["targets"].shape, model.vocab_size)
    assert logits.dtype == np.float32
    attention = model.attention_weights(batch)
    reference = REFERENCE["NumpyTransformer"](model)
    for row, inputs, targets in _sentences(batch):
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


def test_attention_weights_have_documented_shapes(transformer_of):
    attention = transformer_of("default").attention_weights(features())
    shapes = {k: tuple(v.shape) for k, v in attention._asdict().items()}
    assert shapes == {
        "cross": (2, 2, 2, 6, 7),
        "encoder": (2, 2, 2, 7, 7),
        "decoder": (2, 2, 2, 6, 6),
    }
    for weights in attention:
        assert keras.backend.standardize_dtype(weights.dtype) == "float32"


@some_variants
def test_logits_depend_only_on_earlier_targets(transformer_of, name):
    inputs, length = INPUTS[:1], TARGETS.shape[1]
    # Row 0 is unchanged; row i + 1 has another token i.
    targets = np.tile(TARGETS[1:], (length + 1, 1))
    targets[1 + np.arange(length), np.arange(length)] = 11
    inputs = np.tile(inputs, (length + 1, 1))
    expected, *rows = _logits(transformer_of(name), features(inputs, targets))
    for i, logits in enumerate(rows):
        past, future = slice(0, i + 1), slice(i + 1, None)
        # A row's place in the batch may decide how its sums are rounded.
        np.testing.assert_allclose(
            logits[past], expected[past], rtol=1e-5, atol=1e-5
        )
        # The next position always changes; with restricted attention, later
        # ones may not.
        differences = np.abs(logits - expected)[future].max(1)
        count = 1 if "restricted_attention" in VARIANTS[name] else None
        assert np.all(differences[:count] > 1e-3)


@some_variants
def test_padding_does_not_change_logits(transformer_of, name):
    """Neither the amount of padding nor its ids matter."""
    model, real = transformer_of(name), TARGETS > 0
    expected = _logits(model, features())
    wider = features(
        np.pad(INPUTS, ((0, 0), (0, 9))), np.pad(TARGETS, ((0, 0), (0, 4)))
    )
    for side in ("inputs", "targets"):
        wider[side][wider[f"{side}_segment"] == 0] = 7
    logits = _logits(model, wider)[:, : TARGETS.shape[1]]
    np.testing.assert_allclose(
        logits[real], expected[real], rtol=1e-5, atol=1e-5
    )


@some_variants
def test_permuted_sentences_give_permuted_logits(transformer_of, name):
    model, order = transformer_of(name), [2, 0, 1]
    inputs = np.concatenate([INPUTS, INPUTS[:1, ::-1]])
    targets = np.concatenate([TARGETS, TARGETS[:1]])
    expected = _logits(model, features(inputs, targets))
    logits = _logits(model, features(inputs[order], targets[order]))
    np.testing.assert_allclose(logits, expected[order], rtol=1e-5, atol=1e-5)


def test_restricted_attention_of_length_is_full_attention(build_transformer):
    """With 7 inputs, reach 7 masks nothing and reach 6 does."""
    batch = features(np.full((1, 7), 5), TARGETS[1:])
    expected = _logits(build_transformer({}), batch)
    logits = _logits(build_transformer({"restricted_attention": 7}), batch)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    narrower = _logits(build_transformer({"restricted_attention": 6}), batch)
    assert np.abs(narrower - expected).max() > 1e-4


@pytest.mark.parametrize("name", ["together"])
def test_dropout_of_row_is_independent_of_batch(build_transformer, name):
    """Dropout of attention weights and of hidden layers is included."""
    rates = {"attention_dropout": 0.2, "relu_dropout": 0.2}
    model = build_transformer(VARIANTS[name] | rates)
    batch = {key: np.tile(ids, (3, 1)) for key, ids in arrays(PACKED).items()}
    full = _logits(model, batch, randomness.step_rng(3, 5, 0, 6))
    assert not np.allclose(full, _logits(model, batch), atol=0.01)
    rows = {key: ids[2:5] for key, ids in batch.items()}
    logits = _logits(model, rows, randomness.step_rng(3, 5, 2, 3))
    np.testing.assert_allclose(logits, full[2:5], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rate", DROPOUTS)
def test_each_dropout_hparam_has_an_effect(build_transformer, rate):
    none, batch = dict.fromkeys(DROPOUTS, 0.0), features()
    rng = randomness.step_rng(3, 5, 0, len(INPUTS))
    expected = _logits(build_transformer(none), batch, rng)
    dropped = _logits(build_transformer(none | {rate: 0.2}), batch, rng)
    assert np.abs(dropped - expected).max() > 0.01


def test_additive_relative_attention_is_refused(build_transformer):
    changes = {"attention_type": "additive", "max_relative_position": 4}
    with pytest.raises(errors.UserError, match="must be 0 where attention_ty"):
        build_transformer(changes)


@pytest.mark.tensorflow
def test_gradient_of_packed_sentence_stays_within_it(transformer_of):
    """Logits of token t depend on earlier tokens of the same segment."""
    import tensorflow as tf

    model, batch = transformer_of("default"), arrays(PACKED)
    row = {name: ids[:1] for name, ids in batch.items()}
    length = row["targets"].shape[1]
    embedding = model.inputs_embedding.weight.numpy()
    # Each token gets a separate embedding, so that its gradient is visible.
    rows = np.concatenate([embedding, embedding[row["targets"][0]]])
    row["targets"] = np.arange(length)[None] + model.vocab_size
    wide = building.build(model.hparams, len(rows))
    wide.set_weights([rows, *model.get_weights()[1:]])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(wide(row)[0, 5, : model.vocab_size] ** 2)
    gradient = tf.convert_to_tensor(tape.gradient(total, wide.weights[0].value))
    reached = np.abs(gradient.numpy()[model.vocab_size :]).max(1) > 0
    # Token 5 is the third of segment 2, which begins at token 3.
    assert np.flatnonzero(reached).tolist() == [3, 4]
