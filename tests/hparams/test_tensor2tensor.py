"""tensor2tensor's sets against the values of its models/transformer.py."""

import pytest

from t2t_repro import registry
from t2t_repro.hparams.transformer_hparams import TransformerHParams

PARENTS = {
    "transformer_base_v1": "base",
    "transformer_base_v2": "transformer_base_v1",
    "transformer_base_v3": "transformer_base_v2",
    "transformer_base": "transformer_base_v3",
    "transformer_big": "transformer_base",
    "transformer_big_enfr": "transformer_base",
    "transformer_base_single_gpu": "transformer_base",
    "transformer_big_single_gpu": "transformer_big",
    "transformer_tiny": "transformer_base",
    "transformer_small": "transformer_base",
    "transformer_relative": "transformer_base",
    "transformer_parsing_base": "transformer_base",
    "transformer_parsing_big": "transformer_big",
}
SIZES = "hidden_size filter_size num_heads num_hidden_layers".split()
V1 = (512, 2048, 8, 6)
BIG = (1024, 4096, 16, 6)
SIZES_OF = {
    "transformer_base_v1": V1,
    "transformer_base_v2": V1,
    "transformer_base_v3": V1,
    "transformer_base": V1,
    "transformer_big": BIG,
    "transformer_big_enfr": (1024, 8192, 16, 6),
    "transformer_base_single_gpu": V1,
    "transformer_big_single_gpu": BIG,
    "transformer_tiny": (128, 512, 4, 2),
    "transformer_small": (256, 1024, 4, 2),
    "transformer_relative": V1,
    "transformer_parsing_base": (1024, 2048, 8, 6),
    "transformer_parsing_big": BIG,
}
LAYERS = (
    "layer_preprocess_sequence layer_postprocess_sequence "
    "layer_prepostprocess_dropout attention_dropout relu_dropout"
).split()
POST_NORM = ("none", "dan", 0.1, 0.0, 0.0)
PRE_NORM = ("n", "da", 0.1, 0.1, 0.1)
LAYERS_OF = dict.fromkeys(PARENTS, PRE_NORM) | {
    "transformer_base_v1": POST_NORM,
    "transformer_big": ("n", "da", 0.3, 0.1, 0.1),
    "transformer_parsing_base": ("n", "da", 0.2, 0.2, 0.1),
}
TRAINING = (
    "optimizer_adam_beta2 learning_rate_schedule learning_rate_constant "
    "learning_rate_warmup_steps batch_tokens"
).split()
PRODUCT = "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"
ONE_GPU = "constant*linear_warmup*rsqrt_decay"
V3 = (0.997, PRODUCT, 2.0, 8000, 8 * 4096)
TRAINING_OF = dict.fromkeys(PARENTS, V3) | {
    # noam with learning_rate 0.1 and 0.2.
    "transformer_base_v1": (0.98, "noam", 1.0, 4000, 8 * 4096),
    "transformer_base_v2": (0.98, "noam", 2.0, 8000, 8 * 4096),
    "transformer_big": (0.997, PRODUCT, 2.0, 8000, 8 * 2048),
    "transformer_base_single_gpu": (0.997, ONE_GPU, 0.1, 16_000, 1024),
    "transformer_big_single_gpu": (0.997, PRODUCT, 2.0, 16_000, 2048),
    "transformer_parsing_base": (0.997, PRODUCT, 2.0, 16_000, 8 * 4096),
    "transformer_parsing_big": (0.997, PRODUCT, 2.0, 4000, 8 * 2048),
}
COMMON = {
    "model": "transformer",
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "attention_type": "dot_product",
    "max_relative_position": 0,
    "restricted_attention": 0,
    "pos": "timing",
    "shared_embedding_and_softmax_weights": True,
    "label_smoothing": 0.1,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_epsilon": 1e-9,
    "weight_decay": 0.0,
    "clip_grad_norm": 0.0,
    "ema_decay": 0.0,
    "batching": "bucketed",
    "reshuffle_buckets": True,
    "batch_unit": "slots",
    "max_length": 256,
    # tensor2tensor's sets do not say: as in base.
    "train_steps": 100_000,
    "save_checkpoints_steps": 1_500,
    "num_averaged_checkpoints": 5,
}
OTHERS_OF = {
    "transformer_big_enfr": {"shared_embedding_and_softmax_weights": False},
    "transformer_relative": {"pos": "none", "max_relative_position": 20},
    "transformer_parsing_base": {
        "shared_embedding_and_softmax_weights": False,
        "max_length": 512,
    },
    "transformer_parsing_big": {"max_length": 512},
}


@pytest.mark.parametrize("name", PARENTS)
def test_every_value(build, name):
    expected = (
        COMMON
        | dict(zip(SIZES, SIZES_OF[name], strict=True))
        | dict(zip(LAYERS, LAYERS_OF[name], strict=True))
        | dict(zip(TRAINING, TRAINING_OF[name], strict=True))
        | OTHERS_OF.get(name, {})
    )
    assert build(name) == TransformerHParams(**expected)


def test_parents_are_tensor2tensors(build):
    parents = {
        entry.name: entry.parent
        for entry in registry.hparams_sets
        if entry.name.startswith("transformer_")
    }
    assert parents == PARENTS


def test_v1_differs_from_the_paper_in_this_alone(differences):
    assert differences("transformer_base_v1", "base") == {
        "pos": "timing",
        "batch_tokens": 32_768,
        "batch_unit": "slots",
    }
