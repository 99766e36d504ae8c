"""Reference curves: bands, comparisons of runs with them, and their choice."""

import pytest
from cases import read_cases

from scripts.paper import reference_curves
from t2t_repro import registry
from t2t_repro.io import fields, files

STEPS = range(50, 501, 50)
SEEDS = ([20.0, 4.0, 2.0], [24.0, 4.4, 2.0])  # perplexities at STEPS
HPARAMS = {"hidden_size": 128, "num_averaged_checkpoints": 5}
SETTINGS = {  # of the reference runs
    "problem": "number_words_ende",
    "problem_arguments": {"vocab_size": 512},
    "hparams_set": "tiny",
    "hparams": HPARAMS | {"train_steps": 3_000},
    "vocabulary_sha256": "a",
}


def training(perplexities, bleu=30.0):
    return {
        "random_seed": 1,
        "validations": [
            {"step": step, "perplexity": value}
            for step, value in zip(STEPS, perplexities, strict=False)
        ],
        "scores": {
            "test": {
                "bleu": bleu,
                "checkpoints": ["averaged/ckpt-150"],
                "decode_hparams": {"beam_size": 4, "alpha": 0.6},
            }
        },
    }


REFERENCE = SETTINGS | {
    "command": "make demo",
    "seeds": [training(SEEDS[i]) | {"random_seed": i + 1} for i in range(2)],
}


def compare(training):
    return reference_curves.compare(SETTINGS, training, {"number": REFERENCE})


def test_training_within_bands_agrees():
    for values in ([22.0, 4.2, 2.1], [21.0, 4.2]):
        status, text = compare(training(values))
        assert status == reference_curves.AGREES
        assert "compared with number, seeds 1, 2, none outside" in text


# Perplexities and BLEU of a training; the deviation, and its cause.
DEVIATIONS = read_cases("""
60.0 8.0 4.0 30.0
    at step 50, perplexity is 60.00, 46% above | Worse from the start
22.0 4.2 4.0 30.0
    at step 150, perplexity is 4.00, 27% above the band from 1.81 to 3.15
    | at first, then worse
22.0 4.2 1.5 30.0
    at step 150, perplexity is 1.50, 17% below
    | validation sentences in the training data
22.0 4.2 2.0 25.0
    at the end, test bleu is 25.00, 4.0 below the band from 29.00
    | the search or the scoring
22.0 nan nan 30.0
    at step 100, perplexity is nan | NaN
""")


@pytest.mark.parametrize("case", DEVIATIONS)
def test_deviation_has_step_metric_and_cause(case):
    # The first: 24 · (24 / 4.4)^0.15 earlier; times 24 / 20 and e^0.1: 41.05.
    *values, bleu = map(float, case.split())
    deviation, cause = DEVIATIONS[case].split(" | ")
    status, text = compare(training(values, bleu=bleu))
    assert status == reference_curves.DEVIATES
    assert f"First, {deviation}" in text
    assert cause in text.splitlines()[-1]


COMMITTED = sorted(reference_curves.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_reference_accepts_its_seeds_and_rejects_worse_ones(path):
    """Its settings are those of this version."""
    name, reference = path.stem, files.read_json(path)
    cls = registry.models[reference["hparams"]["model"]].hparams
    fields.from_dict(cls, reference["hparams"])
    for key in ("command", "machine", "date"):
        assert reference[key]
    for seed in reference["seeds"]:
        others = [other for other in reference["seeds"] if other is not seed]
        for seeds in filter(None, (others, reference["seeds"])):
            status, text = reference_curves.compare(
                reference, seed, {name: reference | {"seeds": seeds}}
            )
            assert status == reference_curves.AGREES, text
        assert "not compared" not in text
        worse = [
            entry | {"perplexity": 1.5 * entry["perplexity"]}
            for entry in seed["validations"]
        ]
        status, text = reference_curves.compare(
            reference, seed | {"validations": worse}, {name: reference}
        )
        assert status == reference_curves.DEVIATES, text
