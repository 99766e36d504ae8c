"""Reach of encoders, measured by gradients, and their path lengths."""

import pytest

from scripts.paper import model_kinds, table1
from t2t_repro import registry

WIDTH = 16


@pytest.fixture(autouse=True, scope="module")
def _definitions():
    registry.load_definitions()


@pytest.mark.parametrize(
    ("name", "layers", "expected"),
    [
        ("transformer", 1, 20),  # every position
        ("recurrent", 1, 20),  # both directions
        ("convs2s", 1, 1),  # a kernel of 3
        ("convs2s", 3, 3),
    ],
)
def test_encoder_sees_as_far_as_its_layers_reach(name, layers, expected):
    model = model_kinds.build(model_kinds.KINDS[name], layers, WIDTH)
    assert min(model_kinds.reach(model, 20), 20) == expected


def test_path_length_is_number_of_layers_to_a_distance(monkeypatch):
    monkeypatch.setattr(model_kinds, "MAX_LAYERS", 2)
    kind = model_kinds.KINDS["convs2s"]
    paths = table1.measure_paths(kind, [1, 2, 4])
    assert paths == {1: 1, 2: 2, 4: None}


def test_exponent_is_fitted_from_a_length_on():
    measured = [{"n": n, "encode": 3e-6 * n**2} for n in (64, 128, 256)]
    measured.insert(0, {"n": 8, "encode": 1.0})
    assert table1.exponent(measured, 64) == pytest.approx(2)
