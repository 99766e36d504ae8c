"""Tests of a wide beam search with models against all possible outputs."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from recurrent_variants import VARIANTS

from t2t_repro import hparam
from t2t_repro.decoding import rules, search
from t2t_repro.models import seq2seq
from t2t_repro.runtime import graph

V = 5  # PAD, EOS and three words
INPUTS = np.array([[2, 3, 1], [4, 1, 0]], np.int32)
ALPHA, BETA, EXTRA_LENGTH = 0.6, 0.7, 1
MIXTURE = {"num_experts": 4, "expert_filter_size": 6}
CONVOLUTIONS = dict.fromkeys(
    ("encoder_convolutions", "decoder_convolutions"), "6x3"
)
MODELS = {  # name: an hparams set, and changes of it
    "gru": VARIANTS["gru"],
    "convs2s": ("convs2s_tiny", CONVOLUTIONS),
    "bytenet": ("bytenet_tiny", {"max_dilation": 2, "num_block_repeat": 1}),
    "neural_gpu": ("neural_gpu_tiny", {}),
    "transformer_moe": ("transformer_moe_tiny", MIXTURE),
}
SLOW = VARIANTS | {"moe": ("moe_tiny", MIXTURE)}
del SLOW["gru"]


def _every_output(model, inputs, limit):
    """Return {ids: score} of all outputs of one sentence, by the formula.

    The score is log P / ((5 + length) / 6)^alpha, plus GNMT's coverage penalty
    if the model has attention: beta times the sum over the source of
    log(min(attention, 1)).
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
    batch = seq2seq.one_sentence_per_row(inputs, ids)
    log_probs = tf.nn.log_softmax(model(batch)).numpy()
    log_probs = np.take_along_axis(log_probs, ids[..., None], -1)[..., 0]
    real = ids > 0
    scores = (log_probs * real).sum(1) / ((5 + real.sum(1)) / 6) ** ALPHA
    if model.attention_kinds:
        attention = model.attention_weights(batch).cross.numpy()
        attention = attention.mean(axis=(0, 2)) * real[..., None]
        coverage = np.minimum(attention.sum(1), 1.0)  # [outputs, L]
        scores += BETA * np.log(coverage).sum(1)
    return dict(zip(outputs, scores.tolist(), strict=True))


@pytest.mark.parametrize(
    ("hparams_set", "changes"),
    [pytest.param(*case, id=name) for name, case in MODELS.items()]
    + [
        pytest.param(*case, id=name, marks=pytest.mark.slow)
        for name, case in SLOW.items()
    ],
)
def test_wide_beam_finds_the_best_of_all_outputs(
    build_small, hparams_set, changes
):
    """Graphs have unknown shapes, as those of exports do, also of beams."""
    model = build_small(hparams_set, changes, V, matrices=0.8)
    lengths = (INPUTS > 0).sum(1)
    limits = lengths + EXTRA_LENGTH
    bounds = model.max_output_lengths(tf.constant(lengths))
    if bounds is not None:
        limits = np.minimum(limits, bounds)
    settings = hparam.DecodeHParams(
        beam_size=3 ** int(limits.max() - 1),  # all can be live at once
        alpha=ALPHA,
        extra_length=EXTRA_LENGTH,
        coverage_penalty=BETA if model.attention_kinds else 0.0,
        return_beams=True,
    )
    beams = tf.fill([len(INPUTS)], settings.beam_size)
    given = rules.Settings(beams, beams, tf.fill([len(INPUTS)], ALPHA))
    found = graph.function(
        lambda inputs, *given: search.search(
            [model],
            inputs,
            settings,
            rules.Given(settings=rules.Settings(*given)),
        ),
        input_signature=[
            tf.TensorSpec((None, None), tf.int32),
            *(tf.TensorSpec([None], each.dtype) for each in given),
        ],
    )(INPUTS, *given)
    for inputs, limit, ids, scores in zip(
        INPUTS, limits, found.ids.numpy(), found.scores.numpy(), strict=True
    ):
        every = _every_output(model, inputs, int(limit))
        best = sorted(every.values(), reverse=True)[: settings.beam_size]
        real = scores > rules.FORBIDDEN / 10
        np.testing.assert_allclose(scores[real], best, rtol=1e-4)
        outputs = [tuple(each[each > 0].tolist()) for each in ids[real]]
        assert len(set(outputs)) == len(outputs)
        np.testing.assert_allclose(
            [every[output] for output in outputs], best, rtol=1e-4
        )
