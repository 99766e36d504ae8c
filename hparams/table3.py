"""Table 3 of the paper: the base model with one thing changed, row by row.

"Unlisted values are identical to those of the base model." The table scores
newstest2013, the development set (``evaluate --split=validation``), "but no
checkpoint averaging" (section 6.2): the last checkpoint alone counts.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.registry import hparams_sets


def _row(
    summary: str, changes: dict[str, Any]
) -> Callable[[TransformerHParams], TransformerHParams]:
    def row(parent: TransformerHParams) -> TransformerHParams:
        return dataclasses.replace(
            parent, num_averaged_checkpoints=1, **changes
        )

    row.__doc__ = f"Table 3{summary}."
    return row


for _name, _summary, _changes in (
    ("table3_base", ", first row: the base model, without averaging", {}),
    ("table3_a_h1", " (A): one head, d_k = d_v = 512", {"num_heads": 1}),
    ("table3_a_h4", " (A): 4 heads, d_k = d_v = 128", {"num_heads": 4}),
    ("table3_a_h16", " (A): 16 heads, d_k = d_v = 32", {"num_heads": 16}),
    ("table3_a_h32", " (A): 32 heads, d_k = d_v = 16", {"num_heads": 32}),
    (
        "table3_b_dk16",
        " (B): keys of d_k = 16",
        {"attention_key_channels": 128},  # 8 heads * 16
    ),
    (
        "table3_b_dk32",
        " (B): keys of d_k = 32",
        {"attention_key_channels": 256},  # 8 heads * 32
    ),
    ("table3_c_n2", " (C): 2 + 2 layers", {"num_hidden_layers": 2}),
    ("table3_c_n4", " (C): 4 + 4 layers", {"num_hidden_layers": 4}),
    ("table3_c_n8", " (C): 8 + 8 layers", {"num_hidden_layers": 8}),
    (
        "table3_c_d256",
        " (C): d_model = 256, d_k = d_v = 32",
        {"hidden_size": 256},
    ),
    (
        "table3_c_d1024",
        " (C): d_model = 1024, d_k = d_v = 128",
        {"hidden_size": 1024},
    ),
    ("table3_c_dff1024", " (C): d_ff = 1024", {"filter_size": 1024}),
    ("table3_c_dff4096", " (C): d_ff = 4096", {"filter_size": 4096}),
    (
        "table3_d_dropout0",
        " (D): no dropout",
        {"layer_prepostprocess_dropout": 0.0},
    ),
    (
        "table3_d_dropout02",
        " (D): dropout 0.2",
        {"layer_prepostprocess_dropout": 0.2},
    ),
    (
        "table3_d_smoothing0",
        " (D): no label smoothing",
        {"label_smoothing": 0.0},
    ),
    (
        "table3_d_smoothing02",
        " (D): label smoothing 0.2",
        {"label_smoothing": 0.2},
    ),
    (
        "table3_e_learned_positions",
        " (E): learned positions instead of sinusoids",
        {"pos": "emb"},
    ),
):
    hparams_sets.register(_name, parent="base")(_row(_summary, _changes))


@hparams_sets.register("table3_big", parent="big")
def table3_big(parent: TransformerHParams) -> TransformerHParams:
    """Table 3, last row: the big model, without averaging."""
    return _row("", {})(parent)
