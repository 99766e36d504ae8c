"""Names of a batch's arrays, and the arrays of unpacked sentences.

For each side, inputs and targets, a batch has three arrays [rows, row length]:
the ids; the segment ids, which number the sentences of a row from 1 and are 0
at padding; and the position of each subword in its sentence.
"""

from keras import ops

from t2t_repro.data.corpus import SIDES
from t2t_repro.runtime.keras_compat import Tensor
from t2t_repro.text.vocabulary import PAD

ROW_FEATURES = tuple(
    f"{side}{suffix}"
    for side in SIDES
    for suffix in ("", "_segment", "_position")
)
# Counts of a whole batch, by which losses are divided.
DENOMINATORS = ("target_tokens", "source_tokens", "sentences")


def one_sentence_per_row(inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return the ROW_FEATURES of a batch with one sentence per row.

    Args:
        inputs: [B, L] int32, ids with PAD after.
        targets: [B, T] int32, the same.
    """
    features = {}
    for side, ids in zip(SIDES, (inputs, targets), strict=True):
        shape = ops.shape(ids)
        features[side] = ids
        features[f"{side}_segment"] = ops.cast(ids != PAD, "int32")
        features[f"{side}_position"] = ops.broadcast_to(
            ops.arange(shape[1], dtype="int32"), shape
        )
    return features
