"""Small models, for CPUs and corpora of up to a million pairs."""

import dataclasses

from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.registry import hparams_sets


@hparams_sets.register("tiny", parent="base")
def tiny(parent: TransformerHParams) -> TransformerHParams:
    """Two layers, 128 wide: learns number words on a laptop's CPU."""
    return dataclasses.replace(
        parent,
        hidden_size=128,
        filter_size=512,
        num_heads=4,
        num_hidden_layers=2,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.06,  # peak 0.06 / sqrt(400) = 0.003
        learning_rate_warmup_steps=400,
        batching="packed",
        batch_tokens=2_048,
        max_length=64,
        train_steps=600,
        save_checkpoints_steps=50,
    )


@hparams_sets.register("multi30k_tiny", parent="base")
def multi30k_tiny(parent: TransformerHParams) -> TransformerHParams:
    """The small Multi30k model of Wu et al. 2021 (arXiv 2105.14462)."""
    return dataclasses.replace(
        parent,
        hidden_size=128,
        filter_size=256,
        num_heads=4,
        num_hidden_layers=4,
        layer_prepostprocess_dropout=0.3,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.2236,  # peak 0.005 * sqrt(2000 steps)
        learning_rate_warmup_steps=2_000,
        batching="packed",
        batch_tokens=8_192,  # two GPUs of at most 4,096 tokens each
        max_length=128,
        train_steps=8_000,
        save_checkpoints_steps=200,
        num_averaged_checkpoints=10,
    )


@hparams_sets.register(
    "small", parent="multi30k_tiny", corpus_pairs=range(80_000)
)
def small(parent: TransformerHParams) -> TransformerHParams:
    """Four layers, 128 wide: about 30,000 pairs in half an hour on a CPU."""
    # A fifth of the tokens of multi30k_tiny: a shorter warm-up, a lower peak of
    # the learning rate and less dropout. Batches of 4,096 tokens are 1.2 BLEU
    # worse after as many epochs (scripts/results/recipes_multi30k).
    return dataclasses.replace(
        parent,
        layer_prepostprocess_dropout=0.1,
        learning_rate_constant=0.1,  # peak 0.1 / sqrt(1000) = 0.0032
        learning_rate_warmup_steps=1_000,
        batch_tokens=2_048,
        train_steps=6_000,
    )


@hparams_sets.register(
    "medium", parent="small", corpus_pairs=range(80_000, 1_000_000)
)
def medium(parent: TransformerHParams) -> TransformerHParams:
    """`small` for twice as many steps: about 200,000 pairs in an hour."""
    # In half an hour a model 256 wide is far behind the narrow one, and both
    # still improve (scripts/results/recipes_tatoeba).
    return dataclasses.replace(parent, train_steps=12_000)
