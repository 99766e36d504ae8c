"""References: the choice among them, and their recording."""

import types

import pytest

from scripts.paper import reference_curves
from t2t_repro import errors, registry


def reference(precision="float32", **hparams):
    registry.load_definitions()
    settings = vars(registry.build_hparams("tiny"))
    return {
        "problem": "number_words_ende",
        "problem_arguments": {"vocab_size": 512},
        "hparams": settings | hparams,
        "mixed_precision": precision,
    }


def run_settings(session, **hparams):
    """Return run.json of a run whose last session had this hardware line."""
    settings = reference(**hparams)
    del settings["mixed_precision"]
    return settings | {"hardware": ["1 replica on one CPU, float32", session]}


@pytest.mark.parametrize(
    ("session", "precision"),
    [
        ("1 replica on one CPU, float32, XLA off", "float32"),
        ("1 replica on one CPU, mixed_bfloat16, XLA off", "bfloat16"),
        ("1 replica on one GPU, mixed_float16, XLA on", "float16"),
    ],
)
def test_precision_is_that_of_the_last_session(session, precision):
    assert reference_curves.precision(run_settings(session)) == precision


def test_run_from_before_hardware_was_stored_is_in_float32():
    settings = run_settings("")
    del settings["hardware"]
    assert reference_curves.precision(settings) == "float32"


def test_nearest_settings_come_before_the_same_precision():
    known = {
        "single": reference(),
        "half": reference("bfloat16"),
        "wide": reference("bfloat16", hidden_size=256),
    }

    def choose(precision, *names):
        return reference_curves.choose(
            run_settings(precision), {name: known[name] for name in names}
        )

    assert choose("mixed_bfloat16", "single", "half", "wide").name == "half"
    assert choose("float32", "single", "half", "wide").name == "single"
    other_precision = choose("mixed_bfloat16", "single", "wide")
    assert other_precision.name == "single"
    assert other_precision.differing == []
    assert choose("float32", "wide").differing == [
        "hidden_size is 128, not 256"
    ]


def test_other_problems_have_no_reference():
    settings = run_settings("float32") | {"problem": "wmt14_ende"}
    assert reference_curves.choose(settings, {"number": reference()}) is None


def test_reference_of_unlike_runs_is_refused(monkeypatch, tmp_path):
    opened = {
        "one": types.SimpleNamespace(
            settings=run_settings("float32"), output_dir="one"
        ),
        "two": types.SimpleNamespace(
            settings=run_settings("float32", batch_tokens=1), output_dir="two"
        ),
    }
    monkeypatch.setattr(reference_curves.Run, "open", opened.get)
    monkeypatch.setattr(reference_curves, "FOLDER", tmp_path)
    with pytest.raises(
        errors.UserError,
        match="two is not one with another seed: batch_tokens is 1, not 2048",
    ):
        reference_curves.record("name", ["one", "two"], "command", "machine")
    assert not list(tmp_path.iterdir())
