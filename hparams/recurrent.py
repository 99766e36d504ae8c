"""Recurrent models: GNMT (arXiv 1609.08144), T2T's LSTM, Deep-Att (1606.04199).

GNMT's training settings (section 8.3) were compared with a summary of the
paper at shortscience.org, T2T's with models/lstm.py and common_hparams.py.
"""

import dataclasses
from typing import Any

from t2t_repro.hparam import MAX_INNER_WIDTH, MAX_LAYERS, HParams
from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.io.fields import at_least, fraction, one_of, setting
from t2t_repro.registry import hparams_sets, models


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionalHParams(HParams):
    """Settings that recurrent models with attention share."""

    cell: str = setting(
        one_of("lstm", "gru"), help="Recurrent cell of every layer."
    )
    num_encoder_layers: int = setting(
        at_least(1), MAX_LAYERS, help="Layers of the encoder."
    )
    num_decoder_layers: int = setting(
        at_least(1), MAX_LAYERS, help="Layers of the decoder."
    )
    attention_type: str = setting(
        one_of("additive", "dot_product", "dot_product_unscaled"),
        help="How a query and a key become a logit.",
    )
    attention_size: int = setting(
        at_least(0),
        MAX_INNER_WIDTH,
        help="Width of the projections of queries and keys; 0: hidden_size.",
    )
    shared_embedding_and_softmax_weights: bool = setting(
        help="Use one matrix for the embeddings of inputs and targets and for "
        "the softmax."
    )
    dropout: float = setting(
        fraction(), help="Dropout of the input of recurrent layers."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentHParams(AttentionalHParams):
    """Settings of GNMT and its variants."""

    num_bidirectional_layers: int = setting(
        at_least(0),
        MAX_LAYERS,
        help="How many of the encoder's bottom layers run in both directions.",
    )
    attention_hops: int = setting(
        at_least(1),
        default=1,
        help="Attention hops in a step; the query of each is the previous "
        "query plus its context.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            "num_bidirectional_layers",
            self.num_bidirectional_layers <= self.num_encoder_layers,
            f"at most num_encoder_layers ({self.num_encoder_layers})",
        )
        self.require(
            "attention_hops",
            self.attention_hops == 1
            or self.num_bidirectional_layers < self.num_encoder_layers,
            "1 where all layers of the encoder are bidirectional: queries and "
            "contexts have the same width only if the top one is not",
        )


models.declare(
    "recurrent", "t2t_repro.models.recurrent.Recurrent", RecurrentHParams
)


@hparams_sets.register("gnmt", parent="base")
def gnmt(parent: TransformerHParams) -> RecurrentHParams:
    """GNMT: 8 + 8 LSTM layers, 1024 wide, with wordpieces of WMT14."""
    return RecurrentHParams.like(
        parent,
        model="recurrent",
        cell="lstm",
        hidden_size=1024,  # section 8.3
        num_encoder_layers=8,  # section 3, figure 1
        num_bidirectional_layers=1,  # section 3.2: the bottom layer
        num_decoder_layers=8,  # section 3, figure 1
        attention_type="additive",  # section 3: a network with a hidden layer
        attention_size=1024,  # section 8.3
        shared_embedding_and_softmax_weights=False,  # not mentioned
        dropout=0.2,  # section 8.3, en-fr; 0.3 for en-de
        label_smoothing=0.0,  # not mentioned
        # Section 8.3: Adam at 0.0002 for 60,000 steps, then SGD at 0.5, halved
        # every 200,000 steps after 1.2 million. One run has one optimizer here:
        # these are the values of the first 60,000 steps.
        optimizer_adam_beta1=0.9,  # not mentioned: Adam's defaults
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
        learning_rate_schedule="constant",
        learning_rate_constant=0.0002,
        clip_grad_norm=5.0,  # section 8.3
        # Section 8.3: 128 pairs, at an assumed 32 subwords, for each of 12
        # replicas, which the paper updates asynchronously.
        batch_tokens=4_096,
        train_steps=60_000,
        save_checkpoints_steps=1_500,  # as base
        num_averaged_checkpoints=1,  # not mentioned
    )


@hparams_sets.register("lstm_attention", parent="gnmt")
def lstm_attention(parent: RecurrentHParams) -> RecurrentHParams:
    """The sizes and the training of T2T's lstm_attention (models/lstm.py)."""
    return dataclasses.replace(
        parent,
        hidden_size=128,  # lstm_seq2seq
        num_encoder_layers=2,  # lstm_seq2seq
        # T2T reverses the inputs instead, and hands its final states over to
        # the decoder, whose top layer attends.
        num_bidirectional_layers=0,
        num_decoder_layers=2,  # lstm_seq2seq
        attention_size=128,  # hidden_size, in lstm_attention_decoder
        # The rest is of T2T's basic_params1, unless lstm_seq2seq changes it.
        dropout=0.2,
        label_smoothing=0.1,
        optimizer_adam_beta1=0.85,
        optimizer_adam_beta2=0.997,
        optimizer_adam_epsilon=1e-6,
        # T2T: 0.002, its factor for Adam, * learning_rate 0.1, after an
        # exponential warm-up, which is linear here.
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=0.0002,
        learning_rate_warmup_steps=100,
        clip_grad_norm=2.0,
        batch_tokens=1_024,  # lstm_seq2seq: for one GPU
        batch_unit="slots",
    )


def _small(parent: TransformerHParams, **changes: Any) -> RecurrentHParams:
    return RecurrentHParams.like(
        parent,
        model="recurrent",
        cell="lstm",
        num_bidirectional_layers=1,  # as in gnmt
        attention_type="additive",
        attention_size=0,
        shared_embedding_and_softmax_weights=True,  # as in tiny and small
        batching="bucketed",  # a row has one sentence
        clip_grad_norm=5.0,  # as in gnmt
        **changes,
    )


@hparams_sets.register("gnmt_tiny", parent="tiny")
def gnmt_tiny(parent: TransformerHParams) -> RecurrentHParams:
    """Two LSTM layers, 128 wide: learns number words on a laptop's CPU."""
    return _small(
        parent,
        num_encoder_layers=2,
        num_decoder_layers=2,
        dropout=0.1,  # as in tiny
    )


@hparams_sets.register("gru_tiny", parent="gnmt_tiny")
def gru_tiny(parent: RecurrentHParams) -> RecurrentHParams:
    """`gnmt_tiny` with GRUs, which have three gates instead of four."""
    return dataclasses.replace(parent, cell="gru")


@hparams_sets.register("gnmt_small", parent="small")
def gnmt_small(parent: TransformerHParams) -> RecurrentHParams:
    """Three + three LSTM layers, 128 wide: about 30,000 pairs on a CPU."""
    # Three layers are the fewest with a residual connection. At 10,000
    # subwords the model has 2.5 million parameters, as small has.
    return _small(
        parent,
        num_encoder_layers=3,
        num_decoder_layers=3,
        dropout=0.2,  # as in gnmt
    )


# Deep-Att (Zhou et al. 2016, arXiv 1606.04199).
#
# The numbers of layers, 9 and 7, and the width are the paper's. Its dropout is
# cited from memory, and its training settings could not be read: those of GNMT
# take their place.


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeepAttHParams(AttentionalHParams):
    """Settings of Deep-Att; num_encoder_layers counts one column."""


models.declare("deep_att", "t2t_repro.models.recurrent.DeepAtt", DeepAttHParams)


@hparams_sets.register("deep_att", parent="gnmt")
def deep_att(parent: RecurrentHParams) -> DeepAttHParams:
    """Deep-Att: 9 + 7 LSTM layers, 512 wide, with the training of `gnmt`."""
    return DeepAttHParams.like(
        parent,
        model="deep_att",
        hidden_size=512,
        num_encoder_layers=9,  # of each column
        num_decoder_layers=7,
        attention_size=0,  # not known: as wide as the layers
        dropout=0.1,
    )


@hparams_sets.register("deep_att_tiny", parent="gnmt_tiny")
def deep_att_tiny(parent: RecurrentHParams) -> DeepAttHParams:
    """Two columns of 2 layers, and 2 above, 96 wide: learns number words."""
    # As fast as gnmt_tiny: two columns have twice the recurrences of a layer.
    return DeepAttHParams.like(parent, model="deep_att", hidden_size=96)


@hparams_sets.register("deep_att_small", parent="gnmt_small")
def deep_att_small(parent: RecurrentHParams) -> DeepAttHParams:
    """Two columns of 3 layers, and 3 above, 96 wide: about 30,000 pairs."""
    # At 10,000 subwords the model has about 2.3 million parameters.
    return DeepAttHParams.like(parent, model="deep_att", hidden_size=96)
