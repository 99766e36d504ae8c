"""The ladder: bands of seeds, departures with their usual causes."""

import math
import types

import pytest

from scripts.paper import curve_bands, reference_curves
from t2t_repro import errors, fields, json_files, registry
from t2t_repro.metrics.suite import Suite

STEPS = (50, 100, 150)
OURS = ([20.0, 4.0, 2.0], [24.0, 4.4, 2.0])


@pytest.fixture(scope="module")
def settings():
    """run.json of the reference's own training."""
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
    seeds = [training(values, seed) for seed, values in enumerate(OURS, 1)]
    return settings | {"command": "make demo", "seeds": seeds}


@pytest.mark.parametrize(
    ("figure", "values", "low", "high"),
    [
        ("bleu", [30.0, 31.0], 28.0, 33.0),  # apart 1, and the floor 1
        ("test bleu", [30.0], 29.0, 31.0),
        ("exact_match", [99.0, 99.5, 99.1], 97.5, 101.0),
        ("perplexity", [4.0], 4 / math.exp(0.1), 4 * math.exp(0.1)),
        ("perplexity", [4.0, 5.0], 3.2 / math.exp(0.1), 6.25 * math.exp(0.1)),
    ],
)
def test_bands(figure, values, low, high):
    assert curve_bands.band(figure, values) == pytest.approx((low, high))


def test_a_band_reaches_over_what_is_near():
    assert curve_bands.band("bleu", [10.0], [8.0, 13.0]) == (7.0, 14.0)


@pytest.mark.parametrize(
    ("step", "earlier", "later"),
    [
        (100, 10.0 * 2**0.3, 10.0),  # 85 lies 0.3 of the way back to step 50
        (50, 20.0 * 2**0.15, 20.0 / 2**0.15),  # before the first, on the line
        (150, 10.0, 10.0),
        (curve_bands.LAST, None, None),
    ],
)
def test_near_a_step(step, earlier, later):
    curve = {50: 20.0, 100: 10.0, 150: 10.0}
    found = curve_bands.near("perplexity", curve, step)
    expected = [] if earlier is None else [earlier, later]
    assert found == pytest.approx(expected)


def test_near_a_step_of_scores():
    curve = {100: 10.0, 200: 20.0}
    assert curve_bands.near("bleu", curve, 200) == pytest.approx([17.0, 20.0])
    assert curve_bands.near("bleu", {100: 10.0}, 100) == []


@pytest.mark.parametrize("values", [*OURS, [22.0, 4.2, 2.1], [21.0, 4.2]])
def test_a_training_like_the_seeds(settings, reference, values):
    status, text = reference_curves.judge(
        settings, training(values), {"number": reference}
    )
    assert status == reference_curves.LIKE
    assert text.startswith("Yours is like ours: ")
    assert "compared with number, seeds 1, 2, none outside" in text


@pytest.mark.parametrize(
    ("values", "bleu", "where", "why"),
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
            "Like ours at first, then worse",
        ),
        (
            [22.0, 4.2, 1.5],
            30.0,
            "at step 150, perplexity is 1.50, 17% below",
            "Better than ours: validation sentences among",
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
            "not a number",
        ),
    ],
)
def test_where_a_training_departs_and_why(
    settings, reference, values, bleu, where, why
):
    mine = training(values, bleu=bleu)
    status, text = reference_curves.judge(settings, mine, {"number": reference})
    assert status == reference_curves.DEPARTS
    assert f"First, {where}" in text
    assert why in text.splitlines()[-1]


@pytest.mark.parametrize("averaged", [5, 4])
def test_scores_of_other_checkpoints_are_not_compared(
    settings, reference, averaged
):
    checkpoint = "averaged/ckpt-100" if averaged == 5 else "averaged/ckpt-150"
    hparams = settings["hparams"] | {"num_averaged_checkpoints": averaged}
    mine = training(OURS[0][:2], bleu=3.0, checkpoint=checkpoint)
    status, text = reference_curves.judge(
        settings | {"hparams": hparams}, mine, {"number": reference}
    )
    assert status == reference_curves.LIKE
    assert (
        f"Scores of test are not compared: yours are of {checkpoint}, ours of "
        "averaged/ckpt-150, an average of 5."
    ) in text


def test_scores_of_another_search_are_not_compared(settings, reference):
    mine = training(OURS[0], bleu=3.0)
    mine["scores"]["test"]["decode_hparams"]["beam_size"] = 5
    status, text = reference_curves.judge(settings, mine, {"number": reference})
    assert status == reference_curves.LIKE
    assert (
        "Scores of test are not compared: yours are of beam_size=5, ours of "
        "beam_size=4. Evaluate with --decode_hparams=…."
    ) in text


def test_scores_from_before_a_search_setting_are_compared(settings, reference):
    mine = training(OURS[0], bleu=3.0)
    mine["scores"]["test"]["decode_hparams"]["coverage_penalty"] = 0.0
    _, text = reference_curves.judge(settings, mine, {"number": reference})
    assert "not compared" not in text
    mine["scores"]["test"]["decode_hparams"]["coverage_penalty"] = 0.2
    _, text = reference_curves.judge(settings, mine, {"number": reference})
    assert (
        "yours are of coverage_penalty=0.2, ours of coverage_penalty=0.0"
        in (text)
    )


def test_bad_from_the_first_step_that_is_compared(settings, reference):
    mine = training([60.0, 8.0, 4.0])
    mine["validations"].insert(0, {"step": 25, "perplexity": 99.0})
    _, text = reference_curves.judge(settings, mine, {"number": reference})
    assert "Worse from the start" in text


def test_another_vocabulary_is_named(settings, reference):
    mine = training([40.0, 8.0, 4.0])
    other = settings | {"vocabulary_sha256": "b"}
    _, text = reference_curves.judge(other, mine, {"number": reference})
    assert "Your vocabulary is not ours" in text
    _, text = reference_curves.judge(settings, mine, {"number": reference})
    assert "Your vocabulary is not ours" not in text


def test_other_settings_cannot_be_compared(settings, reference):
    changed = settings["hparams"] | {"hidden_size": 64, "train_steps": 9}
    status, text = reference_curves.judge(
        settings | {"hparams": changed},
        training(OURS[0]),
        {"number": reference},
    )
    assert status == reference_curves.UNKNOWN
    assert "(hidden_size is 64, ours 128)" in text  # train_steps may differ
    assert "make demo" in text


def test_the_nearest_rung_is_taken(settings, reference):
    far = reference | {"hparams": reference["hparams"] | {"hidden_size": 64}}
    references = {"far": far, "near": reference}
    _, text = reference_curves.judge(settings, training(OURS[0]), references)
    assert "compared with near" in text


@pytest.mark.parametrize(
    "text", ['[{"step": 1, "perplexity": "x"}, 3]', '{"a": 1}', '[{"step": 1}]']
)
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "validation.json").write_text(text, "utf-8")
    run = types.SimpleNamespace(
        output_dir=tmp_path,
        settings={"random_seed": 1},
        problem=types.SimpleNamespace(suite=Suite()),
    )
    with pytest.raises(errors.UserError, match=r"validation\.json is damaged"):
        reference_curves.training(run)


def test_no_step_in_common(settings, reference):
    mine = {
        "random_seed": 1,
        "validations": [{"step": 7, "perplexity": 2.0}],
        "scores": {},
    }
    status, text = reference_curves.judge(settings, mine, {"number": reference})
    assert status == reference_curves.UNKNOWN
    assert "--eval_every=50" in text


def test_wmt14_has_no_curve_and_says_so(settings, reference):
    wmt = settings | {"problem": "wmt14_ende", "hparams_set": "base"}
    status, text = reference_curves.judge(
        wmt, training(OURS[0]), {"number": reference}
    )
    assert status == reference_curves.UNKNOWN
    assert "There is no curve of ours for wmt14_ende" in text
    assert "BLEU 27.3 on newstest2014" in text
    assert "perplexity 4.92 and BLEU 25.8 on newstest2013" in text
    french = settings | {"problem": "wmt14_enfr", "hparams_set": "big_enfr"}
    _, text = reference_curves.judge(
        french, training(OURS[0]), {"number": reference}
    )
    assert "BLEU 41.8 on newstest2014" in text and "newstest2013" not in text


REFERENCES = sorted(reference_curves.FOLDER.glob("*.json"))


def test_rungs_are_committed():
    assert {path.stem for path in REFERENCES} >= {"number_words", "multi30k"}


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_committed_rungs(path):
    """Each seed is like the others, and its settings are of this version.

    It is like all of them, too, and what is worse is not.
    """
    name, reference = path.stem, json_files.read(path)
    registry.load_definitions()
    cls = registry.models.hparams_class(reference["hparams"]["model"])
    fields.from_dict(cls, reference["hparams"])
    for key in ("command", "machine", "date"):
        assert reference[key]
    for seed in reference["seeds"]:
        others = [other for other in reference["seeds"] if other is not seed]
        if others:
            beside = {name: reference | {"seeds": others}}
            status, text = reference_curves.judge(reference, seed, beside)
            assert status == reference_curves.LIKE, text
        status, text = reference_curves.judge(
            reference, seed, {name: reference}
        )
        assert status == reference_curves.LIKE, text
        assert "not compared" not in text
        worse = [
            entry | {"perplexity": 1.5 * entry["perplexity"]}
            for entry in seed["validations"]
        ]
        ill = seed | {"validations": worse}
        status, text = reference_curves.judge(reference, ill, {name: reference})
        assert status == reference_curves.DEPARTS, text
