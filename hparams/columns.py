"""Models of columns: ByteNet, and the Extended Neural GPU.

Kalchbrenner et al. 2016, arXiv 1610.10099, version 2; Kaiser and Bengio 2016,
arXiv 1610.08613.
"""

import dataclasses
from typing import Any

from t2t_repro.hparam import MAX_LAYERS, MAX_WIDTH, HParams
from t2t_repro.io.fields import Constraint, above, at_least, fraction, setting
from t2t_repro.registry import hparams_sets, models

_ODD = Constraint("odd", lambda value: value % 2 == 1)
_POWER_OF_TWO = Constraint(
    "a power of two", lambda value: value & (value - 1) == 0
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnsHParams(HParams):
    """Settings of models that encode a source to a * length + b columns."""

    target_ratio: float = setting(
        above(0),
        Constraint(
            "a multiple of 0.001", lambda value: value == round(value, 3)
        ),
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
        at_least(1), _ODD, help="Width k of the dilated convolutions."
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
        self.require(
            "hidden_size",
            self.hidden_size % 2 == 0,
            "even: the convolutions are half as wide",
        )

    @property
    def dilations(self) -> list[int]:
        """Dilation of each block."""
        powers = range(self.max_dilation.bit_length())
        return [2**i for i in powers] * self.num_block_repeat


models.declare("bytenet", "t2t_repro.models.columns.ByteNet", ByteNetHParams)


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


def _small_bytenet(parent: HParams, max_dilation: int) -> ByteNetHParams:
    return ByteNetHParams.like(
        parent,
        model="bytenet",
        batching="bucketed",
        kernel_width=3,
        max_dilation=max_dilation,
        num_block_repeat=2,
        target_ratio=1.2,
        target_offset=0,
    )


@hparams_sets.register("bytenet_tiny", parent="tiny")
def bytenet_tiny(parent: HParams) -> ByteNetHParams:
    """ByteNet, 2 x 4 + 2 x 4 blocks: number words on a laptop's CPU."""
    # Two sets see 2 * 30 positions; most pairs are shorter.
    return _small_bytenet(parent, max_dilation=8)


@hparams_sets.register("bytenet_small", parent="small")
def bytenet_small(parent: HParams) -> ByteNetHParams:
    """ByteNet, 128 wide, 10 + 10 blocks: about 30,000 pairs on a CPU."""
    return _small_bytenet(parent, max_dilation=16)  # as in the paper


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuralGpuHParams(ColumnsHParams):
    """Settings of the Extended Neural GPU. `hidden_size` is the paper's m."""

    image_width: int = setting(
        at_least(1), MAX_WIDTH, help="Rows w of the mental image."
    )
    kernel_length: int = setting(
        at_least(1), _ODD, help="Columns that a convolution sees."
    )
    kernel_width: int = setting(
        at_least(1), _ODD, help="Rows that a convolution sees."
    )
    num_hidden_layers: int = setting(
        at_least(1),
        MAX_LAYERS,
        help="Convolutional gated recurrent units of each step.",
    )
    encoder_steps: int = setting(
        at_least(0),
        MAX_LAYERS,
        default=0,
        help="Steps of the encoder; 0: as many as the image has columns.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            "kernel_width",
            self.kernel_width <= 2 * self.image_width - 1,
            f"at most 2 * image_width - 1 ({2 * self.image_width - 1}): other "
            "weights would see no row",
        )


models.declare(
    "neural_gpu", "t2t_repro.models.columns.NeuralGpu", NeuralGpuHParams
)


@hparams_sets.register("neural_gpu", parent="base")
def neural_gpu(parent: HParams) -> NeuralGpuHParams:
    """Extended Neural GPU, 512 maps, 4 rows, 2 units a step."""
    # "Program" is the authors' (tensorflow/models, research/neural_gpu, at
    # 4825173), with its default flags. The paper's own values for translation
    # could not be verified.
    return NeuralGpuHParams.like(
        parent,
        model="neural_gpu",
        hidden_size=512,  # not verified; program, for algorithms: 64
        image_width=4,  # program: height
        kernel_length=3,  # program: kw
        kernel_width=3,  # program: kh
        num_hidden_layers=2,  # program: nconvs
        encoder_steps=0,  # paper and program: n
        # The program's image is as long as the longer side of a bucket; this
        # model must know the length before the target: as ByteNet, en-de.
        target_ratio=1.2,
        target_offset=8,
        layer_prepostprocess_dropout=0.1,  # program: dropout
        shared_embedding_and_softmax_weights=False,  # paper: E, E' and O
        label_smoothing=0.1,  # program: xent_soft
        optimizer_adam_beta1=0.9,  # program: TensorFlow's defaults
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-3,  # program
        clip_grad_norm=4.0,  # program: max_grad_norm
        learning_rate_schedule="constant",
        learning_rate_constant=0.0005,  # program: 0.005 * lr, which decays
        max_length=64,  # memory grows with n (n + T); program: 40
    )


def _small_neural_gpu(parent: HParams, **changes: Any) -> NeuralGpuHParams:
    return NeuralGpuHParams.like(
        parent,
        model="neural_gpu",
        batching="bucketed",
        image_width=1,  # a ninth of the cost of 3 rows, with kernels of 3 x 3
        kernel_length=3,
        kernel_width=1,
        num_hidden_layers=2,
        target_ratio=1.2,
        clip_grad_norm=1.0,  # dozens of recurrent steps: gradients may explode
        **changes,
    )


@hparams_sets.register("neural_gpu_tiny", parent="tiny")
def neural_gpu_tiny(parent: HParams) -> NeuralGpuHParams:
    """Extended Neural GPU, 64 maps in one row: number words on a CPU."""
    return _small_neural_gpu(
        parent,
        hidden_size=64,
        # A step sees 4 columns on both sides, 8 steps see all of every input.
        encoder_steps=8,
        target_offset=2,  # 1 of 2,500 targets is longer
        batch_tokens=1_024,  # a step is slow: half the tokens of `tiny`
        train_steps=1_000,
    )


@hparams_sets.register("neural_gpu_small", parent="small")
def neural_gpu_small(parent: HParams) -> NeuralGpuHParams:
    """Extended Neural GPU, 128 maps in one row: slow, even on 30,000 pairs."""
    # Multi30k has few longer sentences.
    return _small_neural_gpu(parent, target_offset=8, max_length=64)
