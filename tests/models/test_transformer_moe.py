"""Tests of the Transformer with mixtures of experts."""

import dataclasses
import pathlib
import runpy

import numpy as np
import pytest

from t2t_repro import errors, registry
from t2t_repro.layers import randomness
from t2t_repro.models import building

CASES = runpy.run_path(str(pathlib.Path(__file__).with_name("variants.py")))
PACKED, features, arrays = (
    CASES[name] for name in ("PACKED", "features", "arrays")
)
V = 20


@pytest.fixture(scope="module")
def hparams(tiny_hparams):
    """Settings of a small model, whose second layers are mixtures."""
    return dataclasses.replace(
        registry.build_hparams("transformer_moe_tiny"),
        hidden_size=16,
        filter_size=32,
        expert_filter_size=8,
        num_experts=4,
        num_heads=2,
    )


@pytest.fixture(scope="module")
def model(hparams, randomize):
    built = building.build(hparams, V)
    randomize(built)
    return built


def _rng(batch):
    return randomness.step_rng(3, 5, 0, len(batch["targets"]))


def test_every_second_layer_is_a_mixture(model):
    paths = {weight.path.partition("/")[2] for weight in model.weights}
    for stack in ("encoder", "decoder"):
        assert f"{stack}/layer_0/ffn/feed_forward/filter/kernel" in paths
        assert f"{stack}/layer_1/ffn/mixture_of_experts/gating/weight" in paths
        assert not any("layer_1/ffn/feed_forward" in path for path in paths)


def test_packed_sentences_have_logits_of_padded_ones(model):
    packed = arrays(PACKED)
    logits = np.asarray(model(packed))
    for row, segments in enumerate(packed["targets_segment"]):
        for segment in range(1, segments.max() + 1):
            its_inputs = packed["inputs_segment"][row] == segment
            its_targets = segments == segment
            alone = features(
                packed["inputs"][row : row + 1, its_inputs],
                packed["targets"][row : row + 1, its_targets],
            )
            np.testing.assert_allclose(
                np.asarray(model(alone))[0],
                logits[row, its_targets],
                rtol=1e-4,
                atol=1e-5,
            )


def test_losses_sum_layers_and_count_target_tokens(model, hparams):
    batch = features()
    mixtures = [
        stack.layers[1].ffn.sublayer for stack in (model.encoder, model.decoder)
    ]
    recorded = []
    for mixture in mixtures:
        call = mixture.call

        def record(*args, call=call, **kwargs):
            outputs = call(*args, **kwargs)
            recorded.append(outputs[1])
            return outputs

        mixture.call = record
    try:
        losses = model.hidden_states(batch, _rng(batch)).auxiliary_losses
    finally:
        for mixture in mixtures:
            del mixture.call
    assert len(recorded) == 2
    assert [loss.name for loss in losses] == ["importance", "load"]
    tokens = batch["targets_segment"].sum()
    for loss in losses:
        assert loss.per == "target_tokens"
        total = sum(float(getattr(layer, loss.name)) for layer in recorded)
        assert float(loss.total) == pytest.approx(0.01 * tokens * total)


def test_padding_does_not_change_losses(model):
    batch = features()
    wider = features(
        np.pad(batch["inputs"], ((0, 0), (0, 3))),
        np.pad(batch["targets"], ((0, 0), (0, 5))),
    )
    expected, actual = (
        [float(x.total) for x in model.hidden_states(b).auxiliary_losses]
        for b in (batch, wider)
    )
    assert actual == pytest.approx(expected, rel=1e-4)
    assert min(expected) > 0


def test_weight_0_leaves_a_loss_out(hparams, randomize):
    model = building.build(
        dataclasses.replace(hparams, load_loss_weight=0.0), V
    )
    randomize(model)
    importance, load = model.hidden_states(features()).auxiliary_losses
    assert float(importance.total) > 0 == float(load.total)


@pytest.mark.slow
def test_flops_grow_with_chosen_experts_not_with_all(hparams):
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experts_per_token": 5}, r"at most num_experts \(4\)"),
        ({"experts_per_token": 1}, "at least 2"),
        ({"mixture_period": 3}, r"at most the number of layers \(2\)"),
        ({"ffn_activation": "gelu"}, "relu: experts have no other"),
        ({"relu_dropout": 0.1}, "relu_dropout must be 0: experts have no"),
    ],
)
def test_unsupported_settings_are_refused(hparams, changes, message):
    with pytest.raises(errors.UserError, match=message):
        dataclasses.replace(hparams, **changes)


def test_unsupported_features_are_refused(model, hparams):
    with pytest.raises(errors.UserError, match="cannot recompute activations"):
        building.check_model(hparams, recompute_grad=True)
    with pytest.raises(errors.UserError, match="CTranslate2 has no such model"):
        model.ctranslate2_spec(None, 10)


@pytest.mark.slow
def test_full_size_model_has_documented_size(tiny_hparams):
    hparams = registry.build_hparams("transformer_moe")
    model = building.build_abstract(hparams, 37_000)
    # base, and in 6 layers 32 experts, gates and noise instead of one network.
    network = 2 * 512 * 2048 + 2048 + 512
    base = building.build_abstract(registry.build_hparams("base"), 37_000)
    added = 6 * (31 * network + 2 * 512 * 32)
    assert model.count_params() == base.count_params() + added
