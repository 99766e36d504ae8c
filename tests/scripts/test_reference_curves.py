"""Reference curves: bands, comparisons of runs with them, and their choice."""

import math
import types

import pytest

from scripts.paper import reference_curves
from t2t_repro import errors, fields, registry
from t2t_repro.io import files

STEPS = (50, 100, 150)
E01 = math.exp(0.1)
SEEDS = ([20.0, 4.0, 2.0], [24.0, 4.4, 2.0])  # perplexities at STEPS


@pytest.fixture(scope="module")
def settings():
    """Return the run.json of the reference runs."""
    registry.load_definitions()
    return {
        "problem": "number_words_ende",
        "problem_arguments": {"vocab_size": 512},
        "hparams_set": "tiny",
        "hparams": vars(registry.build_hparams("tiny")),
        "vocabulary_sha256": "a",
    }


def training(perplexities, seed=1, bleu=30.0, checkpoint="averaged/ckpt-150"):
    return {
        "random_seed": seed,
        "validations": [
            {"step": step, "perplexity": value}
            for step, value in zip(STEPS, perplexities, strict=False)
        ],
        "scores": {
            "test": {
                "bleu": bleu,
                "checkpoints": [checkpoint],
                "decode_hparams": {"beam_size": 4, "alpha": 0.6},
            }
        },
    }


@pytest.fixture
def reference(settings):
    seeds = [training(values, seed) for seed, values in enumerate(SEEDS, 1)]
    return settings | {"command": "make demo", "seeds": seeds}


@pytest.fixture
def compare(settings, reference):
    """Return a function: run, changed settings -> status and text."""

    def compare(training, **changes):
        return reference_curves.compare(
            settings | changes, training, {"number": reference}
        )

    return compare


@pytest.mark.parametrize(
    ("metric", "values", "nearby", "low", "high"),
    [
        ("bleu", [30.0, 31.0], [], 28.0, 33.0),  # range of 1, and floor of 1
        ("test bleu", [10.0], [8.0, 13.0], 7.0, 14.0),
        ("perplexity", [4.0, 5.0], [], 3.2 / E01, 6.25 * E01),
    ],
)
def test_band_is_range_of_seeds_and_of_nearby_values_plus_floor(
    metric, values, nearby, low, high
):
    band = reference_curves.band(metric, values, nearby)
    assert band == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (100, [10.0 * 2**0.3, 10.0]),  # 85 is 0.3 of the way back to step 50
        (50, [20.0 * 2**0.15, 20.0 / 2**0.15]),  # extrapolated
        (150, [10.0, 10.0]),  # flat after the last validation
        (reference_curves.LAST, []),
    ],
)
def test_nearby_perplexities_are_interpolated_as_logarithms(step, expected):
    curve = {50: 20.0, 100: 10.0, 150: 10.0}
    nearby = reference_curves.nearby_values("perplexity", curve, step)
    assert nearby == pytest.approx(expected)


def test_median_shows_a_small_difference_of_level():
    """Single validations jump by more than this difference."""

    def curve(level, jump_at=None):
        values = [40.0, 4.0] + 8 * [level]
        if jump_at:
            values[jump_at] *= 1.08
        return {
            "random_seed": 1,
            "validations": [
                {"step": 50 * i, "perplexity": value}
                for i, value in enumerate(values, 1)
            ],
            "scores": {},
        }

    seeds = [curve(1.500), curve(1.505, jump_at=6), curve(1.498)]
    _, none = reference_curves.compare_curves(
        curve(1.51, jump_at=5), {"seeds": seeds}
    )
    assert none == []
    _, found = reference_curves.compare_curves(curve(1.56), {"seeds": seeds})
    assert {deviation.metric for deviation in found} == {
        reference_curves.MEDIAN
    }
    assert found[0].step == 250  # the first median of five
    # Two seeds say too little about the noise.
    _, none = reference_curves.compare_curves(curve(1.56), {"seeds": seeds[:2]})
    assert none == []


@pytest.mark.parametrize("values", [*SEEDS, [22.0, 4.2, 2.1], [21.0, 4.2]])
def test_training_within_bands_agrees(compare, values):
    status, text = compare(training(values))
    assert status == reference_curves.AGREES
    assert "compared with number, seeds 1, 2, none outside" in text


@pytest.mark.parametrize(
    ("values", "bleu", "deviation", "cause"),
    [
        (
            [60.0, 8.0, 4.0],
            30.0,
            # 24 · (24 / 4.4)^0.15 earlier; times 24 / 20 and e^0.1: 41.05.
            "at step 50, perplexity is 60.00, 46% above",
            "Worse from the start",
        ),
        (
            [22.0, 4.2, 4.0],
            30.0,
            "at step 150, perplexity is 4.00, 27% above the band from 1.81 "
            "to 3.15",
            "at first, then worse",
        ),
        (
            [22.0, 4.2, 1.5],
            30.0,
            "at step 150, perplexity is 1.50, 17% below",
            "validation sentences in the training data",
        ),
        (
            [22.0, 4.2, 2.0],
            25.0,
            "at the end, test bleu is 25.00, 4.0 below the band from 29.00",
            "the search or the scoring",
        ),
        (
            [22.0, math.nan, math.nan],
            30.0,
            "at step 100, perplexity is nan",
            "NaN",
        ),
    ],
)
def test_deviation_has_step_metric_and_usual_cause(
    compare, values, bleu, deviation, cause
):
    status, text = compare(training(values, bleu=bleu))
    assert status == reference_curves.DEVIATES
    assert f"First, {deviation}" in text
    assert cause in text.splitlines()[-1]


@pytest.mark.parametrize("averaged", [5, 4])
def test_scores_of_other_checkpoints_are_not_compared(
    compare, settings, averaged
):
    checkpoint = "averaged/ckpt-100" if averaged == 5 else "averaged/ckpt-150"
    hparams = settings["hparams"] | {"num_averaged_checkpoints": averaged}
    shorter = training(SEEDS[0][:2], bleu=3.0, checkpoint=checkpoint)
    status, text = compare(shorter, hparams=hparams)
    assert status == reference_curves.AGREES
    assert "Scores of test are not compared" in text
    assert f"of {checkpoint}," in text
    assert "of averaged/ckpt-150, an average of 5" in text


@pytest.mark.parametrize(
    ("key", "value", "default"),
    # The references were recorded before coverage_penalty existed.
    [("beam_size", 5, 4), ("coverage_penalty", 0.2, 0.0)],
)
def test_scores_of_another_search_are_not_compared(
    compare, key, value, default
):
    searched = training(SEEDS[0], bleu=3.0)
    searched["scores"]["test"]["decode_hparams"][key] = default
    assert "not compared" not in compare(searched)[1]
    searched["scores"]["test"]["decode_hparams"][key] = value
    status, text = compare(searched)
    assert status == reference_curves.AGREES
    assert f"of {key}={value}, the reference's of {key}={default}." in text


def test_other_hparams_have_no_reference(compare, settings):
    # train_steps may differ.
    hparams = settings["hparams"] | {"hidden_size": 64, "train_steps": 9}
    status, text = compare(training(SEEDS[0]), hparams=hparams)
    assert status == reference_curves.NO_REFERENCE
    assert "number: hidden_size is 64, not 128. " in text
    assert "make demo" in text


def test_setting_of_buckets_matters_only_to_bucketed_batches(settings):
    def differing(batching):
        hparams = settings["hparams"] | {"batching": batching}
        first, second = (
            settings | {"hparams": hparams | {"reshuffle_buckets": value}}
            for value in (True, False)
        )
        return reference_curves.differences(first, second)

    assert differing("packed") == []
    assert differing("bucketed") == ["reshuffle_buckets is True, not False"]


def test_other_problem_has_no_reference(compare):
    status, text = compare(training(SEEDS[0]), problem="wmt14_ende")
    assert status == reference_curves.NO_REFERENCE
    assert "curve for wmt14_ende, only for number_words_ende." in text


COMMITTED = sorted(reference_curves.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_reference_accepts_its_seeds_and_rejects_worse_ones(path):
    """Its settings are those of this version."""
    name, reference = path.stem, files.read_json(path)
    registry.load_definitions()
    cls = registry.models.hparams_class(reference["hparams"]["model"])
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


# The choice of a reference, and its recording.


def recorded(precision="float32", **hparams):
    """Return the settings of a reference."""
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
    settings = recorded(**hparams)
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


def test_nearest_settings_come_before_the_same_precision():
    known = {
        "single": recorded(),
        "half": recorded("bfloat16"),
        "wide": recorded("bfloat16", hidden_size=256),
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
        reference_curves.record("name", ["one", "two"], "machine")
    assert not list(tmp_path.iterdir())
