"""Tests of the model interface on every model, and on two toy models."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro import errors, registry
from t2t_repro.layers import randomness
from t2t_repro.models import building, seq2seq, transformer

V, SOURCE_V = 12, 14
INPUTS = np.array([[5, 6, 13, 8, 1], [9, 1, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 4, 2, 9, 1], [4, 9, 3, 1, 0, 0, 0]], np.int32)
every_model = pytest.mark.parametrize(
    "name",
    [
        "transformer",
        "toy_gru",
        "toy_convolution",
        "gnmt_tiny",
        "deep_att_tiny",
        "moe_tiny",
        "transformer_moe_tiny",
        "convs2s_tiny",
        "bytenet_tiny",
        "neural_gpu_tiny",
    ],
)
# Settings of small models, where a model has them.
SMALL = {
    "hidden_size": 8,
    "shared_embedding_and_softmax_weights": False,
    "max_dilation": 2,
    "filter_size": 16,
    "num_experts": 4,
    "expert_filter_size": 8,
    "encoder_convolutions": "12x3+6x2+6x1",
    "decoder_convolutions": "12x3+6x2+6x1",
}
# Dropout, where a model has it.
DROPOUT = {
    "layer_prepostprocess_dropout": 0.2,
    "embedding_dropout": 0.2,
    "dropout": 0.2,
}


def _known(hparams, settings):
    return {k: v for k, v in settings.items() if hasattr(hparams, k)}


@pytest.fixture(scope="module")
def build(toys, tiny_hparams, randomize):
    """A function of a model's name: the model with random weights, cached.

    It has dropout, which needs a source of random numbers.
    """

    @functools.cache
    def build(name):
        if name == "transformer":
            hparams = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
            settings = {"shared_embedding_and_softmax_weights": False}
        else:
            hparams = registry.build_hparams(name)
            settings = _known(hparams, SMALL)
        settings |= _known(hparams, DROPOUT)
        hparams = dataclasses.replace(hparams, **settings)
        model = building.build(hparams, V, source_vocab_size=SOURCE_V)
        randomize(model)
        return model

    return build


def _features(inputs, targets):
    features = {}
    for side, ids in (("inputs", inputs), ("targets", targets)):
        features[side] = ids
        features[f"{side}_segment"] = (ids > 0).astype(np.int32)
        positions = np.arange(ids.shape[1], dtype=np.int32)
        features[f"{side}_position"] = np.broadcast_to(positions, ids.shape)
    return features


def _logits(model, inputs=INPUTS, targets=TARGETS, rng=None):
    return np.asarray(model(_features(inputs, targets), rng=rng))


@every_model
def test_decoding_step_by_step_equals_full_pass(build, name):
    """Two beams of each sentence are swapped at every step."""
    model = build(name)
    beams = np.stack([TARGETS, np.roll(TARGETS, 1, axis=0)], 1)  # [B, W, T]
    full = np.stack([_logits(model, targets=beams[:, w]) for w in range(2)], 1)
    state = model.start_decoding(
        INPUTS, num_beams=2, capacity=3, constants=model.decoding_constants()
    )
    swap = ops.convert_to_tensor([[1, 0], [1, 0]], "int32")
    for step in range(TARGETS.shape[1]):
        if step and step % 3 == 0:
            state = model.compact_state(state)
        current = beams[:, ::-1] if step % 2 else beams
        expected = full[:, ::-1] if step % 2 else full
        if step:
            state = model.reorder_beams(state, swap)
        previous = current[:, :, step - 1] if step else current[:, :, 0] * 0 + 3
        outputs = model.decode_step(
            ops.convert_to_tensor(previous, "int32"),
            ops.convert_to_tensor(step, "int32"),
            state,
        )
        state = outputs.state
        real = current[:, :, step] > 0
        np.testing.assert_allclose(
            np.asarray(outputs.logits)[real],
            expected[:, :, step][real],
            rtol=1e-4,
            atol=1e-4,
        )
        if "cross" in model.attention_kinds:
            assert outputs.attention.shape == (2, 2, INPUTS.shape[1])
            total = np.asarray(outputs.attention).sum(-1)
            np.testing.assert_allclose(total, 1, atol=1e-5)
        else:
            assert outputs.attention is None


@every_model
def test_empty_batch_is_decoded(build, name):
    """A search drops rows of finished sentences; shards may be empty."""
    model = build(name)
    state = model.start_decoding(
        INPUTS[:0],
        num_beams=2,
        capacity=2,
        constants=model.decoding_constants(),
    )
    ids, step = ops.zeros((0, 2), "int32"), ops.convert_to_tensor(0, "int32")
    outputs = model.decode_step(ids, step, state)
    assert tuple(outputs.logits.shape) == (0, 2, V)


@every_model
def test_sentence_is_independent_of_padding_and_batch(build, name):
    model = build(name)
    full = _logits(model)
    alone = _logits(model, INPUTS[1:, :2], TARGETS[1:, :4])
    np.testing.assert_allclose(alone[0], full[1, :4], rtol=1e-4, atol=1e-5)


@every_model
def test_logits_depend_only_on_earlier_targets(build, name):
    model, changed = build(name), TARGETS.copy()
    changed[:, 2] = 11
    before, after = _logits(model), _logits(model, targets=changed)
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-5)
    assert np.abs(before[:, 3] - after[:, 3]).max() > 1e-3


@every_model
def test_random_numbers_of_row_are_independent_of_batch(build, name):
    model = build(name)
    full = _logits(model, rng=randomness.step_rng(3, 5, 0, 2))
    assert not np.allclose(full, _logits(model), atol=1e-3)
    row = _logits(
        model, INPUTS[1:], TARGETS[1:], randomness.step_rng(3, 5, 1, 1)
    )
    np.testing.assert_allclose(row[0], full[1], rtol=1e-4, atol=1e-5)


@every_model
def test_attention_weights_have_declared_kinds(build, name):
    model = build(name)
    if not model.attention_kinds:
        with pytest.raises(errors.UserError, match="has no attention_weights"):
            model.attention_weights(_features(INPUTS, TARGETS))
        return
    weights = model.attention_weights(_features(INPUTS, TARGETS))
    for kind, tensor in weights._asdict().items():
        assert (tensor is not None) == (kind in model.attention_kinds)
    assert weights.cross.shape[-2:] == (TARGETS.shape[1], INPUTS.shape[1])


@every_model
def test_abstract_model_has_same_counts(build, name):
    model = build(name)
    abstract = building.build_abstract(model.hparams, V, SOURCE_V)
    assert abstract.count_params() == model.count_params()
    assert abstract.flops(5, 7) == model.flops(5, 7) > 0


@every_model
def test_paths_are_independent_of_earlier_models(build, name):
    first, second = (
        [weight.path for weight in each(name).weights]
        for each in (build, build.__wrapped__)
    )
    assert first == second
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("name", ["toy_gru", "toy_convolution"])
def test_unsupported_features_are_refused(toys, name):
    hparams = registry.build_hparams(name)
    packed = dataclasses.replace(hparams, batching="packed")
    message = f"{name!r} takes one sentence a row. Use --hparams=batching="
    with pytest.raises(errors.UserError, match=message):
        building.check_model(packed)
    message = f"{name!r} cannot recompute activations"
    with pytest.raises(errors.UserError, match=message):
        building.check_model(hparams, recompute_grad=True)


def test_settings_of_another_model_are_refused(toys, tiny_hparams):
    wrong = dataclasses.replace(tiny_hparams, model="toy_gru")
    with pytest.raises(errors.UserError, match="settings of GruHParams; got"):
        building.check_model(wrong)


def test_settings_with_more_fields_are_refused():
    """A run of them could be trained, and not be read."""
    registry.load_definitions()
    hparams = registry.build_hparams("transformer_moe_tiny")
    building.check_model(hparams)
    wrong = dataclasses.replace(hparams, model="transformer")
    message = "settings of TransformerHParams; got TransformerMoeHParams"
    with pytest.raises(errors.UserError, match=message):
        building.check_model(wrong)


class _Broken(transformer.Transformer):
    """Transformer with an additional layer that violates a rule."""

    def __init__(self, hparams, vocab_size, **kwargs):
        super().__init__(hparams, vocab_size, **kwargs)
        self.added = self.new_layer()

    def encode(self, *args, **kwargs):
        memory, weights = super().encode(*args, **kwargs)
        return self.added(memory), weights


class _Pair(keras.layers.Layer):
    """Layer with two sublayers of the same name."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = (
            keras.layers.Dense(16, name="same") for _ in range(2)
        )

    def call(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize(
    ("new_layer", "message"),
    [
        (
            lambda: keras.layers.Dropout(0.5, name="keras_dropout"),
            "which is not a weight.*layers.counter_rng",
        ),
        (
            lambda: [keras.layers.Dense(16) for _ in range(2)][1],
            "Keras named .*dense_1.*Give it another name",
        ),
        (
            lambda: _Pair(name="pair"),
            "two items with the path pair/same/kernel",
        ),
    ],
)
def test_layer_that_violates_a_rule_is_named(
    monkeypatch, tiny_hparams, new_layer, message
):
    monkeypatch.setattr(registry.models, "_entries", {})
    monkeypatch.setattr(registry.models, "_hparams_classes", {})
    cls = type("Broken", (_Broken,), {"new_layer": staticmethod(new_layer)})
    registry.models.register("broken", hparams=type(tiny_hparams))(cls)
    hparams = dataclasses.replace(tiny_hparams, model="broken")
    with pytest.raises(errors.UserError, match=message):
        building.build(hparams, V)


def test_registered_object_must_be_model_class(monkeypatch, tiny_hparams):
    monkeypatch.setattr(registry.models, "_entries", {})
    registry.models.register("none", hparams=type(tiny_hparams))(not_a_class)
    hparams = dataclasses.replace(tiny_hparams, model="none")
    with pytest.raises(errors.UserError, match="must be a subclass of"):
        building.check_model(hparams)


def not_a_class():
    """Return nothing: registered in place of a model class."""


def test_missing_method_is_named(tiny_hparams):
    model = seq2seq.Seq2Seq(tiny_hparams, V)
    for call in (
        lambda: model.output_layer,
        lambda: model.hidden_states({}),
        lambda: model.start_decoding(INPUTS, 1, 1, ()),
        lambda: model.decode_step(None, 0, None),
        lambda: model.flops(1, 1),
    ):
        with pytest.raises(errors.UserError, match="'transformer' has no "):
            call()
