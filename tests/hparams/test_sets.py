"""Registered sets: their values, and settings that came later."""

import dataclasses
import json
import pathlib

import pytest

from t2t_repro import hparam, registry
from t2t_repro.hparams import transformer
from t2t_repro.io import fields
from t2t_repro.models import building
from t2t_repro.registry import build_hparams as build
from t2t_repro.runs import run_json

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


OF_A_RUN = pathlib.Path(__file__).parents[1] / "fixtures" / "run" / "run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Later(transformer.TransformerHParams):
    """The Transformer's settings with one more, which is off by default."""

    gate_temperature: float = fields.setting(fields.at_least(0), default=0.0)


@pytest.fixture
def later(monkeypatch):
    """The Transformer, registered with one more setting."""
    entries = registry.models._entries
    monkeypatch.setitem(
        entries,
        "transformer",
        dataclasses.replace(entries["transformer"], hparams=Later),
    )


def test_later_setting_has_its_default_in_a_stored_run(later):
    settings = json.loads((OF_A_RUN / run_json.RUN).read_text())
    hparams = run_json.hparams_of(settings["hparams"])
    assert isinstance(hparams, Later) and hparams.gate_temperature == 0.0
    same = dataclasses.asdict(hparams)
    assert run_json.with_defaults(settings)["hparams"] == same
    run_json.refuse_differences(OF_A_RUN, settings, {"hparams": same}, "")
    other = same | {"gate_temperature": 1.0}
    with pytest.raises(Exception, match="^gate_temperature: 0.0 -> 1"):
        run_json.refuse_differences(OF_A_RUN, settings, {"hparams": other}, "")
