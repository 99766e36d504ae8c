"""Variants that the paper mentions, later ones, and fine-tuning."""

import dataclasses

from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.registry import hparams_sets


@hparams_sets.register("base_prenorm", parent="base")
def base_prenorm(parent: TransformerHParams) -> TransformerHParams:
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
def base_additive(parent: TransformerHParams) -> TransformerHParams:
    """Base with additive attention (section 3.2.1; Bahdanau et al. 2014)."""
    return dataclasses.replace(parent, attention_type="additive")


@hparams_sets.register("base_unscaled", parent="base")
def base_unscaled(parent: TransformerHParams) -> TransformerHParams:
    """Base without 1 / sqrt(d_k): section 3.2.1, footnote 4."""
    return dataclasses.replace(parent, attention_type="dot_product_unscaled")


@hparams_sets.register("base_restricted", parent="base")
def base_restricted(parent: TransformerHParams) -> TransformerHParams:
    """Base with self-attention at distances below 8 (section 4)."""
    # Seven positions to each side, so r = 15 in the paper's terms: half a
    # sentence of WMT14, which has about 30 subwords. 6 layers reach 42
    # positions, across most sentences (paths of O(n / r)).
    return dataclasses.replace(parent, restricted_attention=8)


@hparams_sets.register("base_adafactor", parent="base")
def base_adafactor(parent: TransformerHParams) -> TransformerHParams:
    """Base with Adafactor, as Shazeer and Stern trained it (1804.04235)."""
    return dataclasses.replace(
        parent,
        optimizer="adafactor",
        # min(0.01, step^-0.5), relative to a weight's size: section 8; so T2T.
        learning_rate_schedule="rsqrt_decay",
        learning_rate_warmup_steps=10_000,
    )


@hparams_sets.register("base_adamw", parent="base")
def base_adamw(parent: TransformerHParams) -> TransformerHParams:
    """Base with AdamW (Loshchilov and Hutter, arXiv 1711.05101)."""
    return dataclasses.replace(
        parent,
        optimizer="adamw",
        weight_decay=0.01,  # BERT's (arXiv 1810.04805, A.2)
    )


@hparams_sets.register("base_lion", parent="base")
def base_lion(parent: TransformerHParams) -> TransformerHParams:
    """Base with Lion (Chen et al., arXiv 2302.06675)."""
    # Section 5: a rate 3 to 10 times lower than AdamW's, and a weight decay as
    # many times higher; beta2 as in algorithm 2.
    return dataclasses.replace(
        parent,
        optimizer="lion",
        optimizer_adam_beta2=0.99,
        weight_decay=0.05,
        learning_rate_constant=0.2,
    )


# Training of a model that is trained already, such as an imported one.


@hparams_sets.register("fine_tuning", parent="base")
def fine_tuning(parent: TransformerHParams) -> TransformerHParams:
    """A small constant learning rate; the importer sets the model's hparams."""
    return dataclasses.replace(
        parent,
        learning_rate_schedule="constant*linear_warmup",
        # The default of Hugging Face's run_translation.py; here with Adam of
        # section 5.3, and warm-up, since its moments start at zero.
        learning_rate_constant=5e-5,
        learning_rate_warmup_steps=100,
        batch_tokens=4_096,
        max_length=512,  # OPUS-MT's max_position_embeddings
        train_steps=2_000,
        save_checkpoints_steps=200,
    )
