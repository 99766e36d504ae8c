"""Registered losses, of which guided alignment is one of the library."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf
from numpy_layers import normal
from step_trials import plan_of

from t2t_repro import errors
from t2t_repro.data import batches, corpus
from t2t_repro.data.corpus import ALIGNMENTS
from t2t_repro.layers.embedding import Embedding
from t2t_repro.models import building
from t2t_repro.models.seq2seq import AuxiliaryLoss, HiddenStates
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
    layer = Embedding(6, 5, use_bias=True)
    layer.build()
    layer.set_weights([normal(*weight.shape) for weight in layer.weights])
    states = normal(3, 4, 5, seed=1)
    return types.SimpleNamespace(
        hidden_states=lambda batch, rng: HiddenStates(tf.constant(states)),
        output_layer=layer,
        states=states,
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
        ("returned:kind=figure", "must not have the name 'perplexity'"),
        ("too_few", "must take 4 arguments .* too many positional arguments"),
        ("returned:kind=denominator", "'other' must be per one of .*'words'"),
        ("returned:kind=states", r"the shape \(3, 4, 5\)"),
        ("returned:kind=columns", r"\(3, 1\) and \(3, 4\) are incompatible"),
    ],
)
def test_wrong_losses_are_refused(model, text, message):
    with pytest.raises(errors.UserError, match=message):
        _loss(model, text)


def test_loss_named_as_one_of_the_model_is_refused(model):
    load = AuxiliaryLoss("cross_entropy", tf.constant(1.0), "sentences")
    hidden = HiddenStates(tf.constant(model.states), (load,))
    own = types.SimpleNamespace(
        **vars(model) | {"hidden_states": lambda batch, rng: hidden}
    )
    with pytest.raises(errors.UserError, match="Both the model and the hparam"):
        _loss(own, "cross_entropy+focal")


GUIDED = "cross_entropy+guided_alignment:weight=0.5:layer=1:head=2"


@pytest.fixture(scope="module")
def aligned(tiny_corpora, vocab_size, tmp_path_factory):
    """Return the corpus of reversed inputs, with links of equal words.

    The first target subword of every third pair has no link, and the second has
    two.
    """
    plain = tiny_corpora["train"]
    ids = {side: plain.sentences(side) for side in corpus.SIDES}
    pairs = list(zip(*ids.values(), strict=True))
    ids[ALIGNMENTS] = []
    for i, (source, target) in enumerate(pairs):
        last = len(source) - 2
        links = [(last - j, j) for j in range(i % 3 == 0, len(target) - 1)]
        links += [(0, 1)] if (0, 1) not in links else []
        ids[ALIGNMENTS].append(np.ravel(links).tolist())
    path = tmp_path_factory.mktemp("aligned") / "a.arrow"
    corpus.write_shard(path, ids, {}, vocab_size)
    return corpus.Corpus([path])


def _expected(weights, batch, pairs, aligned):
    """Sum the loss of some pairs in a batch's rows, link by link."""
    total, used = 0.0, {}
    for pair, row in zip(pairs.pairs, pairs.rows, strict=True):
        left, top = used.get(row, (0, 0))
        flat = aligned.gather(ALIGNMENTS, np.array([pair])).tolist()
        links = list(zip(flat[::2], flat[1::2], strict=True))
        for i, j in links:
            share = 1 / sum(link[1] == j for link in links)
            total -= share * np.log(weights[row, top + j, left + i])
        inputs, targets = (aligned.lengths[s][pair] for s in corpus.SIDES)
        used[row] = left + inputs, top + targets
    return total


def test_loss_of_a_transformer_is_that_of_loops(
    aligned, tiny_hparams, vocab_size, randomize
):
    hparams = dataclasses.replace(tiny_hparams, loss=GUIDED)
    model = building.build(hparams, vocab_size)
    randomize(model, matrices=0.5)
    plan = plan_of(aligned, hparams)
    batch = batches.assemble(aligned, plan.batch(0))
    objective = step.Objective(0.1, losses.build(hparams.loss))
    counts = COUNTS | {"target_tokens": 50.0}
    sums = step.batch_loss(model, batch, None, objective, counts)
    weights = np.asarray(model.attention_weights(batch).cross)[0, :, 1]
    alignment = 0.5 * _expected(weights, batch, plan.batch(0), aligned)
    usual = step.batch_loss(model, batch, None, step.Objective(0.1))
    shares = {name: float(50 * value) for name, value in sums.terms.items()}
    assert shares == pytest.approx(
        {"cross_entropy": float(usual.smoothed), "alignment": alignment},
        rel=1e-5,
    )
    assert float(sums.smoothed) == pytest.approx(sum(shares.values()), rel=1e-5)
    assert float(sums.nll) == pytest.approx(float(usual.nll))


# A batch of one pair, as far as guided alignment reads it.
ATTENTION = {
    "cross_attention": (np.full((1, 2, 3, 4), 0.25, np.float32),),
    ALIGNMENTS: np.ones((1, 3, 4), np.float32),
}


@pytest.mark.parametrize(
    ("loss", "changes", "message"),
    [
        ("layer=3", {}, "layer of guided_alignment must be from 1 to 1"),
        ("head=3", {}, "head of guided_alignment must be from 1 to 2; got 3"),
        ("head=0", {}, "head at least 1; got 0.05, 0 and 0"),
        ("weight=0", {}, "weight must be above 0"),
        ("", {"cross_attention": ()}, "omit --recompute_grad"),
        ("", {ALIGNMENTS: None}, "--problem_args=alignments="),
    ],
)
def test_wrong_arguments_and_batches_are_refused(loss, changes, message):
    batch = ATTENTION | changes
    batch = {k: v for k, v in batch.items() if v is not None}
    with pytest.raises(errors.UserError, match=message):
        (own,) = losses.build(f"guided_alignment:{loss}".rstrip(":"))
        own(batch, None, None, None)


def test_two_terms_of_one_name_are_refused():
    loss = losses.build("guided_alignment+guided_alignment:head=2")
    batch = ATTENTION | {"targets_segment": tf.ones((1, 3), tf.int32)}
    with pytest.raises(errors.UserError, match="have a term 'alignment'"):
        losses.terms(loss, None, batch, None, None, None)


def test_weight_of_0_has_a_finite_loss():
    (own,) = losses.build("guided_alignment:weight=1")
    weights = tf.constant([[[[1.0, 0.0]]]])
    batch = {"cross_attention": (weights,), ALIGNMENTS: tf.constant([[[0, 1]]])}
    loss, per = own(batch, None, None, None)["alignment"]
    assert per == "target_tokens" and 60 < float(loss[0, 0]) < 100
