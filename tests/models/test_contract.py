"""Tests of the model interface on every model, and on a toy model."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from transformer_variants import VARIANTS

from t2t_repro import errors, registry
from t2t_repro.layers import randomness
from t2t_repro.models import building, seq2seq, transformer
from t2t_repro.runtime import graph
from t2t_repro.training import model_check
from t2t_repro.training.step import Objective, batch_loss

V, SOURCE_V = 12, 14
INPUTS = np.array([[5, 6, 13, 8, 1], [9, 1, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 4, 2, 9, 1], [4, 9, 3, 1, 0, 0, 0]], np.int32)
ROW_MODELS = (
    "gnmt_tiny deep_att_tiny convs2s_tiny bytenet_tiny neural_gpu_tiny".split()
)
MODELS = ROW_MODELS + (
    "transformer toy_gru moe_tiny transformer_moe_tiny".split()
)
every_model = pytest.mark.parametrize("name", MODELS)
# Variants of the Transformer that change decode_step() or the cache, most of
# them together: the slow tests have each alone.
DECODED_VARIANTS = (
    "imported together additive_together one_key_head modern buckets"
).split()
# Errors of 7 or 10 bits of mantissa, relative to the largest logit.
TOLERANCES = {"mixed_bfloat16": 0.05, "mixed_float16": 0.01}
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
    "attention_dropout": 0.2,
}


def _known(hparams, settings):
    return {k: v for k, v in settings.items() if hasattr(hparams, k)}


@pytest.fixture(scope="module")
def hparams_of(toys, tiny_hparams):
    """A function of a name: small settings, with dropout."""

    def settings_of(name):
        if name in VARIANTS:
            changes = {"num_hidden_layers": 1} | VARIANTS[name]
            return dataclasses.replace(tiny_hparams, **changes)
        if name == "transformer":
            hparams = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
            settings = {"shared_embedding_and_softmax_weights": False}
        else:
            hparams = registry.build_hparams(name)
            settings = _known(hparams, SMALL)
        settings |= _known(hparams, DROPOUT)
        return dataclasses.replace(hparams, **settings)

    return settings_of


@pytest.fixture(scope="module")
def build(hparams_of, randomize):
    """A function of a name and a dtype policy: a random model, cached."""

    @functools.cache
    def build(name, dtype="float32"):
        hparams = hparams_of(name)
        model = building.build(hparams, V, dtype, source_vocab_size=SOURCE_V)
        # With smaller weights the gradients of attention vanish, with larger
        # ones gates saturate.
        randomize(model, matrices=0.4)
        return model

    return build


def _features(inputs=INPUTS, targets=TARGETS):
    return seq2seq.one_sentence_per_row(inputs, targets)


def _logits(model, inputs=INPUTS, targets=TARGETS, rng=None):
    return np.asarray(model(_features(inputs, targets), rng=rng))


@pytest.mark.parametrize(
    "name",
    [
        *(MODELS + DECODED_VARIANTS),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in VARIANTS
            if name not in DECODED_VARIANTS
        ),
    ],
)
def test_model_follows_the_rules(hparams_of, name):
    """Steps, padding, causality, packed rows, random numbers and gradients.

    The weights are those of model_check: matrices as they are initialized, with
    random biases and gains.
    """
    hparams = hparams_of(name)
    names = "shared_embedding_and_softmax_weights", "shared_embedding"
    shared = any(getattr(hparams, name, False) for name in names)
    model_check.check(hparams, separate=not shared)


@every_model
def test_targets_and_dropout_change_logits(build, name):
    """The rules would hold for a model that ignored both."""
    model, changed = build(name), TARGETS.copy()
    changed[:, 2] = 11
    logits, after = _logits(model), _logits(model, targets=changed)
    assert np.abs(logits[:, 3] - after[:, 3]).max() > 1e-3
    random = _logits(model, rng=randomness.step_rng(3, 5, 0, 2))
    assert not np.allclose(random, logits, atol=1e-3)


@every_model
def test_empty_batch_is_decoded(build, name):
    """A search drops rows of finished sentences; shards may be empty."""
    model = build(name)
    outputs = _first_step(model, INPUTS[:0])
    assert tuple(outputs.logits.shape) == (0, 2, V)
    has_attention = outputs.attention is not None
    assert has_attention == ("cross" in model.attention_kinds)


def _first_step(model, inputs):
    state = model.start_decoding(
        inputs, num_beams=2, capacity=2, constants=model.decoding_constants()
    )
    ids = ops.zeros((len(inputs), 2), "int32")
    return model.decode_step(ids, ops.convert_to_tensor(0, "int32"), state)


@every_model
def test_attention_weights_have_declared_kinds(build, name):
    model = build(name)
    if not model.attention_kinds:
        with pytest.raises(errors.UserError, match="has no attention_weights"):
            model.attention_weights(_features())
        return
    weights = model.attention_weights(_features())
    for kind, tensor in weights._asdict().items():
        assert (tensor is not None) == (kind in model.attention_kinds)
    assert weights.cross.shape[-2:] == (TARGETS.shape[1], INPUTS.shape[1])


@every_model
def test_abstract_model_has_same_weights_and_counts(build, name):
    """It is built later: paths do not depend on earlier models."""
    model = build(name)
    abstract = building.build_abstract(model.hparams, V, SOURCE_V)
    shapes, expected = (
        {weight.path: tuple(weight.shape) for weight in each.weights}
        for each in (abstract, model)
    )
    assert shapes == expected
    assert abstract.count_params() == model.count_params()
    assert abstract.flops(5, 7) == model.flops(5, 7) > 0


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "mixed_bfloat16") for name in ROW_MODELS]
    + [
        pytest.param(name, "mixed_float16", marks=pytest.mark.slow)
        for name in ROW_MODELS
    ]
    + [
        pytest.param("together", "mixed_bfloat16", marks=pytest.mark.slow),
        pytest.param("modern", "mixed_bfloat16", marks=pytest.mark.slow),
        ("additive_together", "mixed_float16"),
    ],
)
def test_16_bit_logits_are_near_float32(
    build, build_transformer, transformer_of, name, dtype
):
    if name in VARIANTS:
        exact = transformer_of(name)
        model = build_transformer(VARIANTS[name], dtype)
    else:
        exact, model = build(name), build(name, dtype)
    expected, logits = _logits(exact), _logits(model)
    assert logits.dtype == np.float32
    assert _first_step(model, INPUTS).logits.dtype == "float32"
    real = TARGETS > 0
    tolerance = TOLERANCES[dtype] * np.abs(expected[real]).max()
    assert 0 < np.abs(logits - expected)[real].max() < tolerance
    if name in VARIANTS:
        model_check.check(model.hparams, dtype)


@pytest.mark.slow  # XLA compiles for seconds
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, "float32")
        for name in (*ROW_MODELS, "moe_tiny", "transformer_moe_tiny")
    ]
    + [(name, "mixed_bfloat16") for name in ("gnmt_tiny", "deep_att_tiny")],
)
def test_gradients_with_xla_equal_those_of_graph(build, name, dtype):
    model = build(name, dtype)
    batch = {key: tf.constant(ids) for key, ids in _features().items()}
    weights = building.by_path(model.weights)

    def gradients():
        rng = randomness.step_rng(1, 2, 0, len(INPUTS))
        with tf.GradientTape() as tape:
            sums = batch_loss(model, batch, rng, Objective(0.1))
        found = tape.gradient(
            sums.smoothed, [weight.value for weight in weights.values()]
        )
        return [*map(tf.convert_to_tensor, found)]

    expected, found = (
        graph.function(gradients, jit_compile=jit)() for jit in (False, True)
    )
    for path, a, b in zip(weights, expected, found, strict=True):
        scale = np.abs(a).max()
        assert scale > 1e-5, path
        if dtype == "float32":
            np.testing.assert_allclose(b, a, atol=1e-3 * scale, err_msg=path)
        else:  # where bfloat16 rounds, by up to 2^-9, depends on the processor
            difference = np.linalg.norm(b - a) / np.linalg.norm(a)
            assert difference < 0.2, path


@pytest.mark.parametrize("name", ["gnmt_tiny", "bytenet_tiny"])
def test_one_embedding_needs_one_vocabulary(name):
    message = "inputs have 14 subwords and targets 12.*weights=false"
    hparams = registry.build_hparams(name)
    with pytest.raises(errors.UserError, match=message):
        building.build_abstract(hparams, V, SOURCE_V)


def test_packed_rows_and_recomputation_in_other_models_are_refused(toys):
    gru, moe = map(registry.build_hparams, ("toy_gru", "transformer_moe_tiny"))
    message = "'toy_gru' takes one sentence a row. Use --hparams=batching="
    with pytest.raises(errors.UserError, match=message):
        building.check_model(dataclasses.replace(gru, batching="packed"))
    for hparams in (gru, moe):
        with pytest.raises(errors.UserError, match="cannot recompute activ"):
            building.check_model(hparams, recompute_grad=True)


def test_ctranslate2_lacks_mixtures(build):
    model = build("transformer_moe_tiny")
    with pytest.raises(errors.UserError, match="CTranslate2 has no such model"):
        model.ctranslate2_spec(None, 10)


@pytest.mark.parametrize(
    ("name", "model", "message"),
    [
        ("tiny", "toy_gru", "GruHParams; got TransformerHParams"),
        # A run of settings with more fields could be trained, and not be read.
        (
            "transformer_moe_tiny",
            "transformer",
            "TransformerHParams; got TransformerMoeHParams",
        ),
    ],
)
def test_settings_of_another_model_are_refused(toys, name, model, message):
    hparams = registry.build_hparams(name)
    building.check_model(hparams)
    wrong = dataclasses.replace(hparams, model=model)
    with pytest.raises(errors.UserError, match=f"settings of {message}"):
        building.check_model(wrong)


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
    ("broken_layer", "message"),
    [
        (
            lambda: keras.layers.Dropout(0.5, name="keras_dropout"),
            r"keras_dropout \(Dropout\).*Use Dropout.*layers.randomness",
        ),
        (
            lambda: [keras.layers.Dense(16) for _ in range(2)][1],
            "Keras named .*dense_1.*Give it another name",
        ),
        (
            lambda: _Pair(name="pair"),
            "two items with the path pair/same/kernel",
        ),
        (
            lambda: keras.Sequential(
                [keras.layers.Dropout(0.5, name="dropout")], name="a"
            ),
            r"the layer a/dropout \(Dropout\)",
        ),
    ],
)
def test_layer_violating_a_rule_is_named(register_model, broken_layer, message):
    class Broken(transformer.Transformer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.added = broken_layer()

        def encode(self, *args, **kwargs):
            memory, weights = super().encode(*args, **kwargs)
            return self.added(memory), weights

    with pytest.raises(errors.UserError, match=message):
        building.build(register_model(Broken), V)


class _BuiltApart(transformer.Transformer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.apart = [keras.layers.Dense(4, name=name) for name in "ab"]
        for layer in self.apart:
            layer.build((None, 4))


class _LayerOfACall(transformer.Transformer):
    def hidden_states(self, batch, rng=None):
        self.late = keras.layers.Dense(4, name="late")
        return super().hidden_states(batch, rng)


class _AttributeOfKeras(transformer.Transformer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.metrics = ()


_TAKEN = "keras.Model has {}, too.*another name"


def _mine(**attributes):
    return type("Mine", (transformer.Transformer,), attributes)


class _OneVocabulary(transformer.Transformer):
    def __init__(self, hparams, vocab_size, dtype):
        super().__init__(hparams, vocab_size, dtype=dtype)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (_BuiltApart, "kernel: a/kernel and b/kernel. They were built outside"),
        (_LayerOfACall, "makes a layer .* when it is called. Make all in"),
        (_AttributeOfKeras, _TAKEN.format("metrics")),
        (_mine(loss=property(lambda self: 1)), _TAKEN.format("loss")),
        (_mine(variables=lambda self: ()), _TAKEN.format("variables")),
        (_OneVocabulary, "does not take source_vocab_size.*[*][*]kwargs"),
    ],
)
def test_mistake_obscured_by_keras_is_explained(register_model, cls, message):
    with pytest.raises(errors.UserError, match=f"(?s){message}"):
        building.build(register_model(cls), V, source_vocab_size=SOURCE_V)


def test_other_errors_of_a_model_stay_as_they_are(register_model):
    class Wrong(transformer.Transformer):
        def hidden_states(self, batch, rng=None):
            raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        building.build(register_model(Wrong), V)


def test_flops_of_another_arithmetic_are_noted(register_model):
    class Mine(transformer.Transformer):
        notes = ("first",)

        def decode_step(self, *args):
            return super().decode_step(*args)

    name = register_model(Mine).model
    first, second = building.notes_of(name)
    assert first == "first"
    assert "Mine has its own decode_step, but inherits flops()" in second
    Mine.flops = lambda *lengths: 1.0
    assert building.notes_of(name) == ("first",)


def test_flops_of_registered_models_are_of_their_arithmetic(toys):
    for entry in registry.models:
        assert building.notes_of(entry.name) == entry.value.notes


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
