"""Tests of recurrent models: search, settings, precision, XLA."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, hparam, registry
from t2t_repro.data import batches
from t2t_repro.decoding import rules, search
from t2t_repro.layers import randomness
from t2t_repro.models import building
from t2t_repro.runtime import graph
from t2t_repro.training import step

V = 5  # PAD, EOS and three words
INPUTS = np.array([[2, 3, 1], [4, 1, 0]], np.int32)
TARGETS = np.array([[3, 2, 4, 1, 0], [4, 4, 3, 2, 1]], np.int32)
ALPHA, BETA, EXTRA_LENGTH = 0.6, 0.7, 1
VARIANTS = {
    "lstm": ("gnmt_tiny", {"num_encoder_layers": 4, "num_decoder_layers": 3}),
    "gru": (
        "gnmt_tiny",
        {
            "cell": "gru",
            "num_bidirectional_layers": 0,
            "attention_hops": 3,
            "attention_size": 5,
        },
    ),
    "dot_product": (
        "gnmt_tiny",
        {"num_bidirectional_layers": 2, "attention_type": "dot_product"},
    ),
    "deep_att": ("deep_att_tiny", {"num_encoder_layers": 3}),
    "moe": ("moe_tiny", {"num_experts": 4, "expert_filter_size": 6}),
}


def _hparams(hparams_set="gnmt_tiny", **changes):
    registry.load_definitions()
    hparams = registry.build_hparams(hparams_set)
    return dataclasses.replace(hparams, **{"hidden_size": 8} | changes)


@pytest.fixture
def build(randomize):
    """A function of a set and settings: a small model with random weights."""

    def build(hparams_set, changes, dtype="float32"):
        model = building.build(_hparams(hparams_set, **changes), V, dtype)
        randomize(model, matrices=0.8)
        return model

    return build


def _every_output(model, inputs, limit):
    """Return {ids: score} of all outputs of one sentence, by the formula.

    The score is log P / ((5 + length) / 6)^alpha, plus GNMT's coverage penalty:
    beta times the sum over the source of log(min(attention, 1)).
    """
    outputs = [
        (*words, 1)
        for length in range(limit)
        for words in itertools.product(range(2, V), repeat=length)
    ]
    ids = np.zeros((len(outputs), limit), np.int32)
    for row, output in enumerate(outputs):
        ids[row, : len(output)] = output
    inputs = np.tile(inputs[inputs > 0], (len(outputs), 1))
    batch = batches.one_sentence_per_row(inputs, ids)
    log_probs = tf.nn.log_softmax(model(batch)).numpy()
    attention = model.attention_weights(batch).cross.numpy()
    attention = attention.mean(axis=(0, 2))  # [outputs, T, L]
    scores = {}
    for row, output in enumerate(outputs):
        steps = range(len(output))
        total = sum(log_probs[row, step, output[step]] for step in steps)
        coverage = np.minimum(attention[row, : len(output)].sum(0), 1.0)
        penalty = ((5 + len(output)) / 6) ** ALPHA
        scores[output] = total / penalty + BETA * np.log(coverage).sum()
    return scores


@pytest.mark.parametrize(
    "variant",
    [
        "gru",
        pytest.param("deep_att", marks=pytest.mark.slow),
        pytest.param("moe", marks=pytest.mark.slow),
        pytest.param("lstm", marks=pytest.mark.slow),
        pytest.param("dot_product", marks=pytest.mark.slow),
    ],
)
def test_wide_beam_with_coverage_equals_enumeration(build, variant):
    """Graphs have unknown shapes, as those of exports do."""
    model = build(*VARIANTS[variant])
    limits = [int(n) + EXTRA_LENGTH for n in (INPUTS > 0).sum(1)]
    hparams = hparam.DecodeHParams(
        beam_size=3 ** (max(limits) - 1),
        alpha=ALPHA,
        extra_length=EXTRA_LENGTH,
        coverage_penalty=BETA,
        return_beams=True,
    )
    found = graph.function(
        lambda inputs: search.search([model], inputs, hparams),
        input_signature=[tf.TensorSpec((None, None), tf.int32)],
    )(INPUTS)
    for row, limit in enumerate(limits):
        every = _every_output(model, INPUTS[row], limit)
        best = sorted(every.values(), reverse=True)[: hparams.beam_size]
        scores = found.scores[row].numpy()
        real = scores > rules.FORBIDDEN / 10
        np.testing.assert_allclose(scores[real], best, rtol=1e-4)
        for ids, score in zip(found.ids[row].numpy(), scores, strict=True):
            if score > rules.FORBIDDEN / 10:
                ids = tuple(ids[ids > 0].tolist())
                assert score == pytest.approx(every[ids], rel=1e-4)


@pytest.mark.slow  # XLA compiles for seconds
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
# With smaller weights the attention's gradients vanish, with larger ones gates
# saturate.
@pytest.mark.parametrize(
    ("hparams_set", "matrices"), [("gnmt_tiny", 0.4), ("deep_att_tiny", 0.3)]
)
def test_gradients_with_xla_equal_those_of_graph(
    build, randomize, hparams_set, matrices, dtype
):
    model = build(hparams_set, {"dropout": 0.2}, dtype)
    randomize(model, matrices=matrices)
    batch = batches.one_sentence_per_row(INPUTS, TARGETS)
    weights = [weight.value for weight in model.weights]

    def gradients():
        with tf.GradientTape() as tape:
            rng = randomness.step_rng(1, 2, 0, len(INPUTS))
            sums = step.batch_loss(model, batch, rng, 0.1)
        return [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(sums.smoothed, weights)
        ]

    tolerance = 1e-4 if dtype == "float32" else 0.1
    expected, found = (
        graph.function(gradients, jit_compile=jit)() for jit in (False, True)
    )
    for weight, a, b in zip(model.weights, expected, found, strict=True):
        assert np.abs(a).max() > 1e-5, weight.path
        np.testing.assert_allclose(
            a, b, atol=tolerance * np.abs(a).max(), err_msg=weight.path
        )


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "moe"])
def test_flops_are_those_of_matrix_products(build, variant):
    """Weights outside the attention's products serve each position once."""
    model = build(*VARIANTS[variant])
    h = model.hparams
    hops = getattr(h, "attention_hops", 1)
    keys = h.attention_size or 8
    source = target = 0
    for weight in model.weights:
        if "bias" in weight.path or "compatibility" in weight.path:
            continue
        count = np.prod(weight.shape)
        if "encoder" in weight.path or "key" in weight.path.split("/"):
            source += count
        elif "query" in weight.path:
            target += count * hops
        else:  # the embedding as the output layer
            target += count
    width = model.decoder.bottom.attention.key.kernel.shape[0]
    pair = keys * (2 if h.attention_type == "additive" else 1) + width
    expected = 5 * source + 7 * target + 5 * 7 * pair * hops
    assert model.flops(5, 7) == 2 * expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_bidirectional_layers": 3},
            "num_bidirectional_layers must be at most num_encoder_layers",
        ),
        (
            {"num_bidirectional_layers": 2, "attention_hops": 2},
            "attention_hops must be 1 where all layers of the encoder are",
        ),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(errors.UserError, match=message):
        _hparams(**changes)


def test_shared_embedding_needs_one_vocabulary():
    with pytest.raises(errors.UserError, match="inputs have 7 subwords and"):
        building.build(_hparams(), V, source_vocab_size=7)
