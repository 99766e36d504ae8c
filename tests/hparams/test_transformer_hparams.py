"""The paper's sets, small sets and variants: differences from their parents.

tests/test_hparam.py has every value of base, with its source.
"""

import dataclasses

import pytest

from t2t_repro import hparam, registry
from t2t_repro.hparams.transformer import TransformerHParams

DIFFERENCES = {  # set: (parent, changes)
    "big": (
        "base",
        {
            "hidden_size": 1024,
            "filter_size": 4096,
            "num_heads": 16,
            "layer_prepostprocess_dropout": 0.3,
            "train_steps": 300_000,
            "save_checkpoints_steps": 600,
            "num_averaged_checkpoints": 20,
        },
    ),
    "big_enfr": ("big", {"layer_prepostprocess_dropout": 0.1}),
    "parsing": (
        "base",
        {
            "num_hidden_layers": 4,
            "hidden_size": 1024,
            "attention_dropout": 0.2,
            "layer_prepostprocess_dropout": 0.2,
            "max_length": 512,
        },
    ),
    "base_prenorm": (
        "base",
        {
            "layer_preprocess_sequence": "n",
            "layer_postprocess_sequence": "da",
            "learning_rate_schedule": "rsqrt_decay*rsqrt_hidden_size",
        },
    ),
    "base_additive": ("base", {"attention_type": "additive"}),
    "base_unscaled": ("base", {"attention_type": "dot_product_unscaled"}),
    "base_restricted": ("base", {"restricted_attention": 8}),
    "base_adafactor": (
        "base",
        {
            "optimizer": "adafactor",
            "learning_rate_schedule": "rsqrt_decay",
            "learning_rate_warmup_steps": 10_000,
        },
    ),
    "base_adamw": ("base", {"optimizer": "adamw", "weight_decay": 0.01}),
    "base_lion": (
        "base",
        {
            "optimizer": "lion",
            "optimizer_adam_beta2": 0.99,
            "weight_decay": 0.05,
            "learning_rate_constant": 0.2,
        },
    ),
    "tiny": (
        "base",
        {
            "hidden_size": 128,
            "filter_size": 512,
            "num_heads": 4,
            "num_hidden_layers": 2,
            "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
            "learning_rate_constant": 0.06,
            "learning_rate_warmup_steps": 400,
            "batching": "packed",
            "batch_tokens": 2_048,
            "max_length": 64,
            "train_steps": 600,
            "save_checkpoints_steps": 50,
        },
    ),
    "multi30k_tiny": (
        "base",
        {
            "hidden_size": 128,
            "filter_size": 256,
            "num_heads": 4,
            "num_hidden_layers": 4,
            "layer_prepostprocess_dropout": 0.3,
            "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
            "learning_rate_constant": 0.2236,
            "learning_rate_warmup_steps": 2_000,
            "batching": "packed",
            "batch_tokens": 8_192,
            "max_length": 128,
            "train_steps": 8_000,
            "save_checkpoints_steps": 200,
            "num_averaged_checkpoints": 10,
        },
    ),
    "small": (
        "multi30k_tiny",
        {
            "layer_prepostprocess_dropout": 0.1,
            "learning_rate_constant": 0.1,
            "learning_rate_warmup_steps": 1_000,
            "batch_tokens": 2_048,
            "train_steps": 6_000,
        },
    ),
    "medium": ("small", {"train_steps": 12_000}),
}
CHOICES = {
    "attention_type": ("dot_product", "dot_product_unscaled", "additive"),
    "pos": ("sinusoids", "sines_then_cosines", "timing", "emb", "none"),
    "layer_preprocess_sequence": ("none", "n"),
    "layer_postprocess_sequence": ("dan", "da"),
    "batching": ("bucketed", "packed"),
    "batch_unit": ("real_tokens", "slots"),
}


OF_IMPORTED_MODELS = {"sines_then_cosines"}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_set_differs_from_its_parent_in_these_values(differences, name):
    parent, changes = DIFFERENCES[name]
    assert registry.hparams_sets[name].parent == parent
    assert differences(name, parent) == changes


def test_every_set_can_be_built_and_is_listed(build):
    listed = registry.summary()
    for entry in registry.hparams_sets:
        assert isinstance(build(entry.name), hparam.HParams)
        assert f"\n  {entry.name:24} {entry.summary}\n" in listed
        assert entry.summary.endswith((".", ")"))


def test_required_fields_have_these_choices():
    declared = {
        field.name: rule.text
        for field in dataclasses.fields(TransformerHParams)
        for rule in field.metadata.get("constraints", ())
        if field.default is dataclasses.MISSING
        and rule.text.startswith("one of")
    }
    assert declared == {
        name: f"one of {choices}" for name, choices in CHOICES.items()
    }


def test_every_choice_is_used_by_a_set(build):
    built = [build(entry.name) for entry in registry.hparams_sets]
    sets = [values for values in built if type(values) is TransformerHParams]
    for name, choices in CHOICES.items():
        used = {getattr(values, name) for values in sets}
        assert used == set(choices) - OF_IMPORTED_MODELS
    optimizers = {values.optimizer for values in sets}
    assert optimizers == {"adam", "adafactor", "adamw", "lion"}
    for name in (
        "attention_key_channels max_relative_position restricted_attention "
        "attention_dropout relu_dropout"
    ).split():
        assert any(getattr(values, name) for values in sets), name
    assert not all(v.shared_embedding_and_softmax_weights for v in sets)
