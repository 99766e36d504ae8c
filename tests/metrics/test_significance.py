"""Intervals and paired tests, compared with sacreBLEU and with theory."""

import pytest
from sacrebleu import significance as sacre
from sacrebleu.metrics import BLEU, CHRF, TER

from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import Suite

LINES = [f"line {i} of the text is a good one" for i in range(50)]
WORSE = [
    line.replace("good", "very bad") if i % 3 else line[: 10 + i // 5]
    for i, line in enumerate(LINES)
]
THEIRS = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
SUITE = Suite(tuple(THEIRS))
SAMPLES = 1_000


def compare(hypotheses, baseline, samples=SAMPLES):
    metrics = SUITE.build()
    counted, of_baseline = (
        scores.count(metrics, lines, [LINES])
        for lines in (hypotheses, baseline)
    )
    counts = None
    if samples:
        counts = scores.resample(len(LINES), samples)
    return {
        name: scores.paired_test(
            name, metric, counted[name], of_baseline[name], counts
        )
        for name, metric in metrics.items()
    }


@pytest.mark.parametrize("name", THEIRS)
def test_scores_and_intervals_equal_sacrebleus(name):
    ours = scores.score(SUITE, WORSE, [LINES], samples=300)[name]
    theirs = THEIRS[name]().corpus_score(WORSE, [LINES], n_bootstrap=300)
    assert ours.value == pytest.approx(theirs.score)
    # sacreBLEU computes in float32.
    assert ours.plus_minus == pytest.approx(theirs._ci, rel=1e-4)


def test_p_values_equal_sacrebleus():
    """Two systems are similar, and one is worse."""
    other = [line.replace("good", "bad") for line in LINES[:9]] + LINES[9:]
    near = LINES[:42] + [line.replace("text", "book") for line in LINES[42:]]
    for system, baseline in ((near, other), (WORSE, near)):
        ours = compare(system, baseline)
        test = sacre.PairedTest(
            [("baseline", baseline), ("system", system)],
            {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()},
            references=[LINES],
            test_type="bs",
            n_samples=SAMPLES,
        )
        _, theirs = test()
        for name, its in zip(THEIRS, ("BLEU", "chrF2", "TER"), strict=True):
            before, after = theirs[its]
            assert ours[name].baseline == pytest.approx(before.score)
            assert ours[name].system == pytest.approx(after.score)
            # Samples with the same difference may be counted or not.
            assert ours[name].p_value == pytest.approx(after.p_value, abs=0.003)


def test_worse_system_has_small_p_value():
    result = compare(LINES, WORSE)
    for name, difference in result.items():
        assert difference.metric == name
        assert difference.p_value < 0.01
    assert result["bleu"].system == pytest.approx(100)
    text = f"bleu 100.00 against {result['bleu'].baseline:.2f} of the baseline"
    assert result["bleu"].summary().startswith(f"{text}, p = 0.0")


def test_p_value_of_a_system_and_itself_is_1():
    for result in compare(WORSE, WORSE).values():
        assert result.p_value == 1


def test_p_value_follows_number_of_samples():
    result = compare(WORSE, LINES, samples=99)["bleu"]
    assert result.p_value == pytest.approx(1 / 100)
    assert "(paired bootstrap, 99 samples)" in result.summary()
    result = compare(WORSE, LINES, samples=0)["bleu"]
    assert result.p_value is None and "p =" not in result.summary()
