"""Columns for outputs of unknown length: ByteNet and Neural GPU.

Section 3.2 of Kalchbrenner et al. 2016 (arXiv 1610.10099): a source of |s|
subwords is encoded to a * |s| + b columns, an estimate of the target's length.
Position t of the target reads column t.

Here `hparams` have a as `target_ratio` and b as `target_offset`.
"""

from typing import Any

from keras import ops

from t2t_repro.runtime.types import Tensor


def column_counts(lengths: Tensor, hparams: Any) -> Tensor:
    """Return the columns of sources of `lengths` subwords, a |s| + b.

    They are rounded up, in integers, so that a length has the same number of
    columns in Python and in any dtype. The ratio counts in thousandths. There
    are at least |s|, in which the source is.
    """
    thousandths = lengths * round(1000 * hparams.target_ratio)
    counts = (thousandths + 999) // 1000 + hparams.target_offset
    larger = max if isinstance(counts, int) else ops.maximum
    return larger(counts, lengths)


def visible_columns(inputs: Tensor, hparams: Any) -> Tensor:
    """Return a mask [B, columns] of the columns of each of inputs [B, L]."""
    lengths = ops.sum(ops.cast(inputs > 0, "int32"), axis=1)
    columns = ops.arange(column_counts(ops.shape(inputs)[1], hparams))
    return columns < column_counts(lengths, hparams)[:, None]


def pad_columns(x: Tensor, length: Tensor) -> Tensor:
    """Return the columns of x [B, L, …] up to `length`, zeros after L."""
    missing = ops.maximum(length - ops.shape(x)[1], 0)
    pads = [(0, 0)] * (len(x.shape) - 2)
    return ops.pad(x, [(0, 0), (0, missing), *pads])[:, :length]


def take_column(columns: Tensor, step: Tensor) -> Tensor:
    """Return column `step` of columns [B, L, …], zeros from L on."""
    last = ops.shape(columns)[1] - 1
    column = ops.take(columns, ops.minimum(step, last), axis=1)
    return column * ops.cast(step <= last, column.dtype)
