"""Validation: means over the whole split."""

import dataclasses
import functools
import math

import numpy as np
import plans
import pytest
import tensorflow as tf
from small_corpora import write_ids

from t2t_repro import errors
from t2t_repro.data import batch_plan, batches
from t2t_repro.data.corpus import Corpus
from t2t_repro.models import building
from t2t_repro.models.seq2seq import AuxiliaryLoss
from t2t_repro.training import cross_entropy, losses, step, validation
from t2t_repro.training.options import Task


@pytest.fixture(scope="module")
def corpus(tiny_corpora):
    """Return 20 pairs, none of which is longer than a row."""
    return tiny_corpora["validation"]


@pytest.fixture(scope="module")
def model_on(one_layer, vocab_size, strategy_of):
    """Return a function: number of replicas -> a model before training."""

    @functools.cache
    def build(replicas):
        with strategy_of(replicas).scope():
            return building.build(one_layer, vocab_size)

    return build


@pytest.fixture
def validate(model_on, one_layer, corpus, strategy_of):
    """Return a function of settings that returns a Validation."""

    def make(
        max_tokens=None, max_length=32, max_pairs=None, replicas=1, **changes
    ):
        settings = dataclasses.replace(
            one_layer, max_length=max_length, **changes
        )
        microbatches = batches.Microbatches(max_tokens)
        return validation.Validation(
            model_on(replicas),
            Task(settings, None, None, {"validation": corpus}),
            step.Execution(strategy_of(replicas), False, microbatches),
            max_pairs,
        )

    return make


@pytest.mark.parametrize(
    ("max_tokens", "max_length", "max_pairs", "replicas"),
    [
        (None, 32, None, 1),
        (64, 32, None, 1),
        (64, 32, None, 2),
        (None, 8, None, 1),
        (None, 32, 7, 2),
    ],
)
def test_validation_equals_the_loss_of_unpacked_pairs(
    validate, model_on, corpus, max_tokens, max_length, max_pairs, replicas
):
    """With at most 8 subwords a side, some pairs are dropped."""
    pairs = batch_plan.usable_pairs(corpus.lengths, max_length, max_pairs)
    assert (len(pairs) < len(corpus)) == (max_length == 8 or max_pairs == 7)
    arrays = batches.assemble(corpus, plans.one_pair_a_row(pairs))
    model = model_on(replicas)
    sums = step.batch_loss(model, arrays, None, step.Objective(0.1))
    smoothed = float(sums.smoothed / sums.tokens)
    constant = cross_entropy.smoothing_constant(0.1, model.vocab_size)
    measured = validate(max_tokens, max_length, max_pairs, replicas)
    assert measured.conditions.get("perplexity_sentences") == max_pairs
    assert measured.measure() == pytest.approx(
        {
            "loss": smoothed,
            "loss_minus_smoothing_constant": smoothed - constant,
            "perplexity": math.exp(sums.nll / sums.tokens),
            "accuracy": float(sums.correct / sums.tokens),
        },
        rel=1e-5,
    )
    # A batch of at least 8 rows is divided.
    for batch in measured._batches if max_tokens else ():
        targets = batch["targets"]
        for copy in getattr(targets, "values", [targets]):  # of replicas
            *_, rows, length = copy.shape
            assert rows * length <= max_tokens


@pytest.mark.usefixtures("toys")
def test_registered_loss_and_auxiliary_losses_are_validated(
    validate, model_on, corpus, monkeypatch
):
    """Each is divided by a count of the whole split."""
    model = model_on(1)
    forward = model.hidden_states

    def with_auxiliary(batch, rng=None):
        hidden = forward(batch, rng)
        total = 2.0 * tf.reduce_sum(tf.cast(batch["inputs"] > 0, tf.float32))
        loss = AuxiliaryLoss("twice", total, "source_tokens")
        return hidden._replace(auxiliary_losses=(loss,))

    monkeypatch.setattr(model, "hidden_states", with_auxiliary)
    lengths = {side: float(n.sum()) for side, n in corpus.lengths.items()}
    counts = {
        "target_tokens": lengths["targets"],
        "source_tokens": lengths["inputs"],
        "sentences": float(len(corpus)),
    }
    text = "noisy:weight=2"
    objective = step.Objective(0.1, losses.build(text))
    pairs = np.arange(len(corpus))
    arrays = batches.assemble(corpus, plans.one_pair_a_row(pairs))
    sums = step.batch_loss(model, arrays, None, objective, counts)
    measured = validate(64, max_pairs=len(corpus), loss=text)
    assert measured.measure() == pytest.approx(
        {
            "loss": float(sum(sums.terms.values())),
            "perplexity": math.exp(sums.nll / sums.tokens),
            "accuracy": float(sums.correct / sums.tokens),
            **{name: float(value) for name, value in sums.terms.items()},
            "twice": 2.0,
        },
        rel=1e-5,
    )
    assert measured.conditions == {
        "loss_name": text,
        "loss_sentences": len(corpus),
        "perplexity_sentences": len(corpus),
        "accuracy_sentences": len(corpus),
    }
    assert validate().measure()["twice"] == pytest.approx(2.0)


def test_error_if_all_pairs_are_long(model_on, one_layer, tmp_path, vocab_size):
    path = write_ids(tmp_path / "long.arrow", [([5] * 33, [5, 1])], vocab_size)
    task = Task(one_layer, None, None, {"validation": Corpus([path])})
    message = "of 1 pairs none.*max_length=32"
    with pytest.raises(errors.UserError, match=message):
        execution = step.Execution(tf.distribute.get_strategy(), xla=False)
        validation.Validation(model_on(1), task, execution)
