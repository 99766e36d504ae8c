"""Significance, intervals, and scores by the length of sentences."""

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


def test_p_value_follows_number_of_samples():
    result = compare(WORSE, LINES, samples=99)["bleu"]
    assert result.p_value == pytest.approx(1 / 100)
    assert "(paired bootstrap, 99 samples)" in result.summary()
    result = compare(WORSE, LINES, samples=0)["bleu"]
    assert result.p_value is None and "p =" not in result.summary()


BY_LENGTH = Suite(("bleu", "length_ratio"))


def of_words(count):
    return " ".join(f"w{i}" for i in range(count))


def buckets(hypotheses, references, measured):
    metrics = BY_LENGTH.build()
    statistics = scores.count(metrics, hypotheses, references)
    return scores.length_buckets(metrics, statistics, measured)


def test_buckets_have_the_sentences_of_their_lengths():
    measured = [of_words(n) for n in (0, 1, 10, 11, 20, 60, 61, 200)]
    lines = ["a b c d"] * len(measured)
    result = buckets(lines, [lines], measured)
    assert [bucket[:3] for bucket in result] == [
        (0, 10, 3),
        (11, 20, 2),
        (51, 60, 1),
        (61, None, 2),
    ]
    assert all(b.scores["bleu"] == pytest.approx(100) for b in result)


@pytest.mark.parametrize("line", ["我" * 11, "เ" * 11, "我们 ok " * 4])
def test_characters_of_scripts_without_spaces_count_as_words(line):
    (bucket,) = buckets(["a b"], [["a b"]], [line])
    assert bucket[:2] == (11, 20)


def test_score_of_a_bucket_is_that_of_its_sentences_alone():
    references = [of_words(8), of_words(9), of_words(30)]
    hypotheses = [of_words(8), "x", of_words(15)]
    short, long = buckets(hypotheses, [references], references)
    alone = scores.score(BY_LENGTH, hypotheses[:2], [references[:2]])
    assert short.scores["bleu"] == pytest.approx(alone["bleu"].value)
    assert short.scores["length_ratio"] == pytest.approx(9 / 17)
    assert long.scores["length_ratio"] == pytest.approx(1 / 2)
