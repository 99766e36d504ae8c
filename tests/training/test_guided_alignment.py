"""Guided alignment: its loss against loops, in batches of any division."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from step_trials import Trial, assert_same_update, plan_of

from t2t_repro import errors
from t2t_repro.data import batches, corpus
from t2t_repro.data.corpus import ALIGNMENTS
from t2t_repro.models import building
from t2t_repro.training import losses, step

LOSS = "cross_entropy+guided_alignment:weight=0.5:layer=1:head=2"
COUNTS = {"target_tokens": 50.0, "source_tokens": 1.0, "sentences": 1.0}


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
    hparams = dataclasses.replace(tiny_hparams, loss=LOSS)
    model = building.build(hparams, vocab_size)
    randomize(model, matrices=0.5)
    plan = plan_of(aligned, hparams)
    batch = batches.assemble(aligned, plan.batch(0))
    objective = step.Objective(0.1, losses.build(hparams.loss))
    sums = step.batch_loss(model, batch, None, objective, COUNTS)
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


@pytest.mark.slow
def test_update_does_not_depend_on_the_division_of_the_batch(
    aligned, tiny_hparams, vocab_size, strategy_of, randomize
):
    hparams = dataclasses.replace(tiny_hparams, loss=LOSS, num_hidden_layers=1)

    def run(replicas, microbatches):
        return Trial(
            lambda: building.build(hparams, vocab_size),
            hparams,
            aligned,
            strategy_of(replicas),
            randomize,
        ).run(microbatches)

    assert_same_update(run(2, 2), run(1, 1))


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
    weights = tf.ones((1, 2, 3, 4)) / 4
    batch = {"cross_attention": (weights,), ALIGNMENTS: tf.ones((1, 3, 4))}
    batch = {k: v for k, v in (batch | changes).items() if v is not None}
    with pytest.raises(errors.UserError, match=message):
        (own,) = losses.build(f"guided_alignment:{loss}".rstrip(":"))
        own(batch, None, None, None)


def test_two_terms_of_one_name_are_refused():
    loss = losses.build("guided_alignment+guided_alignment:head=2")
    batch = {
        "cross_attention": (tf.ones((1, 2, 3, 4)) / 4,),
        ALIGNMENTS: tf.ones((1, 3, 4)),
        "targets_segment": tf.ones((1, 3), tf.int32),
    }
    with pytest.raises(errors.UserError, match="have a term 'alignment'"):
        losses.terms(loss, None, batch, None, None, None)


def test_weight_of_0_has_a_finite_loss():
    (own,) = losses.build("guided_alignment:weight=1")
    weights = tf.constant([[[[1.0, 0.0]]]])
    batch = {"cross_attention": (weights,), ALIGNMENTS: tf.constant([[[0, 1]]])}
    loss, per = own(batch, None, None, None)["alignment"]
    assert per == "target_tokens" and 60 < float(loss[0, 0]) < 100
