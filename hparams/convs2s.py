"""ConvS2S: convolutional sequence to sequence learning (arXiv 1705.03122)."""

import dataclasses
import re
from typing import Any, NamedTuple

from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.io.fields import Constraint, fraction, setting
from t2t_repro.registry import hparams_sets, models

# Bounds far above any real model, as those of hparam.py.
_MAX_LAYERS, _MAX_CHANNELS, _MAX_WIDTH = 2_000, 1 << 17, 1 << 10
_GROUP = re.compile(r"(\d{1,9})x(\d{1,9})(?:\*(\d{1,9}))?", re.ASCII)


class Convolution(NamedTuple):
    """Size of one layer's convolution."""

    channels: int  # after the gated linear unit
    width: int  # of the kernel


def _groups(text: str) -> list[tuple[int, ...]]:
    """Return channels, width and layers of each group; (): it is wrong."""
    matches = [_GROUP.fullmatch(item) for item in text.split("+")]
    return [
        tuple(map(int, match.groups(default="1"))) if match else ()
        for match in matches
    ]


def _is_valid(text: str) -> bool:
    groups = _groups(text)
    return (
        all(groups)
        and all(
            1 <= channels <= _MAX_CHANNELS and 1 <= width <= _MAX_WIDTH
            for channels, width, _ in groups
        )
        and all(layers for *_, layers in groups)
        and sum(layers for *_, layers in groups) <= _MAX_LAYERS
    )


def _parse(text: str) -> list[Convolution]:
    """Return the layers of "512x3*10+768x3*3", in their order."""
    return [
        Convolution(channels, width)
        for channels, width, layers in _groups(text)
        for _ in range(layers)
    ]


_CONVOLUTIONS = Constraint(
    "CHANNELSxWIDTH*LAYERS, joined by '+', such as 512x3*10+2048x1*2, with at "
    f"most {_MAX_CHANNELS:,} channels, kernels of at most {_MAX_WIDTH:,} "
    f"positions, and {_MAX_LAYERS:,} layers",
    _is_valid,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvS2SHParams(HParams):
    """Settings of ConvS2S.

    hidden_size is the width of embeddings, of the encoder's output and of the
    decoder's output. Inner layers have the channels of their convolutions.
    """

    encoder_convolutions: str = setting(
        _CONVOLUTIONS,
        help="Layers of the encoder as CHANNELSxWIDTH*LAYERS, joined by +: "
        "512x3*10+768x3*3+2048x1*2.",
    )
    decoder_convolutions: str = setting(
        _CONVOLUTIONS,
        help="Layers of the decoder, each with attention, as for the encoder.",
    )
    dropout: float = setting(
        fraction(),
        help="Dropout of embeddings, of the inputs of convolutions and of the "
        "decoder's output.",
    )

    @property
    def encoder_layers(self) -> list[Convolution]:
        """Convolution of each layer of the encoder."""
        return _parse(self.encoder_convolutions)

    @property
    def decoder_layers(self) -> list[Convolution]:
        """Convolution of each layer of the decoder."""
        return _parse(self.decoder_convolutions)


models.declare("convs2s", "t2t_repro.models.convs2s.ConvS2S", ConvS2SHParams)


def _decay(constant_steps: int, epoch_steps: int) -> str:
    """Return arguments of a schedule: 0.25, then a tenth of it each epoch.

    Section 4.2: 0.25 until the validation perplexity stops improving, then a
    tenth after each epoch until the rate is below 1e-4, which are 3 epochs.
    Here a schedule is a function of the step: constant_steps must be chosen.
    """
    ends = [constant_steps + epoch_steps * i for i in range(3)]
    return (
        f"boundaries={'/'.join(map(str, ends))}:"
        "values=0.25/0.025/0.0025/0.00025"
    )


@hparams_sets.register("convs2s", parent="base")
def convs2s(parent: TransformerHParams) -> ConvS2SHParams:
    """ConvS2S of Gehring et al. for en-de: 15 + 15 layers."""
    # Section 5.1. The authors' fairseq (fconv_wmt_en_de) has other widths:
    # 512x3*9+1024x3*4+2048x1*2, embeddings of 768, and 512 before the softmax.
    layers = "512x3*10+768x3*3+2048x1*2"
    return ConvS2SHParams.like(
        parent,
        model="convs2s",
        hidden_size=512,  # section 4.2
        encoder_convolutions=layers,
        decoder_convolutions=layers,
        dropout=0.2,  # fairseq's README; the paper does not say
        label_smoothing=0.0,  # section 5.1: likelihood of tokens
        optimizer="sgd",  # section 4.2: Nesterov's accelerated gradient
        optimizer_arguments="momentum=0.99:nesterov=true",  # section 4.2
        clip_grad_norm=0.1,  # section 4.2
        learning_rate_constant=0.25,  # section 4.2
        learning_rate_schedule="piecewise_constant_decay",
        # 50 epochs (fairseq's --force-anneal) of 4.5 M pairs in batches of 48.
        learning_rate_schedule_arguments=_decay(50 * 93_750, 93_750),
        # 48 sentences (section 5.1), of about 30 subwords with EOS.
        batch_tokens=1_440,
        train_steps=53 * 93_750,
        save_checkpoints_steps=10_000,
        num_averaged_checkpoints=1,  # the paper does not average
    )


@hparams_sets.register("convs2s_iwslt", parent="convs2s")
def convs2s_iwslt(parent: ConvS2SHParams) -> ConvS2SHParams:
    """ConvS2S with 4 + 3 layers, 256 wide, for about 160,000 pairs."""
    # fairseq's fconv_iwslt_de_en, and its README for IWSLT14.
    return dataclasses.replace(
        parent,
        hidden_size=256,
        encoder_convolutions="256x3*4",
        decoder_convolutions="256x3*3",
        label_smoothing=0.1,
        # 200 epochs (--force-anneal) of about 1,250 steps: 160,000 pairs, of
        # about 31 subwords with padding.
        learning_rate_schedule_arguments=_decay(200 * 1_250, 1_250),
        batch_tokens=4_000,  # --max-tokens
        batch_unit="slots",
        train_steps=203 * 1_250,
        save_checkpoints_steps=1_250,
    )


def _nesterov(parent: TransformerHParams, **changes: Any) -> ConvS2SHParams:
    """Return settings of ConvS2S that train with the paper's optimizer.

    The rate is constant: averaged checkpoints take the place of its decay.
    """
    return ConvS2SHParams.like(
        parent,
        model="convs2s",
        optimizer="sgd",  # section 4.2
        optimizer_arguments="momentum=0.99:nesterov=true",
        clip_grad_norm=0.1,
        learning_rate_schedule="constant",
        learning_rate_constant=0.25,
        batching="bucketed",  # packed rows are not offered
        **changes,
    )


@hparams_sets.register("convs2s_tiny", parent="tiny")
def convs2s_tiny(parent: TransformerHParams) -> ConvS2SHParams:
    """ConvS2S with 3 + 3 layers, 128 wide: learns number words on a CPU."""
    return _nesterov(
        parent,
        # As many parameters as tiny's Transformer: 973,312 of 988,160 with its
        # vocabulary of 512.
        encoder_convolutions="128x3*3",
        decoder_convolutions="128x3*3",
        dropout=0.1,  # that of tiny's Transformer
    )


@hparams_sets.register("convs2s_small", parent="small")
def convs2s_small(parent: TransformerHParams) -> ConvS2SHParams:
    """ConvS2S with 6 + 4 layers, 128 wide: about 30,000 pairs on a CPU."""
    return _nesterov(
        parent,
        # As many FLOPs as small's Transformer: 74 million of 79 for a pair of
        # 15 subwords each and V = 10,000. Section 5.6: depth helps the encoder
        # more than the decoder.
        encoder_convolutions="128x3*6",
        decoder_convolutions="128x3*4",
        dropout=0.2,  # that of convs2s_iwslt
    )
