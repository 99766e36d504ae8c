"""Tests of the Transformer with mixtures of experts; see test_golden.py."""

import dataclasses

import numpy as np
import pytest
from transformer_variants import INPUTS, TARGETS, features

from t2t_repro import registry
from t2t_repro.models import building

V = 20
SIZES = {
    "hidden_size": 16,
    "filter_size": 32,
    "expert_filter_size": 8,
    "num_experts": 4,
    "num_heads": 2,
}


def _losses(model, batch):
    losses = model.hidden_states(batch).auxiliary_losses
    assert [loss.name for loss in losses] == ["importance", "load"]
    assert {loss.per for loss in losses} == {"target_tokens"}
    return np.array([float(loss.total) for loss in losses])


def test_losses_are_weighted_per_target_token(build_small):
    weights = {"importance_loss_weight": 0.02, "load_loss_weight": 0.0}
    plain, weighted = (
        build_small("transformer_moe_tiny", SIZES | each, V)
        for each in ({}, weights)
    )
    expected = _losses(plain, features()) * [2, 0]  # the default is 0.01
    np.testing.assert_allclose(_losses(weighted, features()), expected, 1e-5)
    # The sums over layers of losses of all tokens are weighted, too.
    twice = features(np.tile(INPUTS, (2, 1)), np.tile(TARGETS, (2, 1)))
    np.testing.assert_allclose(
        _losses(plain, twice), 2 * _losses(plain, features()), 1e-4
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("transformer_moe_tiny", SIZES),
        ("moe_tiny", {"num_experts": 4, "expert_filter_size": 6}),
    ],
)
def test_padding_does_not_change_losses(build_small, name, changes):
    model = build_small(name, changes, V)
    wider = (np.pad(ids, ((0, 0), (0, 3))) for ids in (INPUTS, TARGETS))
    expected = _losses(model, features())
    assert expected.min() > 0
    np.testing.assert_allclose(_losses(model, features(*wider)), expected, 1e-4)


@pytest.mark.slow
def test_flops_grow_with_chosen_experts_not_with_all():
    hparams = dataclasses.replace(
        registry.build_hparams("transformer_moe_tiny"), **SIZES
    )

    def flops(**changes):
        changed = dataclasses.replace(hparams, **changes)
        return building.build_abstract(changed, V).flops(10, 10)

    # An expert: two matrices of 16 x 8, for 20 tokens, a mixture in each stack.
    expert = 2 * 20 * 2 * 16 * 8
    assert flops(experts_per_token=3) - flops(experts_per_token=2) == expert
    # A gate and its noise: two vectors of 16.
    assert flops(num_experts=8) - flops(num_experts=4) == 2 * 20 * 2 * 16 * 4
    # Two experts of 16 cost what filter_size 32 does.
    plain = registry.build_hparams("tiny").__class__.like(
        hparams, model="transformer"
    )
    assert flops(expert_filter_size=16) == (
        building.build_abstract(plain, V).flops(10, 10) + 2 * 20 * 2 * 16 * 4
    )


@pytest.mark.slow
def test_full_size_model_has_documented_size():
    hparams = registry.build_hparams("transformer_moe")
    model = building.build_abstract(hparams, 37_000)
    # base, and in 6 layers 32 experts, gates and noise instead of one network.
    network = 2 * 512 * 2048 + 2048 + 512
    base = building.build_abstract(registry.build_hparams("base"), 37_000)
    added = 6 * (31 * network + 2 * 512 * 32)
    assert model.count_params() == base.count_params() + added
