"""From a treebank's folder to the row of Table 4, in one command."""

import json
import os
import pathlib
import sys

import pytest
from forked import ok
from processes import ROOT, run_program

NOUNS = "cat dog hen fox owl bee ant elk".split()
VERBS = "sees likes meets fears".split()


def sentence(number):
    """Return a tree of a small grammar, in the treebank's format."""
    subject, thing = NOUNS[number % 8], NOUNS[number // 8 % 8]
    verb, other = VERBS[number // 64 % 4], NOUNS[number * 5 % 8]
    place = f" (PP-LOC (IN by) (NP (DT the) (NN {other})))" * (number % 2)
    return (
        f"( (S (NP-SBJ (DT The) (NN {subject}))\n"
        f"    (VP (VBZ {verb}) (NP (DT a) (NN {thing})){place})\n    (. .)) )\n"
    )


@pytest.mark.slow
def test_table4_script_prints_the_row(tmp_path):
    treebank = tmp_path / "treebank"
    for section in range(2, 24):
        path = treebank / f"{section:02}" / f"wsj_{section:02}00.mrg"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(map(sentence, range(section, 250, 22))))
    here = pathlib.Path(sys.executable).parent  # of the script's `python`
    result = run_program(
        ROOT / "scripts" / "reproduce" / "table4.sh",
        *("wsj_parsing", treebank, tmp_path),
        *("--hparams_set=tiny", "--problem_args=vocab_size=330"),
        "--hparams=hidden_size=32,filter_size=64,num_heads=2,max_length=64",
        *("--train_steps=40", "--save_checkpoints_steps=8"),
        *("--eval_every=40", "--eval_bleu_sentences=0"),
        env={"PATH": f"{here}:{os.environ['PATH']}"},
    )
    *_, ours, baseline, last = ok(result).rstrip().split("\n")
    row = json.loads(last)
    assert "| t2t_repro, tiny: 11 trees, not section 23 |" in ours
    assert "right-branching" in baseline
    assert row["decode_hparams"]["beam_size"] == 21
    assert row["decode_hparams"]["extra_length"] == 300
    assert f"| {row['scores']['bracketing_f1']:.1f} |" in ours
    assert 0 < row["right_branching"]["bracketing_f1"] < 100
    page = (tmp_path / "wsj_parsing" / "report" / "index.html").read_text()
    assert ", drawn" in page and "<title>The " in page
    assert "bracketing_f1" in page
