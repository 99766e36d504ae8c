"""Registered losses: what they are called with, and what they may return."""

import types

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.models.seq2seq import HiddenStates
from t2t_repro.training import losses, step

pytestmark = pytest.mark.usefixtures("toys")
# Two packed sentences, one sentence, and a row of padding.
TARGETS = np.array([[2, 3, 4, 1], [3, 1, 0, 0], [0, 0, 0, 0]], np.int32)
SEGMENTS = np.array([[1, 1, 2, 2], [1, 1, 0, 0], [0, 0, 0, 0]], np.int32)
COUNTS = {"target_tokens": 6.0, "source_tokens": 5.0, "sentences": 3.0}
BATCH = {"targets": TARGETS, "targets_segment": SEGMENTS}


@pytest.fixture(scope="module")
def model():
    """Return a model with random states, and V = 6."""
    generator = np.random.default_rng(0)
    states, weight, bias = (
        tf.constant(generator.normal(size=shape), tf.float32)
        for shape in ((3, 4, 5), (6, 5), (6,))
    )
    layer = types.SimpleNamespace(
        weight=weight,
        bias=types.SimpleNamespace(value=bias),
        logits=lambda x: x @ tf.transpose(weight) + bias,
    )
    return types.SimpleNamespace(
        hidden_states=lambda batch, rng: HiddenStates(states),
        output_layer=layer,
        states=states.numpy(),
    )


def _loss(model, text, label_smoothing=0.0):
    objective = step.Objective(label_smoothing, losses.build(text))
    return step.batch_loss(model, BATCH, None, objective, COUNTS)


def _log_probs(model):
    """Return log-probabilities of all subwords [B, T, V], in numpy."""
    logits = model.output_layer.logits(model.states).numpy()
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("text", "gamma"), [("focal", 2), ("focal:gamma=1", 1)]
)
def test_loss_of_tokens_is_their_mean_without_padding(model, text, gamma):
    log_p = np.take_along_axis(_log_probs(model), TARGETS[..., None], -1)[
        ..., 0
    ]
    focal = -((1 - np.exp(log_p)) ** gamma) * log_p
    sums = _loss(model, text, label_smoothing=0.1)
    expected = (focal * (SEGMENTS > 0)).sum()
    assert float(sums.smoothed) == pytest.approx(expected, rel=1e-5)
    nll = -(log_p * (SEGMENTS > 0)).sum()  # for the perplexity, as ever
    assert float(sums.nll) == pytest.approx(nll, rel=1e-5)
    assert float(sums.tokens) == 6 and not sums.terms


def test_terms_have_denominators_of_their_own(model):
    sums = _loss(model, "noisy:weight=3")
    log_probs, real = _log_probs(model), SEGMENTS > 0
    target = np.eye(6)[TARGETS]
    smoothed = -(log_probs * (0.8 * target + 0.04 * (1 - target))).sum(-1)
    expected = {
        "smoothed": (smoothed * real).sum() / 6,
        "squares": 3 * ((model.states**2).mean(-1) * real).sum() / 3,
    }
    actual = {name: float(value) for name, value in sums.terms.items()}
    assert actual == pytest.approx(expected, rel=1e-5)
    total = sum(expected.values())
    assert float(sums.smoothed / sums.tokens) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("returned:kind=number", "A loss must return {name: "),
        ("returned:kind=empty", "A loss must return"),
        ("returned:kind=figure", r"names must not be in \['accuracy', "),
        ("returned:kind=denominator", "'other' must be per one of .*'words'"),
        ("returned:kind=states", r"the shape \(3, 4, 5\)"),
        ("returned:kind=columns", r"\(3, 1\) and \(3, 4\) are incompatible"),
    ],
)
def test_wrong_losses_are_refused(model, text, message):
    with pytest.raises(errors.UserError, match=message):
        _loss(model, text)
