"""BLEU beyond the training length: length classes and the table."""

import pytest

from scripts.paper import positions
from t2t_repro import errors


def test_length_classes_end_at_multiples_of_the_training_length():
    lengths = [1, 8, 9, 16, 17, 20, 21, 24, 32, 33, 100]
    assert positions.length_classes(lengths, trained=16) == {
        (1, 8): [0, 1],
        (9, 16): [2, 3],
        (17, 20): [4, 5],
        (21, 24): [6, 7],
        (25, 32): [8],
        (33, None): [9, 10],
    }


def test_empty_length_classes_are_omitted():
    classes = positions.length_classes([3, 40], trained=16)
    assert classes == {(1, 8): [0], (33, None): [1]}


def test_each_length_class_is_scored_separately():
    correct, wrong = "a man in the park", "two dogs on a beach"
    table = positions.score_by_length(
        [5, 30, 40], [correct, correct, wrong], [correct] * 3, 16
    )
    assert [(row["first"], row["last"]) for row in table] == [
        (1, 8),
        (25, 32),
        (33, None),
    ]
    assert [round(row["bleu"]) for row in table] == [100, 100, 11]
    assert "tok:13a" in table[0]["signature"]


def test_test_set_without_longer_sources_is_an_error():
    positions.require_longer(17, 16)
    with pytest.raises(errors.UserError, match="longest has 16 subwords"):
        positions.require_longer(16, 16)


def result(row, seed, *scores):
    """Return a finished row with BLEU in two classes."""
    classes = ({"first": 9, "last": 16}, {"first": 17, "last": None})
    hparams = {
        "max_length": 16,
        "train_steps": 100,
        "batch_tokens": 1_000,
        "num_hidden_layers": 3,
        "hidden_size": 64,
    }
    by_length = [
        shape | {"sentences": 10, "bleu": score}
        for shape, score in zip(classes, scores, strict=True)
    ]
    figures = {"signatures": {"bleu": "S"}, "by_length": by_length}
    common = {"problem": "p", "split": "test", "machine": "m", "date": "d"}
    return common | {
        "mixed_precision": "float32",
        "row": row,
        "seed": seed,
        "hparams": hparams,
        "figures": figures,
    }


RESULTS = [
    result("sinusoids", 1, 30.0, 20.0),
    result("sinusoids", 2, 31.0, 22.0),
    result("learned", 1, 30.0, 10.0),
    result("learned", 2, 30.0, 11.0),
]


def test_table_has_a_row_per_class_with_gain_of_sinusoids():
    lines = positions.lay_out(RESULTS).splitlines()
    assert lines[0] == (
        "| source subwords | sentences | BLEU, sinusoids | BLEU, learned "
        "| sinusoids − learned |"
    )
    assert lines[2:4] == [
        "| 9–16 | 10 | 30.5 (30.0–31.0) | 30.0 (30.0–30.0) | +0.5 |",
        "| 17–…, beyond training | 10 | 21.0 (20.0–22.0) | 10.5 (10.0–11.0) "
        "| +10.5 |",
    ]


def test_table_of_one_finished_row_has_no_gain():
    lines = positions.lay_out(RESULTS[:1]).splitlines()
    assert lines[2] == "| 9–16 | 10 | 30.0 |"


def test_summary_has_statistics_of_seeds():
    assert positions.summarize(RESULTS)[1] == {
        "row": "sinusoids",
        "first": 17,
        "last": None,
        "sentences": 10,
        "bleu": 21.0,
        "bleu_range": [20.0, 22.0],
        "bleu_deviation": pytest.approx(2**0.5),
    }
