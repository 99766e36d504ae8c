"""Known faults of a training: their copies, and their table."""

import math

import pytest

from scripts.paper import training_faults
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


@pytest.fixture
def known():
    """Return a reference whose perplexities are 10 at step 50, 2 at 100."""
    seeds = [
        {
            "random_seed": seed,
            "validations": [
                {"step": 50, "perplexity": 10.0},
                {"step": 100, "perplexity": 2.0},
            ],
            "scores": {},
        }
        for seed in (1, 2)
    ]
    averaged = {"num_averaged_checkpoints": 1}
    return {"number_words": {"hparams": averaged, "seeds": seeds}}


def result(name, seed, *perplexities):
    return {
        "row": name,
        "seed": seed,
        "problem": "number_words_ende",
        "hparams": {"train_steps": 100, "num_averaged_checkpoints": 1},
        "machine": "m",
        "date": "d",
        "figures": {
            "training": {
                "random_seed": seed,
                "validations": [
                    {"step": step, "perplexity": value}
                    for step, value in zip((50, 100), perplexities, strict=True)
                ],
                "scores": {},
            },
            "reference": "number_words",
        },
    }


def test_table_has_the_first_deviation_of_each_training(known):
    text = training_faults.lay_out(
        [
            result("no_fault", 1, 10.0, 2.0),
            result("wrong_mask", 1, 90.0, 3.0),
            result("wrong_mask", 2, 10.0, 2.0),
            result("wrong_mask", 3, 10.0, 4.0),
        ],
        known,
    )
    assert "| no fault | 0 of 1 |  | 2.000 |" in text
    (line,) = [line for line in text.splitlines() if "wrong mask" in line]
    assert line.startswith("| wrong mask | 2 of 3 | step 50: perplexity 90.0 (")
    assert "; step 100: perplexity 4.000 (" in line
    assert line.endswith(" | 3.000 |")
    assert "in 2 to 2 values" in text


def test_nan_is_found(known):
    broken = result("broken", 1, math.nan, math.nan)
    (entry,) = training_faults.summarize([broken], known)
    assert (entry["found"], entry["first"][0]["step"]) == (1, 50)
    assert "step 50: perplexity nan" in training_faults.lay_out([broken], known)
