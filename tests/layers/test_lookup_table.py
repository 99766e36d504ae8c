"""Tests of the table of vectors of ConvS2S."""

import numpy as np
import pytest

from t2t_repro.layers import embedding

IDS = np.array([[3, 0, 10], [5, 5, 1]], np.int32)


def test_lookup_table_passes_layer_checks(run_layer_test, dtype):
    layer = run_layer_test(
        embedding.LookupTable,
        {"rows": 11, "hidden_size": 4},
        (IDS,),
        (2, 3, 4),
        dtype,
    )
    assert [weight.path for weight in layer.weights] == ["tested/table"]


def test_vectors_are_rows_and_last_row_beyond_the_table():
    layer = embedding.LookupTable(11, 4)
    layer(IDS)
    table = layer.table.numpy()
    np.testing.assert_array_equal(layer(IDS), table[IDS])
    np.testing.assert_array_equal(
        layer(IDS + 9), table[np.minimum(IDS + 9, 10)]
    )
    np.testing.assert_array_equal(layer(np.int32(7)), table[7])


def test_initial_deviation_is_one_tenth():
    layer = embedding.LookupTable(2_000, 64)
    layer(IDS)
    table = layer.table.numpy()
    assert abs(table.mean()) < 5 * 0.1 / 128_000**0.5
    assert table.std() == pytest.approx(0.1, rel=0.02)
