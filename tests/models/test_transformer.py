"""Tests of the Transformer and its variants against numpy; properties."""

import dataclasses
import functools
import pathlib
import runpy

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro import errors
from t2t_repro.layers import counter_rng
from t2t_repro.models import building

_HERE = pathlib.Path(__file__).parent  # no package: read as files
VARIANTS = runpy.run_path(f"{_HERE}/variants.py")["VARIANTS"]
REFERENCE = runpy.run_path(f"{_HERE}/numpy_transformer.py")

INPUTS = np.array([[5, 6, 7, 8, 1, 0, 0], [9, 1, 0, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 1, 0, 0], [4, 9, 3, 2, 9, 1]], np.int32)
# Three sentences per row: segments 1, 2, 3; one or two slots of padding.
PACKED = {
    "inputs": [[5, 6, 7, 1, 9, 1, 3, 4, 8, 1, 0], [2, 1, 3, 1] + [4] * 6 + [1]],
    "inputs_segment": [
        [1] * 4 + [2] * 2 + [3] * 4 + [0],
        [1, 1, 2, 2] + [3] * 7,
    ],
    "inputs_position": [
        [*range(4), *range(2), *range(4), 0],
        [*range(2), *range(2), *range(7)],
    ],
    "targets": [[8, 7, 1, 4, 9, 3, 2, 1, 5, 1], [6, 5, 4, 1, 1, 2, 3, 1, 0, 0]],
    "targets_segment": [
        [1] * 3 + [2] * 5 + [3] * 2,
        [1] * 4 + [2] + [3] * 3 + [0] * 2,
    ],
    "targets_position": [
        [*range(3), *range(5), *range(2)],
        [*range(4), 0, *range(3), 0, 0],
    ],
}
DROPOUTS = ["layer_prepostprocess_dropout", "attention_dropout", "relu_dropout"]
# For properties that follow from equality with numpy.
some_variants = pytest.mark.parametrize(
    "name",
    ["default", "relative", "restricted", "together", "additive_together"],
)


@pytest.fixture(scope="module")
def build(tiny_hparams, randomize, vocab_size):
    """A function of changes and a dtype policy: a model with random weights.

    It has one layer unless `changes` say otherwise.
    """

    def build(changes, dtype="float32"):
        hparams = dataclasses.replace(
            tiny_hparams, **{"num_hidden_layers": 1} | changes
        )
        model = building.build(hparams, vocab_size, dtype)
        randomize(model)
        return model

    return build


@pytest.fixture(scope="module")
def model_of(build):
    """A function of a variant's name: its model, cached."""
    return functools.cache(lambda name: build(VARIANTS[name]))


def _features(inputs, targets):
    """Return the features of data/batches.py for one sentence per row."""
    features = {}
    for side, ids in (("inputs", inputs), ("targets", targets)):
        real = ids > 0
        features[side] = ids
        features[f"{side}_segment"] = real
        features[f"{side}_position"] = np.arange(ids.shape[1]) * real
    return _arrays(features)


def _arrays(features):
    return {name: np.array(ids, np.int32) for name, ids in features.items()}


def _logits(model, batch, rng=None):
    return np.asarray(model(batch, rng=rng))


def _sentences(batch):
    """Yield the row of each sentence, and bool [L] where its slots are."""
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
def test_logits_and_attention_weights_equal_numpy(model_of, name, rows):
    """numpy computes each sentence separately; weights of every head agree."""
    model, batch = model_of(name), _features(INPUTS, TARGETS)
    batch = _arrays(PACKED) if rows == "packed" else batch
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


def test_attention_weights_have_documented_shapes(model_of):
    attention = model_of("default").attention_weights(
        _features(INPUTS, TARGETS)
    )
    shapes = {k: tuple(v.shape) for k, v in attention._asdict().items()}
    assert shapes == {
        "cross": (2, 2, 2, 6, 7),
        "encoder": (2, 2, 2, 7, 7),
        "decoder": (2, 2, 2, 6, 6),
    }
    for weights in attention:
        assert keras.backend.standardize_dtype(weights.dtype) == "float32"


@some_variants
def test_logits_depend_only_on_earlier_targets(model_of, name):
    inputs, length = INPUTS[:1], TARGETS.shape[1]
    # Row 0 is unchanged; row i + 1 has another token i.
    targets = np.tile(TARGETS[1:], (length + 1, 1))
    targets[1 + np.arange(length), np.arange(length)] = 11
    inputs = np.tile(inputs, (length + 1, 1))
    expected, *rows = _logits(model_of(name), _features(inputs, targets))
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
def test_padding_does_not_change_logits(model_of, name):
    """Neither the amount of padding nor its ids matter."""
    model, real = model_of(name), TARGETS > 0
    expected = _logits(model, _features(INPUTS, TARGETS))
    wider = _features(
        np.pad(INPUTS, ((0, 0), (0, 9))), np.pad(TARGETS, ((0, 0), (0, 4)))
    )
    for side in ("inputs", "targets"):
        wider[side][wider[f"{side}_segment"] == 0] = 7
    logits = _logits(model, wider)[:, : TARGETS.shape[1]]
    np.testing.assert_allclose(
        logits[real], expected[real], rtol=1e-5, atol=1e-5
    )


@some_variants
def test_permuted_sentences_give_permuted_logits(model_of, name):
    model, order = model_of(name), [2, 0, 1]
    inputs = np.concatenate([INPUTS, INPUTS[:1, ::-1]])
    targets = np.concatenate([TARGETS, TARGETS[:1]])
    expected = _logits(model, _features(inputs, targets))
    logits = _logits(model, _features(inputs[order], targets[order]))
    np.testing.assert_allclose(logits, expected[order], rtol=1e-5, atol=1e-5)


def test_restricted_attention_of_length_is_full_attention(build):
    """With 7 inputs, reach 7 masks nothing and reach 6 does."""
    batch = _features(np.full((1, 7), 5), TARGETS[1:])
    expected = _logits(build({}), batch)
    logits = _logits(build({"restricted_attention": 7}), batch)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    narrower = _logits(build({"restricted_attention": 6}), batch)
    assert np.abs(narrower - expected).max() > 1e-4


# Variants that change decode_step() or the cache; the others are slow tests.
DECODING_VARIANTS = {
    "default",
    "pre_norm",
    "timing",
    "learned",
    "relative",
    "together",
    "additive_together",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[] if name in DECODING_VARIANTS else pytest.mark.slow,
        )
        for name in VARIANTS
    ],
)
def test_decoding_step_by_step_equals_full_pass(model_of, name):
    _check_decoding(model_of(name), 1e-4)


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
def test_16_bit_logits_are_near_float32(build, model_of, name, dtype):
    """The tolerance is that of 7 or 10 bits of mantissa, in decoding too."""
    model = build(VARIANTS[name], dtype)
    batch = _features(INPUTS, TARGETS)
    expected, logits = _logits(model_of(name), batch), _logits(model, batch)
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
    batches = [_features(INPUTS, beams[:, w]) for w in range(3)]
    full_logits = np.stack([_logits(model, batch) for batch in batches], 1)
    full_attention = np.stack(
        [
            np.asarray(model.attention_weights(b).cross).mean((0, 2))
            for b in batches
        ],
        1,
    )
    state = model.start_decoding(INPUTS, num_beams=3, capacity=2)
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


@pytest.mark.parametrize("name", ["together"])
def test_dropout_of_row_is_independent_of_batch(build, name):
    """That holds for dropout of weights and of hidden layers, too."""
    rates = {"attention_dropout": 0.2, "relu_dropout": 0.2}
    model = build(VARIANTS[name] | rates)
    batch = {key: np.tile(ids, (3, 1)) for key, ids in _arrays(PACKED).items()}
    full = _logits(model, batch, counter_rng.step_rng(3, 5, 0, 6))
    assert not np.allclose(full, _logits(model, batch), atol=0.01)
    rows = {key: ids[2:5] for key, ids in batch.items()}
    logits = _logits(model, rows, counter_rng.step_rng(3, 5, 2, 3))
    np.testing.assert_allclose(logits, full[2:5], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rate", DROPOUTS)
def test_each_dropout_hparam_has_an_effect(build, rate):
    none, batch = dict.fromkeys(DROPOUTS, 0.0), _features(INPUTS, TARGETS)
    rng = counter_rng.step_rng(3, 5, 0, len(INPUTS))
    expected = _logits(build(none), batch, rng)
    dropped = _logits(build(none | {rate: 0.2}), batch, rng)
    assert np.abs(dropped - expected).max() > 0.01


def test_additive_relative_attention_is_refused(build):
    changes = {"attention_type": "additive", "max_relative_position": 4}
    with pytest.raises(errors.UserError, match="must be 0 where attention_ty"):
        build(changes)


@pytest.mark.tensorflow
def test_gradient_of_packed_sentence_stays_within_it(model_of):
    """Logits of slot t depend on earlier slots of the same segment."""
    import tensorflow as tf

    model, batch = model_of("default"), _arrays(PACKED)
    row = {name: ids[:1] for name, ids in batch.items()}
    length = row["targets"].shape[1]
    embedding = model.embedding.weight.numpy()
    # Each slot gets a separate embedding, so that its gradient is visible.
    rows = np.concatenate([embedding, embedding[row["targets"][0]]])
    row["targets"] = np.arange(length)[None] + model.vocab_size
    wide = building.build(model.hparams, len(rows))
    wide.set_weights([rows, *model.get_weights()[1:]])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(wide(row)[0, 5, : model.vocab_size] ** 2)
    gradient = tf.convert_to_tensor(tape.gradient(total, wide.weights[0].value))
    reached = np.abs(gradient.numpy()[model.vocab_size :]).max(1) > 0
    # Slot 5 is the third of segment 2, which begins at slot 3.
    assert np.flatnonzero(reached).tolist() == [3, 4]
