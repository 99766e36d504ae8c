"""GNMT with mixtures of experts (arXiv 1701.06538, section 5.3, appendix E)."""

import dataclasses

from t2t_repro.hparams.moe import MixtureHParams
from t2t_repro.hparams.recurrent import RecurrentHParams
from t2t_repro.registry import hparams_sets, models


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentMoeHParams(MixtureHParams, RecurrentHParams):
    """Settings of recurrent models with mixtures of experts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_encoder_layers", "num_decoder_layers"):
            self._require(
                name,
                getattr(self, name) > 1,
                "at least 2: the mixture lies between two layers",
            )
        self._require(
            "num_bidirectional_layers",
            self.num_bidirectional_layers < self.num_encoder_layers,
            f"below num_encoder_layers ({self.num_encoder_layers})",
        )


models.declare(
    "recurrent_moe",
    "t2t_repro.models.moe.RecurrentMoe",
    RecurrentMoeHParams,
    "GNMT with mixtures of experts between its layers.",
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
        parent,
        model="recurrent_moe",
        num_experts=8,  # as in transformer_moe_tiny
        experts_per_token=2,
        expert_filter_size=256,
        importance_loss_weight=0.01,  # appendix E
        load_loss_weight=0.01,
    )


@hparams_sets.register("moe_small", parent="gnmt_small")
def moe_small(parent: RecurrentHParams) -> RecurrentMoeHParams:
    """`gnmt_small` with 8 experts below its top and above its bottom layer."""
    return RecurrentMoeHParams.like(
        parent,
        model="recurrent_moe",
        num_experts=8,  # as in transformer_moe_small
        experts_per_token=2,
        expert_filter_size=128,
        importance_loss_weight=0.01,  # appendix E
        load_loss_weight=0.01,
    )
