"""ByteNet (Kalchbrenner et al. 2016, arXiv 1610.10099, version 2)."""

import dataclasses

from t2t_repro.hparam import (
    MAX_LAYERS,
    MULTIPLE_OF_THOUSANDTH,
    ODD,
    HParams,
)
from t2t_repro.io.fields import Constraint, above, at_least, fraction, setting
from t2t_repro.registry import hparams_sets, models

_POWER_OF_TWO = Constraint(
    "a power of two", lambda value: value & (value - 1) == 0
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnsHParams(HParams):
    """Settings of models that encode a source to a * length + b columns."""

    target_ratio: float = setting(
        above(0),
        MULTIPLE_OF_THOUSANDTH,
        help="a of the columns that encode a source, a * source length + b.",
    )
    target_offset: int = setting(at_least(0), help="b of these columns.")
    layer_prepostprocess_dropout: float = setting(
        fraction(),
        help="Dropout of the embeddings, and of ByteNet's blocks or the states "
        "that the Neural GPU's softmax reads.",
    )
    shared_embedding_and_softmax_weights: bool = setting(
        help="Use one matrix for the embeddings of inputs and targets and for "
        "the softmax."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteNetHParams(ColumnsHParams):
    """Settings of ByteNet. `hidden_size` is the paper's 2d."""

    kernel_width: int = setting(
        at_least(1),
        ODD,
        help="Width k of the dilated convolutions.",
    )
    max_dilation: int = setting(
        at_least(1),
        _POWER_OF_TWO,
        help="Largest dilation of a set of blocks, which has one block for "
        "each of 1, 2, 4, … up to this.",
    )
    num_block_repeat: int = setting(
        at_least(1),
        MAX_LAYERS,
        help="Sets of blocks in the encoder, and in the decoder.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(
            "hidden_size",
            self.hidden_size % 2 == 0,
            "even: the convolutions are half as wide",
        )

    @property
    def dilations(self) -> list[int]:
        """Dilation of each block."""
        powers = range(self.max_dilation.bit_length())
        return [2**i for i in powers] * self.num_block_repeat


models.declare(
    "bytenet",
    "t2t_repro.models.bytenet.ByteNet",
    ByteNetHParams,
)


@hparams_sets.register("bytenet", parent="base")
def bytenet(parent: HParams) -> ByteNetHParams:
    """ByteNet for characters, en-de: 30 + 30 blocks, 1,600 and 800 wide."""
    # Sections are those of the ByteNet paper. docs/rivals.md states which
    # values could be verified.
    return ByteNetHParams.like(
        parent,
        model="bytenet",
        hidden_size=1600,  # section 6: d = 800; section 3.6: 2d outside
        kernel_width=3,  # section 6, of encoder and decoder
        max_dilation=16,  # section 6: sets of 1, 2, 4, 8, 16
        num_block_repeat=6,  # section 6: 30 blocks, in sets of five
        target_ratio=1.2,  # section 3.2, for English to German
        target_offset=0,  # section 3.2
        layer_prepostprocess_dropout=0.0,  # section 6 names none
        # Section 6: 323 German and 296 English characters.
        shared_embedding_and_softmax_weights=False,
        label_smoothing=0.0,  # section 6 names none
        optimizer="adam",  # section 6
        # Section 6 states the learning rate alone. The rest are the defaults
        # of Kingma and Ba 2015.
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
        learning_rate_schedule="constant",
        learning_rate_constant=0.0003,  # section 6
        batching="bucketed",  # section 6: by the lengths of both sides
        max_length=512,  # characters; the paper does not say
        # The paper states neither batches nor steps: these are the base
        # model's, of characters.
        batch_tokens=25_000,
        train_steps=100_000,
    )


@hparams_sets.register("bytenet_tiny", parent="tiny")
def bytenet_tiny(parent: HParams) -> ByteNetHParams:
    """ByteNet, 2 x 4 + 2 x 4 blocks: number words on a laptop's CPU."""
    return ByteNetHParams.like(
        parent,
        model="bytenet",
        batching="bucketed",
        hidden_size=128,
        kernel_width=3,
        max_dilation=8,  # 2 sets see 2 * 30 positions; most pairs are shorter
        num_block_repeat=2,
        target_ratio=1.2,
        target_offset=0,
    )


@hparams_sets.register("bytenet_small", parent="small")
def bytenet_small(parent: HParams) -> ByteNetHParams:
    """ByteNet, 128 wide, 10 + 10 blocks: about 30,000 pairs on a CPU."""
    return ByteNetHParams.like(
        parent,
        model="bytenet",
        batching="bucketed",
        kernel_width=3,
        max_dilation=16,  # as in the paper
        num_block_repeat=2,
        target_ratio=1.2,
        target_offset=0,
    )
