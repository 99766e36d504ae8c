"""Stored scores of any make: each entry is shown, and in its place."""

from t2t_repro.reports import stored_scores

STORED = {
    "bleu": 39.567,
    "ter": 44,
    "signature": "nrefs:1",
    "checkpoints": ["ckpt-5", "ckpt-6"],
    "decode_hparams": {"beam_size": 4, "alpha": 0.6, "return_beams": False},
    "plus_minus": {"bleu": 0.751, "ter": None},
    "signatures": {"bleu": "a|b", "ter": "c|d"},
    "by_length": [{"longest": 10, "bleu": 41.0}, {"longest": None}],
    "against": {"base": {"bleu": 27.3}, "big": {"bleu": 28.4}},
    "published": [],
    "nothing": None,
}


def test_entries_are_sorted_by_their_kind():
    found = stored_scores.read(STORED)
    assert found.numbers == {"bleu": 39.567, "ter": 44}
    assert set(found.notes) == {"plus_minus", "signatures"}
    assert found.tables == {
        "by_length": STORED["by_length"],
        "against": [
            {"name": "base", "bleu": 27.3},
            {"name": "big", "bleu": 28.4},
        ],
    }
    assert found.facts == {
        "signature": "nrefs:1",
        "checkpoints": "ckpt-5, ckpt-6",
        "decode_hparams": "beam_size 4, alpha 0.6, return_beams False",
    }


def test_an_interval_stands_beside_its_number():
    found = stored_scores.read(STORED)
    assert found.formatted("bleu") == "39.57 ± 0.75"
    assert found.formatted("ter") == "44.00"
    assert found.formatted("chrf") == "–"


def test_remarks_are_of_the_numbers():
    assert stored_scores.read(STORED).other_notes() == [
        {"score": "bleu", "signatures": "a|b"},
        {"score": "ter", "signatures": "c|d"},
    ]
    assert stored_scores.read({"bleu": 1.0}).other_notes() == []


def test_columns_are_those_of_any_row():
    assert stored_scores.columns([{"a": 1, "b": 2}, {"a": 1, "c": 3}]) == list(
        "abc"
    )
