"""The Extended Neural GPU (Kaiser and Bengio 2016, arXiv 1610.08613)."""

import dataclasses

from t2t_repro.hparam import MAX_LAYERS, MAX_WIDTH, ODD, HParams
from t2t_repro.hparams.bytenet import ColumnsHParams
from t2t_repro.io.fields import at_least, setting
from t2t_repro.registry import hparams_sets, models


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuralGpuHParams(ColumnsHParams):
    """Settings of the Extended Neural GPU. `hidden_size` is the paper's m."""

    image_width: int = setting(
        at_least(1), MAX_WIDTH, help="Rows w of the mental image."
    )
    kernel_length: int = setting(
        at_least(1), ODD, help="Columns that a convolution sees."
    )
    kernel_width: int = setting(
        at_least(1), ODD, help="Rows that a convolution sees."
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
        self._require(
            "kernel_width",
            self.kernel_width <= 2 * self.image_width - 1,
            f"at most 2 * image_width - 1 ({2 * self.image_width - 1}): other "
            "weights would see no row",
        )


models.declare(
    "neural_gpu",
    "t2t_repro.models.neural_gpu.NeuralGpu",
    NeuralGpuHParams,
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


@hparams_sets.register("neural_gpu_tiny", parent="tiny")
def neural_gpu_tiny(parent: HParams) -> NeuralGpuHParams:
    """Extended Neural GPU, 64 maps in one row: number words on a CPU."""
    return NeuralGpuHParams.like(
        parent,
        model="neural_gpu",
        batching="bucketed",
        hidden_size=64,
        image_width=1,  # a ninth of the cost of 3 rows, with kernels of 3 x 3
        kernel_length=3,
        kernel_width=1,
        num_hidden_layers=2,
        # A step sees 4 columns on both sides, 8 steps see all of every input.
        encoder_steps=8,
        target_ratio=1.2,
        target_offset=2,  # 1 of 2,500 targets is longer
        clip_grad_norm=1.0,  # dozens of recurrent steps: gradients may explode
        batch_tokens=1_024,  # a step is slow: half the tokens of `tiny`
        train_steps=1_000,
    )


@hparams_sets.register("neural_gpu_small", parent="small")
def neural_gpu_small(parent: HParams) -> NeuralGpuHParams:
    """Extended Neural GPU, 128 maps in one row: slow, even on 30,000 pairs."""
    return NeuralGpuHParams.like(
        parent,
        model="neural_gpu",
        batching="bucketed",
        image_width=1,  # as in neural_gpu_tiny
        kernel_length=3,
        kernel_width=1,
        num_hidden_layers=2,
        target_ratio=1.2,
        target_offset=8,
        clip_grad_norm=1.0,  # as in neural_gpu_tiny
        max_length=64,  # Multi30k has few longer sentences
    )
