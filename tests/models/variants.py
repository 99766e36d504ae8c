"""Every option of the Transformer, alone and combined, as HParams changes."""

PRE_NORM = {
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
}
SIZES = {"attention_key_channels": 6, "attention_value_channels": 20}
RELATIVE = {"pos": "none", "max_relative_position": 2}
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
    "together": {"num_hidden_layers": 2}
    | PRE_NORM
    | SIZES
    | APART
    | {"pos": "emb", "max_relative_position": 3, "restricted_attention": 3}
    | {"attention_type": "dot_product_unscaled"},
    "additive_together": SIZES
    | APART
    | {"attention_type": "additive", "restricted_attention": 2},
}
