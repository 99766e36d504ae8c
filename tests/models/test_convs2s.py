"""Tests of ConvS2S; tests of the model interface are in test_contract.py."""

import dataclasses
import functools
import itertools
import math
import pathlib
import runpy

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import hparam, registry
from t2t_repro.decoding import score, search
from t2t_repro.decoding.rules import LengthPenalty
from t2t_repro.layers import randomness
from t2t_repro.models import building
from t2t_repro.text.vocabulary import EOS
from t2t_repro.training.step import batch_loss

CASES = runpy.run_path(str(pathlib.Path(__file__).with_name("variants.py")))
INPUTS, TARGETS, features = (
    CASES[name] for name in ("INPUTS", "TARGETS", "features")
)
V = 12
SIZES = {
    "hidden_size": 8,
    "encoder_convolutions": "12x3+6x2+6x1",
    "decoder_convolutions": "12x3+6x2+6x1",
}


@pytest.fixture(scope="module")
def build(randomize):
    """A function of settings and a dtype policy: a small model, cached."""
    registry.load_definitions()

    @functools.cache
    def build(dtype="float32", vocab_size=V, random=True, **settings):
        hparams = dataclasses.replace(
            registry.build_hparams("convs2s_tiny"), **SIZES | settings
        )
        model = building.build(hparams, vocab_size, dtype)
        if random:
            randomize(model)
        return model

    return build


def test_initial_deviations_are_those_of_section_3_5(build):
    """With a dropout of 0.36, p is 0.64 and its root 0.8."""
    model = build(
        random=False,
        hidden_size=96,
        encoder_convolutions="96x3+48x3",
        decoder_convolutions="96x3+48x3",
        dropout=0.36,
        max_length=256,
        vocab_size=200,
    )
    for path, weight in building.by_path(model.weights).items():
        value = weight.numpy()
        if path.endswith("bias"):
            assert not value.any()
        elif path.endswith("table"):
            assert value.std() == pytest.approx(0.1, rel=0.05)
        elif path.endswith("direction"):
            # sqrt(4 p / n) before a GLU, sqrt(p / n) after dropout.
            factor = 1.0
            if "convolution" in path:
                factor = 2 * 0.8
            elif path.endswith(
                ("input_projection/direction", "softmax/direction")
            ):
                factor = 0.8
            expected = factor / math.sqrt(value.shape[1])
            assert value.std() == pytest.approx(expected, rel=0.07), path


@pytest.mark.slow
def test_full_size_has_the_derived_number_of_parameters():
    """Section 5.1's layers, with 40,000 subwords on both sides."""
    registry.load_definitions()
    hparams = registry.build_hparams("convs2s")
    model = building.build_abstract(hparams, 40_000)

    def linear(inputs, units):
        return inputs * units + 2 * units  # v, g and b

    sizes = [(512, 512, 3)] * 10 + [(512, 768, 3)] + [(768, 768, 3)] * 2
    sizes += [(768, 2048, 1), (2048, 2048, 1)]
    convolutions = sum(linear(c * k, 2 * d) for c, d, k in sizes)
    projections = linear(512, 768) + linear(768, 2048)
    attention = sum(linear(d, 512) + linear(512, d) for _, d, _ in sizes)
    stack = (40_000 + 256) * 512 + linear(512, 512) + linear(2048, 512)
    softmax = linear(512, 40_000)
    total = 2 * (stack + convolutions + projections) + attention + softmax
    assert model.count_params() == total == 153_678_464


def test_flops_are_those_of_the_matrix_products(build):
    model = build(encoder_convolutions="12x3", decoder_convolutions="12x3+6x1")
    source = 8 * 12 + 3 * 12 * 24 + 12 * 8
    convolutions = 3 * 12 * 24 + 12 * 12 + 12 * 6  # with the projection
    attention = 2 * 12 * 8 + 2 * 6 * 8
    target = 8 * 12 + convolutions + attention + 6 * 8 + 8 * V
    pairs = 2 * 2 * 8  # in each of two layers, for a query and a key
    expected = 2 * (5 * source + 7 * target + 5 * 7 * pairs)
    assert model.flops(5, 7) == expected


def test_positions_beyond_the_table_get_its_last_row(build):
    model = build(
        max_length=8, encoder_convolutions="6x3", decoder_convolutions="6x3"
    )
    ids = np.full((1, 12), 5, np.int32)
    logits = np.asarray(model(features(ids, ids)))
    assert np.isfinite(logits).all()
    state = model.start_decoding(ids, 1, 12, model.decoding_constants())
    for step in range(12):
        outputs = model.decode_step(ids[:, :1], tf.constant(step), state)
        state = outputs.state
        np.testing.assert_allclose(
            outputs.logits[:, 0], logits[:, step], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_16_bit_logits_are_near_float32(build, dtype):
    batch = features()
    expected, logits = (
        np.asarray(build(policy)(batch)) for policy in ("float32", dtype)
    )
    assert logits.dtype == np.float32
    tolerance = {"mixed_bfloat16": 0.05, "mixed_float16": 0.01}[dtype]
    real = TARGETS > 0
    difference = np.abs(logits - expected)[real].max()
    assert 0 < difference < tolerance * np.abs(expected[real]).max()


def _gradients(model, xla):
    batch = {name: tf.constant(x) for name, x in features().items()}

    @tf.function(jit_compile=xla)
    def compute():
        rng = randomness.step_rng(1, 2, 0, len(INPUTS))
        with tf.GradientTape() as tape:
            sums = batch_loss(model, batch, rng, 0.1)
        variables = [v.value for v in model.trainable_variables]
        gradients = tape.gradient(sums.smoothed, variables)
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    return compute()


@pytest.mark.slow
def test_gradients_of_every_weight_are_the_same_with_xla(build):
    model = build(
        encoder_convolutions="8x3",
        decoder_convolutions="6x2",
        dropout=0.2,
    )
    paths = building.by_path(model.trainable_variables)
    for path, plain, compiled in zip(
        paths, _gradients(model, False), _gradients(model, True), strict=True
    ):
        assert tf.reduce_max(tf.abs(plain)) > 1e-4, path
        np.testing.assert_allclose(
            plain, compiled, rtol=1e-3, atol=1e-4, err_msg=path
        )


def test_gradient_of_encoder_is_divided_by_number_of_attentions(build):
    """The gradient of embeddings by way of the values is not divided."""
    model = build()
    inputs = tf.constant(INPUTS)
    with tf.GradientTape(persistent=True) as tape:
        states, values, real = model.encode(inputs)
        total = tf.reduce_sum(states[real])
        direct = tf.reduce_sum(values[real]) - math.sqrt(0.5) * total
    bias = model.encoder.output_projection.bias.value
    expected = np.full(8, real.numpy().sum() / 3)  # three decoder layers
    np.testing.assert_allclose(tape.gradient(total, bias), expected, rtol=1e-5)
    table = model.encoder.embedding.table.value
    gradient = tf.convert_to_tensor(tape.gradient(direct, table))
    counts = np.bincount(INPUTS[INPUTS > 0], minlength=V)
    expected = np.repeat(math.sqrt(0.5) * counts[:, None], 8, axis=1)
    np.testing.assert_allclose(gradient, expected, atol=1e-4)


def test_decoding_state_has_the_last_inputs_of_each_layer(build):
    """Layers of kernel width 1 have no past."""
    model = build()
    state = model.start_decoding(
        INPUTS, num_beams=3, capacity=4, constants=model.decoding_constants()
    )
    shapes = [tuple(past.shape) for past in state.hypotheses]
    assert shapes == [(2, 3, 2, 12), (2, 3, 1, 12)]


def test_wide_beam_search_equals_enumeration(build):
    """All outputs of up to 4 subwords, of a vocabulary of 3 words."""
    words, alpha = (2, 3, 4), 0.6
    model = build(
        vocab_size=5, encoder_convolutions="6x3", decoder_convolutions="6x3"
    )
    inputs = tf.constant([[3, EOS], [4, EOS]])
    outputs = [
        (*ids, EOS)
        for length in range(4)
        for ids in itertools.product(words, repeat=length)
    ]
    rows = tf.constant([ids + (0,) * (4 - len(ids)) for ids in outputs])
    settings = hparam.DecodeHParams(
        beam_size=27, alpha=alpha, extra_length=2, return_beams=True
    )
    found = search.search([model], inputs, settings)
    for sentence in range(2):
        log_probs = score.sentence_log_probs(
            [model], tf.repeat(inputs[sentence : sentence + 1], 40, 0), rows
        )
        lengths = tf.constant([len(ids) for ids in outputs])
        scores = log_probs / LengthPenalty(alpha)(lengths)
        order = np.argsort(-scores.numpy())[:27]
        np.testing.assert_allclose(
            found.scores[sentence], scores.numpy()[order], rtol=1e-4
        )
        np.testing.assert_array_equal(
            found.ids[sentence][:, :4], rows.numpy()[order]
        )
