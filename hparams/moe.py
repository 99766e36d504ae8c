"""Models with mixtures of experts (Shazeer et al. 2017, arXiv 1701.06538)."""

import dataclasses
from typing import Any

from t2t_repro.hparam import MAX_INNER_WIDTH, MAX_LAYERS, HParams
from t2t_repro.hparams.recurrent import RecurrentHParams
from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.io.fields import at_least, at_most, setting
from t2t_repro.registry import hparams_sets, models

# The paper's largest layer has 131,072 (Table 8).
_MAX_EXPERTS = at_most(1 << 20)
# Of the small sets.
_EIGHT_EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "experts_per_token": 2,
    "importance_loss_weight": 0.01,  # appendix E
    "load_loss_weight": 0.01,
}


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
        at_least(1), MAX_INNER_WIDTH, help="Width of an expert's hidden layer."
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
        self.require(
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
        self.require(
            "mixture_period",
            self.mixture_period <= layers,
            f"at most the number of layers ({layers})",
        )
        for name, value in (("ffn_activation", "relu"), ("relu_dropout", 0)):
            self.require(
                name,
                getattr(self, name) == value,
                f"{value}: experts have no other",
            )

    def is_mixture(self, layer: int) -> bool:
        """Return whether a layer, counted from 0, has a mixture."""
        return (layer + 1) % self.mixture_period == 0


models.declare(
    "transformer_moe",
    "t2t_repro.models.moe.TransformerMoe",
    TransformerMoeHParams,
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
        mixture_period=2,
        expert_filter_size=256,  # two experts cost what filter_size 512 does
        **_EIGHT_EXPERTS,
    )


@hparams_sets.register("transformer_moe_small", parent="small")
def transformer_moe_small(parent: TransformerHParams) -> TransformerMoeHParams:
    """`small` with 8 experts in every second layer."""
    return TransformerMoeHParams.like(
        parent,
        model="transformer_moe",
        mixture_period=2,
        expert_filter_size=128,  # two experts cost what filter_size 256 does
        **_EIGHT_EXPERTS,
    )


# GNMT with mixtures of experts (arXiv 1701.06538, section 5.3, appendix E).


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentMoeHParams(MixtureHParams, RecurrentHParams):
    """Settings of recurrent models with mixtures of experts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_encoder_layers", "num_decoder_layers"):
            self.require(
                name,
                getattr(self, name) > 1,
                "at least 2: the mixture lies between two layers",
            )
        self.require(
            "num_bidirectional_layers",
            self.num_bidirectional_layers < self.num_encoder_layers,
            f"below num_encoder_layers ({self.num_encoder_layers})",
        )


models.declare(
    "recurrent_moe", "t2t_repro.models.moe.RecurrentMoe", RecurrentMoeHParams
)


@hparams_sets.register("moe", parent="gnmt")
def moe(parent: RecurrentHParams) -> RecurrentMoeHParams:
    """The paper's MoE with 2048 experts, in two mixtures of 4.3 billion."""
    return RecurrentMoeHParams.like(
        parent,
        model="recurrent_moe",
        # Appendix E has LSTMs of 2048 units with projections to 512; ours have
        # no projection.
        hidden_size=512,
        num_encoder_layers=3,  # appendix E
        # Not mentioned: "all of the layers" have inputs and outputs of 512.
        num_bidirectional_layers=0,
        num_decoder_layers=2,  # appendix E
        attention_size=512,  # not mentioned
        num_experts=2048,  # appendix E; hierarchical there
        experts_per_token=4,  # appendix E
        expert_filter_size=2048,  # appendix E
        importance_loss_weight=0.01,  # appendix E
        load_loss_weight=0.01,  # appendix E
        dropout=0.4,  # appendix E
        # Appendix E: linear for 2,000 steps, constant for 8,000, then with the
        # inverse square root. Ours is the same from step 10,000 on, and linear
        # until then. The peak, 0.1 / sqrt(10,000), is not stated.
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=10_000,
        # Appendix E: about 16,000 words on each of up to 64 GPUs.
        batch_tokens=1_024_000,
        train_steps=100_000,  # not mentioned
    )


@hparams_sets.register("moe_32", parent="moe")
def moe_32(parent: RecurrentMoeHParams) -> RecurrentMoeHParams:
    """The smallest of appendix E: 32 experts, not hierarchical there either."""
    return RecurrentMoeHParams.like(parent, num_experts=32)


@hparams_sets.register("moe_tiny", parent="gnmt_tiny")
def moe_tiny(parent: RecurrentHParams) -> RecurrentMoeHParams:
    """`gnmt_tiny` with 8 experts between its layers."""
    return RecurrentMoeHParams.like(
        parent, model="recurrent_moe", expert_filter_size=256, **_EIGHT_EXPERTS
    )


@hparams_sets.register("moe_small", parent="gnmt_small")
def moe_small(parent: RecurrentHParams) -> RecurrentMoeHParams:
    """`gnmt_small` with 8 experts below its top and above its bottom layer."""
    return RecurrentMoeHParams.like(
        parent, model="recurrent_moe", expert_filter_size=128, **_EIGHT_EXPERTS
    )
