"""Score sheets of any make: each entry is shown, and in its place."""

from t2t_repro.reports import stored_sheet

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
    sheet = stored_sheet.read(STORED)
    assert sheet.numbers == {"bleu": 39.567, "ter": 44}
    assert set(sheet.notes) == {"plus_minus", "signatures"}
    assert sheet.tables == {
        "by_length": STORED["by_length"],
        "against": [
            {"name": "base", "bleu": 27.3},
            {"name": "big", "bleu": 28.4},
        ],
    }
    assert sheet.facts == {
        "signature": "nrefs:1",
        "checkpoints": "ckpt-5, ckpt-6",
        "decode_hparams": "beam_size 4, alpha 0.6, return_beams False",
    }


def test_an_interval_stands_beside_its_number():
    sheet = stored_sheet.read(STORED)
    assert sheet.said("bleu") == "39.57 ± 0.75"
    assert sheet.said("ter") == "44.00"
    assert sheet.said("chrf") == "–"


def test_remarks_are_of_the_numbers():
    assert stored_sheet.read(STORED).remarks() == [
        {"score": "bleu", "signatures": "a|b"},
        {"score": "ter", "signatures": "c|d"},
    ]
    assert stored_sheet.read({"bleu": 1.0}).remarks() == []


def test_columns_are_those_of_any_row():
    assert stored_sheet.columns([{"a": 1, "b": 2}, {"a": 1, "c": 3}]) == list(
        "abc"
    )
