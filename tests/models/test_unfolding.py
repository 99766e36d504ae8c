"""Tests of the columns that decoders of ByteNet and Neural GPU read."""

import math
import types
from fractions import Fraction

import numpy as np
import pytest
from keras import ops

from t2t_repro.models import columns


@pytest.mark.parametrize("ratio", [0.001, 0.7, 1.0, 1.2, 1.333, 2.0])
def test_column_counts_are_exact_in_python_and_in_tensors(ratio):
    """1.2 * 5 is 6.0000002 in float32."""
    lengths = range(300)
    hparams = types.SimpleNamespace(target_ratio=ratio, target_offset=3)
    thousandths = Fraction(round(ratio * 1000), 1000)
    expected = [
        max(length, math.ceil(thousandths * length) + 3) for length in lengths
    ]
    assert expected == [
        columns.column_counts(length, hparams) for length in lengths
    ]
    tensor = ops.convert_to_tensor(list(lengths), "int32")
    counts = columns.column_counts(tensor, hparams)
    assert np.asarray(counts).tolist() == expected
