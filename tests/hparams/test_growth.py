"""Settings that are added later, and stored runs without them."""

import dataclasses
import json
import pathlib

import pytest

from t2t_repro import hparam, registry
from t2t_repro.hparams import transformer
from t2t_repro.io import fields
from t2t_repro.runs import run_json

STORED = pathlib.Path(__file__).parents[1] / "fixtures" / "run" / "run"


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


def test_stored_run_has_default_of_later_setting(later):
    settings = json.loads((STORED / run_json.RUN).read_text())
    hparams = run_json.hparams_of(settings["hparams"])
    assert isinstance(hparams, Later) and hparams.gate_temperature == 0.0
    filled = run_json.with_defaults(settings)["hparams"]
    assert filled == dataclasses.asdict(hparams)


def test_other_value_of_later_setting_differs_from_stored_run(later):
    settings = json.loads((STORED / run_json.RUN).read_text())
    same = dataclasses.asdict(run_json.hparams_of(settings["hparams"]))
    run_json.refuse_differences(STORED, settings, {"hparams": same}, "")
    other = same | {"gate_temperature": 1.0}
    with pytest.raises(Exception, match="^gate_temperature: 0.0 -> 1"):
        run_json.refuse_differences(STORED, settings, {"hparams": other}, "")


def test_fields_that_old_runs_lack_have_defaults():
    stored = json.loads((STORED / run_json.RUN).read_text())["hparams"]
    for cls in (hparam.HParams, transformer.TransformerHParams):
        for field in dataclasses.fields(cls):
            assert field.name in stored or (
                field.default is not dataclasses.MISSING
            ), field.name
