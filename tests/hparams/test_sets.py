"""Registered sets and their values."""

import dataclasses
import json
import pathlib

import pytest

from t2t_repro import hparam, registry
from t2t_repro.models import building
from t2t_repro.registry import build_hparams as build

FILE = pathlib.Path(__file__).parents[1] / "golden" / "hparams_sets.json"
STORED = json.loads(FILE.read_text())


@pytest.mark.parametrize("name", STORED)
def test_set_differs_from_its_parent_in_the_stored_values(name):
    parent = registry.hparams_sets[name].parent
    old, new = (
        dataclasses.asdict(build(each)) if each else {}
        for each in (parent, name)
    )
    actual = {"parent": parent}
    actual |= dict(item for item in new.items() if item not in old.items())
    print(f"{json.dumps(name)}: {json.dumps(actual)}")
    assert actual == STORED[name]


def test_every_set_is_stored_built_and_listed():
    listed = registry.summary()
    assert {entry.name for entry in registry.hparams_sets} == STORED.keys()
    for entry in registry.hparams_sets:
        assert isinstance(build(entry.name), hparam.HParams)
        assert f"\n  {entry.name:24} {entry.summary}\n" in listed
        assert entry.summary.endswith((".", ")"))


@pytest.mark.parametrize("name", ["gnmt_small", "deep_att_small"])
def test_small_sets_are_as_large_as_the_transformer(name):
    """`small` has 2.6 million parameters at 10,000 subwords."""
    model = building.build_abstract(build(name), 10_000)
    assert 2.3e6 < model.count_params() < 2.9e6
