"""Tests of GNMT with mixtures of experts."""

import dataclasses

import numpy as np
import pytest

from t2t_repro import errors, registry
from t2t_repro.data import batches
from t2t_repro.models import building

V = 20
INPUTS = np.array([[5, 6, 7, 8, 1, 0, 0], [9, 1, 0, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 1, 0, 0], [4, 9, 3, 2, 9, 1]], np.int32)


@pytest.fixture(scope="module")
def hparams(tiny_hparams):
    return dataclasses.replace(
        registry.build_hparams("moe_tiny"),
        hidden_size=8,
        num_experts=4,
        expert_filter_size=6,
    )


@pytest.fixture(scope="module")
def model(hparams, randomize):
    built = building.build(hparams, V)
    randomize(built)
    return built


def test_paper_model_has_8_7_billion_weights(hparams):
    """Appendix E: 2,048 experts of 2 million, in encoder and decoder."""
    model = building.build_abstract(registry.build_hparams("moe"), 32_000)
    matrices = 2 * 2048 * 2 * 512 * 2048
    assert matrices < model.count_params() < 1.02 * matrices
    smallest = building.build_abstract(registry.build_hparams("moe_32"), 32_000)
    expert = 2 * 512 * 2048 + 2048 + 512
    saved = 2 * 2016 * (expert + 2 * 512)
    assert model.count_params() - smallest.count_params() == saved
    # Only gates cost more: two products with a vector of 512 for each expert.
    more = model.flops(10, 10) - smallest.flops(10, 10)
    assert more == 2 * 20 * 2 * 512 * 2016


def test_padding_does_not_change_losses(model):
    def losses(inputs, targets):
        batch = batches.one_sentence_per_row(inputs, targets)
        found = model.hidden_states(batch).auxiliary_losses
        assert [loss.name for loss in found] == ["importance", "load"]
        return [float(loss.total) for loss in found]

    wider = (np.pad(ids, ((0, 0), (0, 3))) for ids in (INPUTS, TARGETS))
    expected = losses(INPUTS, TARGETS)
    assert losses(*wider) == pytest.approx(expected, rel=1e-4)
    assert min(expected) > 0


def test_every_weight_has_a_gradient(model):
    import tensorflow as tf

    batch = batches.one_sentence_per_row(INPUTS, TARGETS)
    real = batch["targets_segment"][..., None] > 0
    with tf.GradientTape() as tape:
        hidden = model.hidden_states(batch)
        states = tf.where(real, hidden.states, 0.0)
        total = tf.reduce_sum(states**2)
        total += sum(loss.total for loss in hidden.auxiliary_losses)
    gradients = tape.gradient(total, [w.value for w in model.weights])
    for weight, gradient in zip(model.weights, gradients, strict=True):
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_decoder_layers": 1}, "num_decoder_layers must be at least 2"),
        ({"num_bidirectional_layers": 2}, r"below num_encoder_layers \(2\)"),
    ],
)
def test_settings_without_place_for_mixture_are_refused(
    hparams, changes, message
):
    with pytest.raises(errors.UserError, match=message):
        dataclasses.replace(hparams, **changes)
