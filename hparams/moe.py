"""Models with mixtures of experts (Shazeer et al. 2017, arXiv 1701.06538)."""

import dataclasses

from t2t_repro.fields import at_least, at_most, setting
from t2t_repro.hparam import MAX_INNER_WIDTH, MAX_LAYERS, HParams
from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.registry import hparams_sets, models

# The paper's largest layer has 131,072 (Table 8).
_MAX_EXPERTS = at_most(1 << 20)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureHParams(HParams):
    """Settings that all models with mixtures of experts share."""

    num_experts: int = setting(
        at_least(2), _MAX_EXPERTS, help="Experts of each mixture."
    )
    experts_per_token: int = setting(
        at_least(2),  # the gate of a single one is 1 and has no gradient
        help="Experts k that each token chooses.",
    )
    expert_filter_size: int = setting(
        at_least(1),
        MAX_INNER_WIDTH,
        help="Width of an expert's hidden layer.",
    )
    importance_loss_weight: float = setting(
        at_least(0),
        help="Weight of the loss that balances the experts' sums of gates; 0: "
        "none.",
    )
    load_loss_weight: float = setting(
        at_least(0),
        help="Weight of the loss that balances the experts' numbers of tokens; "
        "0: none.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(
            "experts_per_token",
            self.experts_per_token <= self.num_experts,
            f"at most num_experts ({self.num_experts})",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerMoeHParams(MixtureHParams, TransformerHParams):
    """Settings of the Transformer with mixtures of experts."""

    mixture_period: int = setting(
        at_least(1),
        MAX_LAYERS,
        help="Every so many layers the feed-forward network is a mixture of "
        "experts; 1: in every layer.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = max(self.encoder_layers, self.decoder_layers)
        self._require(
            "mixture_period",
            self.mixture_period <= layers,
            f"at most the number of layers ({layers})",
        )
        for name, value in (("ffn_activation", "relu"), ("relu_dropout", 0)):
            self._require(
                name,
                getattr(self, name) == value,
                f"{value}: experts have no other",
            )

    def is_mixture(self, layer: int) -> bool:
        """Return whether a layer, counted from 0, has a mixture."""
        return (layer + 1) % self.mixture_period == 0


models.declare(
    "transformer_moe",
    "t2t_repro.models.transformer_moe.TransformerMoe",
    TransformerMoeHParams,
    "The Transformer with mixtures of experts as feed-forward networks.",
)


@hparams_sets.register("transformer_moe", parent="base")
def transformer_moe(parent: TransformerHParams) -> TransformerMoeHParams:
    """`base` with 32 experts in every second layer; each token chooses two."""
    # The paper has no Transformer. Its recurrent model for translation has 32
    # to 2,048 experts, of which a token chooses 4 (appendix E).
    return TransformerMoeHParams.like(
        parent,
        model="transformer_moe",
        num_experts=32,  # appendix E, the smallest model
        # GShard (arXiv 2006.16668) has mixtures in every second layer of a
        # Transformer, and two experts of a token.
        mixture_period=2,
        experts_per_token=2,
        expert_filter_size=2048,  # appendix E; also base's filter_size
        importance_loss_weight=0.01,  # appendix E
        load_loss_weight=0.01,  # appendix E
    )


@hparams_sets.register("transformer_moe_tiny", parent="tiny")
def transformer_moe_tiny(parent: TransformerHParams) -> TransformerMoeHParams:
    """`tiny` with 8 experts in its second layers."""
    return TransformerMoeHParams.like(
        parent,
        model="transformer_moe",
        num_experts=8,
        mixture_period=2,
        experts_per_token=2,
        expert_filter_size=256,  # two experts cost what filter_size 512 does
        importance_loss_weight=0.01,
        load_loss_weight=0.01,
    )


@hparams_sets.register("transformer_moe_small", parent="small")
def transformer_moe_small(parent: TransformerHParams) -> TransformerMoeHParams:
    """`small` with 8 experts in every second layer."""
    return TransformerMoeHParams.like(
        parent,
        model="transformer_moe",
        num_experts=8,
        mixture_period=2,
        experts_per_token=2,
        expert_filter_size=128,  # two experts cost what filter_size 256 does
        importance_loss_weight=0.01,
        load_loss_weight=0.01,
    )
