"""Variants of the Transformer as changes of HParams, and small batches."""

import numpy as np

from t2t_repro.models import seq2seq

PRE_NORM = {
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
}
SIZES = {"attention_key_channels": 6, "attention_value_channels": 20}
RELATIVE = {"pos": "none", "max_relative_position": 2}
ROTARY = {"pos": "rotary"}
GROUPED = {"num_key_value_heads": 1}
APART = {"shared_embedding_and_softmax_weights": False}
VARIANTS = {
    "default": {"num_hidden_layers": 2},
    "pre_norm": PRE_NORM,
    "no_norm": {"layer_postprocess_sequence": "da"},
    "both_norms": {"layer_preprocess_sequence": "n"},
    "timing": {"pos": "timing"},
    "learned": {"pos": "emb"},
    "no_positions": {"pos": "none"},
    "relative": RELATIVE,
    "sizes": SIZES,
    "unscaled": {"attention_type": "dot_product_unscaled"},
    "additive": {"attention_type": "additive"},
    "apart": APART,
    "targets_tied": APART
    | {"shared_targets_embedding_and_softmax_weights": True},
    "restricted": {"restricted_attention": 2},
    "biases": {"attention_bias": True, "norm_epsilon": 0.1},
    "deep_encoder": {"num_encoder_layers": 2},
    "deep_decoder": {"num_hidden_layers": 2, "num_encoder_layers": 1},
    **{
        name: {"ffn_activation": name}
        for name in ("gelu", "silu", "glu", "reglu", "geglu", "swiglu")
    },
    "learned_start": {"learned_start": True, "softmax_bias": True},
    "imported": APART
    | PRE_NORM
    | {"learned_start": True, "softmax_bias": True, "embedding_norm": True}
    | {"multiply_embedding_mode": "none", "ffn_activation": "gelu_tanh"}
    | {"pos": "sines_then_cosines", "first_position": 2},
    "rms": {"norm": "rms", "norm_epsilon": 0.1},
    "rotary": ROTARY,
    "grouped": {"num_heads": 4, "num_key_value_heads": 2},
    "one_key_head": GROUPED | RELATIVE | {"attention_bias": True},
    "modern": ROTARY
    | GROUPED
    | PRE_NORM
    | {"attention_key_channels": 12, "attention_value_channels": 20}
    | {"norm": "rms", "ffn_activation": "swiglu", "embedding_norm": True}
    | {"restricted_attention": 3, "num_hidden_layers": 2},
    "buckets": APART
    | {"shared_embedding": True}
    | PRE_NORM
    | {"num_heads": 3, "learned_start": True}
    | {"attention_key_channels": 12, "attention_value_channels": 12}
    | {"pos": "buckets", "position_buckets": 8, "max_bucket_distance": 6}
    | {"attention_type": "dot_product_unscaled", "norm": "rms"}
    | {"ffn_activation": "geglu_tanh", "num_hidden_layers": 2},
    "inputs_bias": {"inputs_bias": True},
    "hidden_eos": {"encode_eos": False},
    "gelu_sigmoid": {"ffn_activation": "gelu_sigmoid", "embedding_norm": True},
    "together": {"num_hidden_layers": 2}
    | PRE_NORM
    | SIZES
    | APART
    | {"pos": "emb", "max_relative_position": 3, "restricted_attention": 3}
    | {"attention_type": "dot_product_unscaled"},
    "additive_together": SIZES
    | APART
    | {"attention_type": "additive", "restricted_attention": 2}
    | GROUPED,
}

INPUTS = np.array([[5, 6, 7, 8, 1, 0, 0], [9, 1, 0, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 1, 0, 0], [4, 9, 3, 2, 9, 1]], np.int32)
# Three sentences per row: segments 1, 2, 3; one or two tokens of padding.
PACKED = {
    "inputs": [[5, 6, 7, 1, 9, 1, 3, 4, 8, 1, 0], [2, 1, 3, 1] + [4] * 6 + [1]],
    "inputs_segment": [
        [1] * 4 + [2] * 2 + [3] * 4 + [0],
        [1, 1, 2, 2] + [3] * 7,
    ],
    "inputs_position": [
        [*range(4), *range(2), *range(4), 0],
        [*range(2), *range(2), *range(7)],
    ],
    "targets": [[8, 7, 1, 4, 9, 3, 2, 1, 5, 1], [6, 5, 4, 1, 1, 2, 3, 1, 0, 0]],
    "targets_segment": [
        [1] * 3 + [2] * 5 + [3] * 2,
        [1] * 4 + [2] + [3] * 3 + [0] * 2,
    ],
    "targets_position": [
        [*range(3), *range(5), *range(2)],
        [*range(4), 0, *range(3), 0, 0],
    ],
}


def features(inputs=INPUTS, targets=TARGETS):
    """Return the features of a batch with one sentence per row, as arrays."""
    return arrays(seq2seq.one_sentence_per_row(inputs, targets))


def arrays(batch):
    """Return a batch as int32 arrays."""
    return {name: np.array(ids, np.int32) for name, ids in batch.items()}


def sentences(batch):
    """Yield the row of each sentence, and bool [L] where its tokens are."""
    for row in range(len(batch["inputs"])):
        for segment in range(1, 1 + batch["inputs_segment"][row].max()):
            yield (
                row,
                batch["inputs_segment"][row] == segment,
                batch["targets_segment"][row] == segment,
            )
