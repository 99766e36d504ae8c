"""A problem, its metric and its hparams set, all in one file of a user's."""

import json
import re

import pytest
from forked import ok

FILE = '''
"""Made-up words, reversed, judged by the letters in their place."""

import dataclasses

from t2t_repro.metrics.metric import Metric
from t2t_repro.problems.parallel_text import ParallelText
from t2t_repro.registry import hparams_sets, metrics, problems


@metrics.register("letters_in_place")
class LettersInPlace(Metric):
    """% of letters that stand in their place."""

    def statistics(self, hypotheses, references, sources=None):
        pairs = zip(hypotheses, references[0], strict=True)
        return [
            (sum(map(str.__eq__, ours.split(), theirs.split())), 5)
            for ours, theirs in pairs
        ]

    def aggregate(self, totals):
        right, letters = totals
        return 100 * right / letters


@problems.register("reversed_letters")
class ReversedLetters(ParallelText):
    """Letters, and the same in capitals from the last to the first."""

    metrics = ("letters_in_place", "exact_match", "bleu")


@hparams_sets.register("reversed_letters_tiny", parent="tiny")
def reversed_letters_tiny(parent):
    """tiny, in small."""
    return dataclasses.replace(
        parent,
        hidden_size=32,
        filter_size=64,
        num_heads=2,
        num_hidden_layers=1,
        batch_tokens=512,
        learning_rate_warmup_steps=50,
        learning_rate_constant=0.07,
    )
'''
NAME = "letters_in_place"
SIGNATURE = "nrefs:1|metric:LettersInPlace"


@pytest.mark.slow
def test_own_metric_leads_validation_evaluation_and_report(
    trained, run, tmp_path
):
    usr, folder = tmp_path / "usr", tmp_path / "run"
    usr.mkdir()
    (usr / "mine.py").write_text(FILE)
    raw = trained / "raw"  # text of other trainings
    flags = (
        f"--usr_dir={usr}",
        "--problem=reversed_letters",
        "--problem_args=name=mine,languages=xx-yy,vocab_size=300",
        f"--data_dir={tmp_path / 'data'}",
        f"--output_dir={folder}",
    )
    result = run(
        "trainer",
        *flags,
        f"--raw_dir={raw}",
        "--hparams_set=reversed_letters_tiny",
        "--train_steps=10",
        "--save_checkpoints_steps=5",
        "--eval_bleu_sentences=6",
        "--early_stopping_evals=5",
        "--early_stopping_metric=exact_match",
    )
    text = ok(result) + result.stderr
    assert f"  {NAME.replace('_', ' ')} " in text
    assert f"{NAME} is measured on 6 of 50 sentences, by greedy search" in text
    for entry in json.loads((folder / "validation.json").read_text()):
        assert 0 <= entry[NAME] <= 100
        assert entry[f"{NAME}_signature"] == SIGNATURE
        assert "exact_match" in entry  # of early stopping
        assert "bleu" not in entry

    baseline = f"--baseline={raw / 'test.yy'}"
    greedy = "--decode_hparams=beam_size=1"
    evaluated = ok(run("evaluate", *flags, baseline, greedy))
    first, *_, last = evaluated.splitlines()
    scores = json.loads(last)
    assert list(scores) == [NAME, "exact_match", "bleu", "signature"]
    assert scores["signature"] == SIGNATURE
    assert first.split()[0] == f"{scores[NAME]:.2f}" and "±" in first
    assert first.endswith(f"{NAME}     % of letters that stand in their place.")
    assert f"{NAME} by words of the source:" in evaluated
    assert f"{NAME} {scores[NAME]:.2f} against 100.00 of the" in evaluated
    stored = json.loads((folder / "translations" / "test.json").read_text())
    assert stored[NAME] == scores[NAME] and stored["checkpoints"]
    assert stored["plus_minus"][NAME] > 0

    ok(run("report", *flags, "--num_sentences=0"))
    page = (folder / "report" / "index.html").read_text("utf-8")
    for part in (
        "letters in place, test",
        "Validation letters in place of a sample, the last",
        "Validation letters in place</figcaption>",
        "% of letters that stand in their place.",
    ):
        assert part in page, part
    # Samples are ranked by it.
    assert re.search(r"; letters in place \d+\.\d, chrF \d", page)
