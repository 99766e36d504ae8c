"""What the paper mentions but does not use, and what came after it."""

import dataclasses

from t2t_repro.registry import hparams_sets


@hparams_sets.register("base_prenorm", parent="base")
def base_prenorm(parent):
    """Base with pre-norm: trains without warm-up (Xiong et al. 2020)."""
    return dataclasses.replace(
        parent,
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        # Base's peak, 512^-0.5 * 4000^-0.5, from the first update to the
        # 4,000th; then base's decay.
        learning_rate_schedule="rsqrt_decay*rsqrt_hidden_size",
    )


@hparams_sets.register("base_additive", parent="base")
def base_additive(parent):
    """Base with additive attention (section 3.2.1; Bahdanau et al. 2014)."""
    return dataclasses.replace(parent, attention_type="additive")


@hparams_sets.register("base_unscaled", parent="base")
def base_unscaled(parent):
    """Base without 1 / sqrt(d_k): section 3.2.1, footnote 4."""
    return dataclasses.replace(parent, attention_type="dot_product_unscaled")


@hparams_sets.register("base_restricted", parent="base")
def base_restricted(parent):
    """Base with self-attention to a neighbourhood of r = 8 (section 4)."""
    # Seven positions to each side are half a sentence of WMT14, about 30
    # subwords; 6 layers reach 42, across most sentences (paths of O(n / r)).
    return dataclasses.replace(parent, restricted_attention=8)
