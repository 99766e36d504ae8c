"""Values of all hparams sets, as differences from their parents.

tests/golden/hparams_sets.json has the values that were compared with the
papers and with tensor2tensor's models/transformer.py. A line is a set. After an
intended change, replace its line by the one that the test prints.
"""

import dataclasses
import json
import pathlib

import pytest

from t2t_repro import hparam, registry
from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.models import building

FILE = pathlib.Path(__file__).parents[1] / "golden" / "hparams_sets.json"
STORED = json.loads(FILE.read_text())
# Choices of the required fields.
CHOICES = {
    "attention_type": ("dot_product", "dot_product_unscaled", "additive"),
    "pos": (
        *("sinusoids", "sines_then_cosines", "timing", "emb", "none"),
        *("rotary", "buckets"),
    ),
    "layer_preprocess_sequence": ("none", "n"),
    "layer_postprocess_sequence": ("dan", "da"),
    "batching": ("bucketed", "packed"),
    "batch_unit": ("real_tokens", "slots"),
}
WITHOUT_SET = {"sines_then_cosines", "rotary", "buckets"}


@pytest.mark.parametrize("name", STORED)
def test_set_differs_from_its_parent_in_the_stored_values(differences, name):
    parent = registry.hparams_sets[name].parent
    actual = {"parent": parent, **differences(name, parent)}
    print(f"{json.dumps(name)}: {json.dumps(actual)}")
    assert actual == STORED[name]


def test_every_set_is_stored_built_and_listed(build):
    listed = registry.summary()
    assert {entry.name for entry in registry.hparams_sets} == STORED.keys()
    for entry in registry.hparams_sets:
        assert isinstance(build(entry.name), hparam.HParams)
        assert f"\n  {entry.name:24} {entry.summary}\n" in listed
        assert entry.summary.endswith((".", ")"))


def test_required_fields_have_choices_that_sets_use(build):
    declared = {
        field.name: rule.text
        for field in dataclasses.fields(TransformerHParams)
        for rule in field.metadata.get("constraints", ())
        if field.default is dataclasses.MISSING
        and rule.text.startswith("one of")
    }
    assert declared == {
        name: f"one of {choices}" for name, choices in CHOICES.items()
    }
    sets = [
        values
        for values in map(build, STORED)
        if type(values) is TransformerHParams
    ]
    for name, choices in CHOICES.items():
        used = {getattr(values, name) for values in sets}
        assert used == set(choices) - WITHOUT_SET


@pytest.mark.parametrize("name", ["gnmt_small", "deep_att_small"])
def test_small_sets_are_as_large_as_the_transformer(build, name):
    """`small` has 2.6 million parameters at 10,000 subwords."""
    model = building.build_abstract(build(name), 10_000)
    assert 2.3e6 < model.count_params() < 2.9e6
