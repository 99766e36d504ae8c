"""Attention of one decoder layer of ConvS2S (section 3.3)."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras import ops

from t2t_repro.layers import composite, masks, weight_norm
from t2t_repro.runtime.types import Tensor

# Section 3.4: a sum of two terms of the same variance keeps that variance.
SUM_SCALE = math.sqrt(0.5)


class Source(NamedTuple):
    """Source sentences as the decoder reads them."""

    states: Tensor  # z [B, L, D], the encoder's outputs, compared with queries
    values: Tensor  # (z + e) sqrt(0.5) [B, L, D], with the embeddings e
    real: Tensor  # [B, L] bool, False at padding


class MultiStepAttention(composite.Composite):
    """Attention that is added to the output h […, C] of a convolution.

    Equations 1 and 2, with m the length of the source and the scales of
    section 3.4; g are the embeddings of the previous targets:

        d = (W h + b + g) sqrt(0.5)
        a = softmax(d · z)
        c = sqrt(m) sum_j a_j (z_j + e_j) sqrt(0.5)
        output = (h + U c + b') sqrt(0.5)

    The sum is of m terms, each about 1 / m: m sqrt(1 / m) = sqrt(m) restores
    its variance.
    """

    def __init__(self, channels: int, hidden_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.query = weight_norm.WeightNormDense(
            channels, hidden_size, name="query", dtype=self.dtype_policy
        )
        self.output_projection = weight_norm.WeightNormDense(
            hidden_size,
            channels,
            name="output_projection",
            dtype=self.dtype_policy,
        )

    def call(
        self,
        x: Tensor,
        embedded: Tensor,
        source: Source,
        kernels: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend from x [B, T, C]; T may be beams at one position.

        Args:
            x: outputs of the convolution.
            embedded: g [B, T, D].
            source: what to attend to.
            kernels: as for WeightNormDense.call().

        Returns:
            output [B, T, C], weights [B, T, L] float32.
        """
        states, values, real = source
        query = (self.query(x, kernels) + embedded) * SUM_SCALE
        logits = ops.matmul(query, ops.transpose(states, (0, 2, 1)))
        weights = masks.softmax(logits, real[:, None])
        lengths = ops.sum(ops.cast(real, "float32"), axis=1)
        scaled = weights * ops.sqrt(lengths)[:, None, None]
        context = ops.matmul(ops.cast(scaled, values.dtype), values)
        output = self.output_projection(context, kernels)
        return (x + output) * SUM_SCALE, weights
