"""Known faults of a training: their copies, and their table."""

import math

import pytest

from scripts.paper import training_faults
from scripts.paper.curve_bands import LAST, Deviation
from scripts.release import plant_faults

FAULTS = plant_faults.read_faults(training_faults.FAULTS.read_text("utf-8"))


def test_faults_fit_the_project():
    assert plant_faults.find_misfits(FAULTS, plant_faults.ROOT) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_valid_python(fault):
    text = (plant_faults.ROOT / fault.file).read_text("utf-8")
    changed = text.replace(fault.old, fault.new)
    assert changed != text
    compile(changed, fault.file, "exec")


def test_fault_is_planted_in_a_new_copy(tmp_path, monkeypatch):
    def copy_project(target):
        (target / "package").mkdir(parents=True)
        for name in ("one", "two"):
            (target / "package" / name).write_text("a = 1\nb = 2\n", "utf-8")

    monkeypatch.setattr(plant_faults, "copy_project", copy_project)
    fault = plant_faults.Fault("f", "package/one", "b = 2", "b = 3", [])
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "old").write_text("of an earlier version", "utf-8")
    training_faults.plant_fault(fault, folder)
    texts = {
        path.name: path.read_text("utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert texts == {"one": "a = 1\nb = 3\n", "two": "a = 1\nb = 2\n"}


def result(name, seed, *deviations):
    return {
        "row": name,
        "seed": seed,
        "problem": "number_words_ende",
        "hparams_set": "tiny",
        "hparams": {"train_steps": 600},
        "machine": "m",
        "date": "d",
        "figures": {
            "validations": [{"step": 600, "perplexity": 1.0 + seed}],
            "reference": "number_words",
            "compared": 12,
            "deviations": [
                deviation._asdict() | {"step": training_faults._step(deviation)}
                for deviation in deviations
            ],
        },
    }


def test_table_has_the_first_deviation_of_each_training():
    early = Deviation(50, "perplexity", 90.0, 55.0, 80.0)
    late = Deviation(LAST, "test bleu", 1.25, 2.0, 3.0)
    text = training_faults.lay_out(
        [
            result("no_fault", 1),
            result("wrong_mask", 1, early, late),
            result("wrong_mask", 2),
            result("wrong_mask", 3, late),
        ]
    )
    assert "| no fault | 0 of 1 |  | 2.000 |" in text
    assert (
        "| wrong mask | 2 of 3 | step 50: perplexity 90.0 (55.0 to 80.0), "
        "end: test bleu 1.250 (2.000 to 3.000) | 3.000 |" in text
    )


def test_missing_value_is_formatted():
    nan = Deviation(50, "perplexity", math.nan, 1.0, 2.0)
    text = training_faults.lay_out([result("broken", 1, nan)])
    assert "step 50: perplexity nan" in text
