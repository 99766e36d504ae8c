"""Deep-Att (Zhou et al. 2016, arXiv 1606.04199).

The numbers of layers, 9 and 7, and the width are the paper's. Its dropout is
cited from memory, and its training settings could not be read: those of GNMT
take their place.
"""

import dataclasses

from t2t_repro.hparams.recurrent import AttentionalHParams, RecurrentHParams
from t2t_repro.registry import hparams_sets, models


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeepAttHParams(AttentionalHParams):
    """Settings of Deep-Att; num_encoder_layers counts one column."""


models.declare(
    "deep_att",
    "t2t_repro.models.deep_att.DeepAtt",
    DeepAttHParams,
    "Deep LSTMs with fast-forward connections and attention.",
)


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
