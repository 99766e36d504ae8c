"""Table 3 of the paper: the base model with one thing changed, row by row.

"Unlisted values are identical to those of the base model." The table scores
newstest2013, the development set (``evaluate --split=validation``), "but no
checkpoint averaging" (section 6.2): the last checkpoint alone counts.
"""

import dataclasses
from typing import Any

from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.registry import hparams_sets


def _row(parent: TransformerHParams, **changes: Any) -> TransformerHParams:
    return dataclasses.replace(parent, num_averaged_checkpoints=1, **changes)


@hparams_sets.register("table3_base", parent="base")
def table3_base(parent: TransformerHParams) -> TransformerHParams:
    """Table 3, first row: the base model, without averaging."""
    return _row(parent)


@hparams_sets.register("table3_a_h1", parent="base")
def table3_a_h1(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (A): one head, d_k = d_v = 512."""
    return _row(parent, num_heads=1)


@hparams_sets.register("table3_a_h4", parent="base")
def table3_a_h4(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (A): 4 heads, d_k = d_v = 128."""
    return _row(parent, num_heads=4)


@hparams_sets.register("table3_a_h16", parent="base")
def table3_a_h16(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (A): 16 heads, d_k = d_v = 32."""
    return _row(parent, num_heads=16)


@hparams_sets.register("table3_a_h32", parent="base")
def table3_a_h32(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (A): 32 heads, d_k = d_v = 16."""
    return _row(parent, num_heads=32)


@hparams_sets.register("table3_b_dk16", parent="base")
def table3_b_dk16(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (B): keys of d_k = 16."""
    return _row(parent, attention_key_channels=128)  # 8 heads * 16


@hparams_sets.register("table3_b_dk32", parent="base")
def table3_b_dk32(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (B): keys of d_k = 32."""
    return _row(parent, attention_key_channels=256)  # 8 heads * 32


@hparams_sets.register("table3_c_n2", parent="base")
def table3_c_n2(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (C): 2 + 2 layers."""
    return _row(parent, num_hidden_layers=2)


@hparams_sets.register("table3_c_n4", parent="base")
def table3_c_n4(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (C): 4 + 4 layers."""
    return _row(parent, num_hidden_layers=4)


@hparams_sets.register("table3_c_n8", parent="base")
def table3_c_n8(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (C): 8 + 8 layers."""
    return _row(parent, num_hidden_layers=8)


@hparams_sets.register("table3_c_d256", parent="base")
def table3_c_d256(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (C): d_model = 256, d_k = d_v = 32."""
    return _row(parent, hidden_size=256)


@hparams_sets.register("table3_c_d1024", parent="base")
def table3_c_d1024(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (C): d_model = 1024, d_k = d_v = 128."""
    return _row(parent, hidden_size=1024)


@hparams_sets.register("table3_c_dff1024", parent="base")
def table3_c_dff1024(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (C): d_ff = 1024."""
    return _row(parent, filter_size=1024)


@hparams_sets.register("table3_c_dff4096", parent="base")
def table3_c_dff4096(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (C): d_ff = 4096."""
    return _row(parent, filter_size=4096)


@hparams_sets.register("table3_d_dropout0", parent="base")
def table3_d_dropout0(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (D): no dropout."""
    return _row(parent, layer_prepostprocess_dropout=0.0)


@hparams_sets.register("table3_d_dropout02", parent="base")
def table3_d_dropout02(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (D): dropout 0.2."""
    return _row(parent, layer_prepostprocess_dropout=0.2)


@hparams_sets.register("table3_d_smoothing0", parent="base")
def table3_d_smoothing0(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (D): no label smoothing."""
    return _row(parent, label_smoothing=0.0)


@hparams_sets.register("table3_d_smoothing02", parent="base")
def table3_d_smoothing02(parent: TransformerHParams) -> TransformerHParams:
    """Table 3 (D): label smoothing 0.2."""
    return _row(parent, label_smoothing=0.2)


@hparams_sets.register("table3_e_learned_positions", parent="base")
def table3_e_learned_positions(
    parent: TransformerHParams,
) -> TransformerHParams:
    """Table 3 (E): learned positions instead of sinusoids."""
    return _row(parent, pos="emb")


@hparams_sets.register("table3_big", parent="big")
def table3_big(parent: TransformerHParams) -> TransformerHParams:
    """Table 3, last row: the big model, without averaging."""
    return _row(parent)
