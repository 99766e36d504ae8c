"""Recurrent sets: their values, and the sizes of their models."""

import pytest

from t2t_repro.models import building

VALUES = {
    "gnmt": {
        "model": "recurrent",
        "cell": "lstm",
        "hidden_size": 1024,
        "num_encoder_layers": 8,
        "num_bidirectional_layers": 1,
        "num_decoder_layers": 8,
        "attention_type": "additive",
        "attention_size": 1024,
        "attention_hops": 1,
        "shared_embedding_and_softmax_weights": False,
        "dropout": 0.2,
        "label_smoothing": 0.0,
        "optimizer": "adam",
        "optimizer_adam_beta1": 0.9,
        "optimizer_adam_beta2": 0.999,
        "optimizer_adam_epsilon": 1e-8,
        "learning_rate_schedule": "constant",
        "learning_rate_constant": 0.0002,
        "clip_grad_norm": 5.0,
        "batching": "bucketed",
        "batch_tokens": 4_096,
        "batch_unit": "real_tokens",
        "train_steps": 60_000,
        "num_averaged_checkpoints": 1,
    },
    "lstm_attention": {
        "hidden_size": 128,
        "num_encoder_layers": 2,
        "num_bidirectional_layers": 0,
        "num_decoder_layers": 2,
        "attention_size": 128,
        "dropout": 0.2,
        "label_smoothing": 0.1,
        "optimizer_adam_beta1": 0.85,
        "optimizer_adam_beta2": 0.997,
        "optimizer_adam_epsilon": 1e-6,
        "learning_rate_schedule": "constant*linear_warmup",
        "learning_rate_constant": 0.0002,
        "learning_rate_warmup_steps": 100,
        "clip_grad_norm": 2.0,
        "batch_tokens": 1_024,
        "batch_unit": "slots",
    },
    "deep_att": {
        "model": "deep_att",
        "cell": "lstm",
        "hidden_size": 512,
        "num_encoder_layers": 9,
        "num_decoder_layers": 7,
        "attention_size": 0,
        "dropout": 0.1,
    },
}


@pytest.mark.parametrize("name", VALUES)
def test_sets_have_documented_values(build, name):
    hparams = build(name)
    values = {field: getattr(hparams, field) for field in VALUES[name]}
    assert values == VALUES[name]


@pytest.mark.parametrize("name", ["gnmt", "deep_att"])
@pytest.mark.parametrize("size", ["tiny", "small"])
def test_small_sets_train_as_their_parents(build, name, size):
    """Warm-up, batch and steps are those of the Transformer's set."""
    hparams, parent = build(f"{name}_{size}"), build(size)
    same = set(vars(parent)) & set(vars(hparams)) - {
        *("model", "hidden_size", "batching", "clip_grad_norm"),
        *("num_encoder_layers", "num_decoder_layers", "attention_type"),
    }
    for field in same:
        assert getattr(hparams, field) == getattr(parent, field), field


def test_gru_tiny_differs_in_its_cell(differences):
    assert differences("gru_tiny", "gnmt_tiny") == {"cell": "gru"}


@pytest.mark.parametrize("name", ["gnmt_small", "deep_att_small"])
def test_small_sets_are_as_large_as_the_transformer(build, name):
    """`small` has 2.6 million parameters at 10,000 subwords."""
    model = building.build_abstract(build(name), 10_000)
    assert 2.3e6 < model.count_params() < 2.9e6


def test_parameters_of_gnmt_are_those_of_its_layers(build):
    """Embeddings and softmax have 98 million parameters, the layers 183."""
    model = building.build_abstract(build("gnmt"), 32_000)
    d = 1024
    layer = 4 * d * (2 * d + 1)  # input and output as wide as the layer
    wide = layer + 4 * d * d  # input twice as wide
    encoder = 2 * layer + wide + 6 * layer
    decoder = 8 * wide
    attention = 2 * d * d + d
    expected = 3 * 32_000 * d + encoder + decoder + attention
    assert model.count_params() == expected == 280_826_880
