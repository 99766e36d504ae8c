"""Table 4: its rows, and the right-branching baseline."""

import pytest

from scripts.paper import table4_parsing
from t2t_repro.metrics.metric import PARSING, Suite
from t2t_repro.text import trees


def scores(f1):
    return dict.fromkeys(PARSING, 50.0) | {"bracketing_f1": f1}


def table(**changes):
    row = {
        "problem": "wsj_parsing",
        "hparams_set": "parsing",
        "test_trees": 2_416,
        "scores": scores(90.04),
        "right_branching": scores(11.96),
    }
    return table4_parsing.lay_out(row | changes).split("\n")


def test_table_has_published_wsj_only_parsers_and_ours():
    head, rule, *rows = table()
    assert head.startswith("| parser: WSJ only, discriminative | F1 | prec")
    assert rule.count("---:") == len(table4_parsing.COLUMNS)
    assert len(rows) == 5 + 2
    assert "| Transformer (4 layers) | 91.3 |" in rows[4]
    assert "| t2t_repro, parsing: 2,416 trees | 90.0 | 50.0 |" in rows[5]
    assert "| right-branching: 2,416 trees | 12.0 |" in rows[6]


@pytest.mark.parametrize(
    ("sentence", "line", "parse"),
    [
        ("a b c d .", "XX XX XX XX .", "(S XX (VP XX (VP XX XX )VP )VP . )S"),
        ("a b c", "XX XX XX", "(S XX (VP XX XX )VP )S"),
        ("a b", "XX XX", "(S XX XX )S"),
        ("a", "XX", "(S XX )S"),
        (".", ".", "(S . )S"),
        ("", "", ""),
    ],
)
def test_right_branching_parse(sentence, line, parse):
    gold = trees.read_line(line, sentence.split()).tree
    assert trees.write_line(table4_parsing.right_branching(gold)) == parse


def test_right_branching_scores():
    """Correct spans: S and "sat down"; S and "sit", without the comma."""
    sentences = ["The cat sat down .", "Rex , sit"]
    references = [
        "(S (NP XX XX )NP (VP XX (PRT XX )PRT )VP . )S",
        "(S (NP XX )NP , (VP XX )VP )S",
    ]
    suite = Suite(PARSING)
    scores = table4_parsing.right_branching_scores(suite, sentences, references)
    assert scores["bracketing_recall"] == pytest.approx(100 * 4 / 7)
    assert scores["bracketing_precision"] == pytest.approx(100 * 4 / 5)
