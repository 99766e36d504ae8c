"""Scores by the length of sentences."""

import pytest

from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import Suite

SUITE = Suite(("bleu", "length_ratio"))


def of_words(count):
    return " ".join(f"w{i}" for i in range(count))


def buckets(hypotheses, references, measured):
    metrics = SUITE.build()
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
    alone = scores.score(SUITE, hypotheses[:2], [references[:2]])
    assert short.scores["bleu"] == pytest.approx(alone["bleu"].value)
    assert short.scores["length_ratio"] == pytest.approx(9 / 17)
    assert long.scores["length_ratio"] == pytest.approx(1 / 2)


def test_summary_names_the_measured_text():
    both = {"bleu": 30.126, "length_ratio": 0.987}
    result = [scores.LengthBucket(11, 20, 1_234, both)]
    result.append(
        scores.LengthBucket(61, None, 2, {"bleu": 0.0, "length_ratio": 1.0})
    )
    assert scores.length_summary(result, "source").splitlines() == [
        "bleu by words of the source:",
        "   30.13   11-20 words, 1,234 sentences, length ratio 0.99",
        "    0.00     61- words, 2 sentences, length ratio 1.00",
    ]
