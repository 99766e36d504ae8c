"""Scores by length of the sentence."""

import pytest

from t2t_repro.reports import bleu, lengths


def of_words(count):
    return " ".join(f"w{i}" for i in range(count))


def test_sentences_are_counted_where_their_length_belongs():
    measured = [of_words(n) for n in (0, 1, 10, 11, 20, 60, 61, 200)]
    lines = ["a b c d"] * len(measured)
    found = lengths.buckets(lines, [lines], measured)
    assert [one[:3] for one in found] == [
        (0, 10, 3),
        (11, 20, 2),
        (51, 60, 1),
        (61, None, 2),
    ]
    assert all(one.score == pytest.approx(100) for one in found)


def test_a_bucket_is_scored_by_itself():
    references = [of_words(8), of_words(9), of_words(30)]
    hypotheses = [of_words(8), "x", of_words(15)]
    short, long = lengths.buckets(hypotheses, [references], references)
    alone = bleu.score_sheet(hypotheses[:2], [references[:2]])
    assert short.score == pytest.approx(alone["bleu"])
    assert short.length_ratio == pytest.approx(9 / 17)
    assert long.length_ratio == pytest.approx(1 / 2)


def test_tokens_and_several_references():
    hypotheses = ["so it is at an end."]
    references = [["so it was at an end ."], ["so it is at an end ."]]
    (text,) = lengths.buckets(hypotheses, references, references[0])
    (tokens,) = lengths.buckets(hypotheses, references, references[0], True)
    assert text.score == pytest.approx(100)
    assert tokens.score < 90


def test_a_row_names_the_convention_of_its_score():
    (text,) = lengths.buckets(["a b c d"], [["a b c d"]], ["a b c d"])
    (tokens,) = lengths.buckets(["a b c d"], [["a b c d"]], ["a b c d"], True)
    assert list(text.row())[3:] == ["bleu", "length_ratio"]
    assert list(tokens.row())[3:] == ["bleu_tok", "length_ratio"]
    assert tokens.row()["bleu_tok"] == tokens.score


def test_describe_says_whose_words_were_counted():
    found = [lengths.Bucket(11, 20, 1_234, "bleu", 30.126, 0.987)]
    found.append(lengths.Bucket(61, None, 2, "bleu", 0.0, 1.0))
    assert lengths.describe(found, "source").splitlines() == [
        "bleu by words of the source:",
        "   30.13   11-20 words, 1,234 sentences, length ratio 0.99",
        "    0.00     61- words, 2 sentences, length ratio 1.00",
    ]
