"""Balancing losses of models with mixtures of experts, and how they add up.

A squared coefficient of variation is no sum over rows. It is computed over what
a device processes at once, as in the paper (arXiv 1701.06538), and averaged
over these parts of a batch: over a single row it would forbid that a sentence's
tokens choose the same experts, and for the whole batch every device would need
the others' sums between its forward and its backward pass.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from keras import ops

from t2t_repro.layers.gating import BalanceLosses
from t2t_repro.models.seq2seq import AuxiliaryLoss
from t2t_repro.runtime.types import Tensor

NOTE = (
    "the balancing losses of experts are computed over the part of a batch "
    "that a device processes at once, so that updates depend on the number of "
    "these parts: replicas times accumulated parts."
)


def auxiliary_losses(
    losses: Iterable[BalanceLosses],
    batch: Mapping[str, Tensor],
    hparams: Any,
) -> tuple[AuxiliaryLoss, ...]:
    """Return the sums of the layers' losses, with the weights of `hparams`.

    Each part of a batch counts by its share of the batch's target tokens.

    Args:
        losses: of each mixture, in encoder and decoder.
        batch: features of data/features.py.
        hparams: MixtureHParams.
    """
    losses = list(losses)
    tokens = ops.sum(ops.cast(batch["targets_segment"] > 0, "float32"))
    weights = BalanceLosses(
        importance=hparams.importance_loss_weight,
        load=hparams.load_loss_weight,
    )
    return tuple(
        AuxiliaryLoss(
            kind,
            tokens * weight * sum(getattr(layer, kind) for layer in losses),
            "target_tokens",
        )
        for kind, weight in weights._asdict().items()
    )
