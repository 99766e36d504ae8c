"""tensor2tensor's hparams sets, with the values of its models/transformer.py.

None of them is the paper's model. transformer_base_v1 is the closest: post-
norm, with the paper's dropout, Adam and schedule. From v2 on the stacks are
pre-norm with a final norm, which tensor2tensor found better "for harder-to-
learn models"; attention and the feed-forward network have their own dropout;
and twice the warm-up leads to a peak 1.4 times as high. transformer_base is v3,
from which all later sets derive, including transformer_big. The paper's models
are base, big and big_enfr.

tensor2tensor's batch_size counts the padded tokens of one GPU. Here
batch_tokens counts those of the job, with the paper's 8 GPUs (section 5.2), or
1 for *_single_gpu. tensor2tensor's noam multiplies learning_rate by 5000 *
0.002 = 10; here learning_rate_constant is that product. Its sets do not define
train_steps, checkpoints and averaging, which stay those of the parent. Its
target-space embedding, a learned constant if there is one target language, is
omitted.
"""

import dataclasses

from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.registry import hparams_sets


@hparams_sets.register("transformer_base_v1", parent="base")
def transformer_base_v1(parent: TransformerHParams) -> TransformerHParams:
    """T2T's first base, nearest the paper: post-norm, the same schedule."""
    return dataclasses.replace(
        parent,
        pos="timing",
        batch_tokens=32_768,  # 8 GPUs * 4096
        batch_unit="slots",
        # "noam": 10 * learning_rate 0.1 is the paper's constant, 1.
    )


@hparams_sets.register("transformer_base_v2", parent="transformer_base_v1")
def transformer_base_v2(parent: TransformerHParams) -> TransformerHParams:
    """T2T's second base: pre-norm, more dropout, a higher peak later."""
    return dataclasses.replace(
        parent,
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate_constant=2.0,  # "noam": 10 * learning_rate 0.2
        learning_rate_warmup_steps=8_000,
    )


@hparams_sets.register("transformer_base_v3", parent="transformer_base_v2")
def transformer_base_v3(parent: TransformerHParams) -> TransformerHParams:
    """T2T's third base: another beta2, the schedule as a product."""
    return dataclasses.replace(
        parent,
        optimizer_adam_beta2=0.997,
        # With v2's constant of 2.0 this is the same curve, one update later.
        learning_rate_schedule=(
            "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"
        ),
    )


@hparams_sets.register("transformer_base", parent="transformer_base_v3")
def transformer_base(parent: TransformerHParams) -> TransformerHParams:
    """T2T's base is v3: pre-norm, not the paper's base."""
    return parent


@hparams_sets.register("transformer_big", parent="transformer_base")
def transformer_big(parent: TransformerHParams) -> TransformerHParams:
    """T2T's big: pre-norm, not the paper's big."""
    return dataclasses.replace(
        parent,
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        layer_prepostprocess_dropout=0.3,
        batch_tokens=16_384,  # 8 GPUs * 2048, for those with 12 GB
    )


@hparams_sets.register("transformer_big_enfr", parent="transformer_base")
def transformer_big_enfr(parent: TransformerHParams) -> TransformerHParams:
    """T2T's big for en-fr: wider and untied, not the paper's big_enfr."""
    # In T2T the parent is transformer_big_dr1, which derives from
    # transformer_base: the batch size is that of base.
    return dataclasses.replace(
        parent,
        hidden_size=1024,
        filter_size=8192,
        num_heads=16,
        shared_embedding_and_softmax_weights=False,
    )


@hparams_sets.register("transformer_base_single_gpu", parent="transformer_base")
def transformer_base_single_gpu(
    parent: TransformerHParams,
) -> TransformerHParams:
    """T2T's base for one GPU: a small batch, a long warm-up.

    The number of rows is a multiple of 8 here, where T2T has 4 of the longest:
    batches have 768 to 2,048 slots, depending on the bucket.
    """
    return dataclasses.replace(
        parent,
        batch_tokens=1_024,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=16_000,
    )


@hparams_sets.register("transformer_big_single_gpu", parent="transformer_big")
def transformer_big_single_gpu(
    parent: TransformerHParams,
) -> TransformerHParams:
    """T2T's big for one GPU: a small batch, a long warm-up."""
    return dataclasses.replace(
        parent,
        layer_prepostprocess_dropout=0.1,
        batch_tokens=2_048,
        learning_rate_warmup_steps=16_000,
    )


@hparams_sets.register("transformer_tiny", parent="transformer_base")
def transformer_tiny(parent: TransformerHParams) -> TransformerHParams:
    """T2T's tiny: two layers, 128 wide."""
    return dataclasses.replace(
        parent,
        num_hidden_layers=2,
        hidden_size=128,
        filter_size=512,
        num_heads=4,
    )


@hparams_sets.register("transformer_small", parent="transformer_base")
def transformer_small(parent: TransformerHParams) -> TransformerHParams:
    """T2T's small: two layers, 256 wide."""
    return dataclasses.replace(
        parent,
        num_hidden_layers=2,
        hidden_size=256,
        filter_size=1024,
        num_heads=4,
    )


@hparams_sets.register("transformer_relative", parent="transformer_base")
def transformer_relative(parent: TransformerHParams) -> TransformerHParams:
    """T2T's relative positions (Shaw et al. 2018), in place of absolute."""
    return dataclasses.replace(parent, pos="none", max_relative_position=20)


@hparams_sets.register("transformer_parsing_base", parent="transformer_base")
def transformer_parsing_base(parent: TransformerHParams) -> TransformerHParams:
    """T2T's parser on WSJ alone: 6 layers where the paper's has 4."""
    # T2T's learning_rate of 0.05 has no effect on v3's schedule.
    return dataclasses.replace(
        parent,
        hidden_size=1024,
        attention_dropout=0.2,
        layer_prepostprocess_dropout=0.2,
        max_length=512,
        learning_rate_warmup_steps=16_000,
        shared_embedding_and_softmax_weights=False,
    )


@hparams_sets.register("transformer_parsing_big", parent="transformer_big")
def transformer_parsing_big(parent: TransformerHParams) -> TransformerHParams:
    """T2T's semi-supervised parser: its big, with the paper's warm-up."""
    # learning_rate has no effect here either, nor has
    # shared_source_target_embedding, which T2T's models do not read.
    return dataclasses.replace(
        parent,
        layer_prepostprocess_dropout=0.1,
        max_length=512,
        learning_rate_warmup_steps=4_000,
    )
