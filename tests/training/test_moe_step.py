"""Updates of models with balancing losses, which depend on the batch's parts.

What holds is that the number of parts alone matters, not the replicas that they
are on.
"""

import dataclasses

import pytest
from step_trials import Trial, assert_same_update, distance

from t2t_repro import registry
from t2t_repro.models import building

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tiny_hparams, tiny_corpora, vocab_size, strategy_of, randomize):
    """A function of replicas, parts on each, and settings: a Result."""

    def run(replicas, microbatches, xla=False, **settings):
        hparams = dataclasses.replace(
            registry.build_hparams("transformer_moe_tiny"),
            hidden_size=16,
            filter_size=32,
            expert_filter_size=8,
            num_experts=4,
            num_heads=2,
            batch_tokens=tiny_hparams.batch_tokens,
            max_length=tiny_hparams.max_length,
            **settings,
        )
        trial = Trial(
            lambda: building.build(hparams, vocab_size),
            hparams,
            tiny_corpora["train"],
            strategy_of(replicas),
            randomize,
            xla,
        )
        return trial.run(microbatches)

    return run


def test_update_depends_on_number_of_parts_alone(run):
    halves = run(1, 2)
    assert_same_update(run(2, 1), halves)
    assert distance(run(1, 1), halves) > 1e-3


def test_update_without_balancing_losses_is_that_of_whole_batch(run):
    off = {"importance_loss_weight": 0.0, "load_loss_weight": 0.0}
    assert_same_update(run(1, 2, **off), run(1, 1, **off))


def test_update_does_not_depend_on_xla(run):
    assert_same_update(run(1, 1, xla=True), run(1, 1))
