"""Stored scores of any kind: each entry has its place."""

from t2t_repro.reports import page

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


def test_entries_are_sorted_by_kind():
    scores = page.read_scores(STORED)
    assert scores.numbers == {"bleu": 39.567, "ter": 44}
    assert set(scores.notes) == {"plus_minus", "signatures"}
    assert scores.tables == {
        "by_length": STORED["by_length"],
        "against": [
            {"name": "base", "bleu": 27.3},
            {"name": "big", "bleu": 28.4},
        ],
    }
    assert scores.facts == {
        "signature": "nrefs:1",
        "checkpoints": "ckpt-5, ckpt-6",
        "decode_hparams": "beam_size 4, alpha 0.6, return_beams False",
    }


def test_number_has_its_interval():
    scores = page.read_scores(STORED)
    assert scores.formatted("bleu") == "39.57\u00a0±\u00a00.75"
    assert scores.formatted("ter") == "44.00"
    assert scores.formatted("chrf") == "–"


def test_other_notes_have_a_row_per_number():
    assert page.read_scores(STORED).other_notes() == [
        {"score": "bleu", "signatures": "a|b"},
        {"score": "ter", "signatures": "c|d"},
    ]
    assert page.read_scores({"bleu": 1.0}).other_notes() == []
