"""tensor2tensor's sets, compared with those of its models/transformer.py."""

import pytest

from t2t_repro import registry

BIG = {"hidden_size": 1024, "num_heads": 16}
# {set: (parent, what tensor2tensor's function changes in it)}
DIFFERENCES = {
    "transformer_base_v1": (
        "base",
        {"pos": "timing", "batch_tokens": 8 * 4096, "batch_unit": "slots"},
    ),
    "transformer_base_v2": (
        "transformer_base_v1",
        {
            "layer_preprocess_sequence": "n",
            "layer_postprocess_sequence": "da",
            "attention_dropout": 0.1,
            "relu_dropout": 0.1,
            "learning_rate_constant": 2.0,
            "learning_rate_warmup_steps": 8000,
        },
    ),
    "transformer_base_v3": (
        "transformer_base_v2",
        {
            "optimizer_adam_beta2": 0.997,
            "learning_rate_schedule": (
                "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"
            ),
        },
    ),
    "transformer_base": ("transformer_base_v3", {}),
    "transformer_big": (
        "transformer_base",
        BIG
        | {
            "filter_size": 4096,
            "layer_prepostprocess_dropout": 0.3,
            "batch_tokens": 8 * 2048,
        },
    ),
    "transformer_big_enfr": (
        "transformer_base",
        BIG
        | {
            "filter_size": 8192,
            "shared_embedding_and_softmax_weights": False,
        },
    ),
    "transformer_base_single_gpu": (
        "transformer_base",
        {
            "batch_tokens": 1024,
            "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
            "learning_rate_constant": 0.1,
            "learning_rate_warmup_steps": 16_000,
        },
    ),
    "transformer_big_single_gpu": (
        "transformer_big",
        {
            "layer_prepostprocess_dropout": 0.1,
            "batch_tokens": 2048,
            "learning_rate_warmup_steps": 16_000,
        },
    ),
    "transformer_tiny": (
        "transformer_base",
        {
            **{"hidden_size": 128, "filter_size": 512},
            **{"num_heads": 4, "num_hidden_layers": 2},
        },
    ),
    "transformer_small": (
        "transformer_base",
        {
            **{"hidden_size": 256, "filter_size": 1024},
            **{"num_heads": 4, "num_hidden_layers": 2},
        },
    ),
    "transformer_relative": (
        "transformer_base",
        {"pos": "none", "max_relative_position": 20},
    ),
    "transformer_parsing_base": (
        "transformer_base",
        {
            "hidden_size": 1024,
            "attention_dropout": 0.2,
            "layer_prepostprocess_dropout": 0.2,
            "max_length": 512,
            "learning_rate_warmup_steps": 16_000,
            "shared_embedding_and_softmax_weights": False,
        },
    ),
    "transformer_parsing_big": (
        "transformer_big",
        {
            "layer_prepostprocess_dropout": 0.1,
            "max_length": 512,
            "learning_rate_warmup_steps": 4000,
        },
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_set_differs_from_its_parent_as_in_tensor2tensor(differences, name):
    parent, changes = DIFFERENCES[name]
    assert registry.hparams_sets[name].parent == parent
    assert differences(name, parent) == changes


def test_every_set_of_tensor2tensor_is_registered():
    names = [entry.name for entry in registry.hparams_sets]
    registered = {name for name in names if name.startswith("transformer_")}
    registered -= {name for name in names if name.startswith("transformer_moe")}
    assert registered == set(DIFFERENCES)
