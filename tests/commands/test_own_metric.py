"""A problem, its metric and its hparams set, all in one file of a user's."""

import json
import pathlib
import re

import pytest
from forked import error, ok

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


@pytest.fixture(scope="module")
def flags(trained, tmp_path_factory):
    """Return flags that name the problem, on the text of other trainings."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "usr").mkdir()
    (folder / "usr" / "mine.py").write_text(FILE)
    return (
        f"--usr_dir={folder / 'usr'}",
        "--problem=reversed_letters",
        "--problem_args=name=mine,languages=xx-yy,vocab_size=300",
        f"--data_dir={folder / 'data'}",
        f"--output_dir={folder / 'run'}",
    )


@pytest.fixture(scope="module")
def train(trained, run, flags):
    """Return a function that runs the trainer with more flags."""
    return lambda *more: run(
        "trainer",
        *flags,
        f"--raw_dir={trained / 'raw'}",
        "--hparams_set=reversed_letters_tiny",
        "--train_steps=10",
        "--save_checkpoints_steps=5",
        "--eval_bleu_sentences=6",
        *more,
    )


@pytest.fixture(scope="module")
def learned(train, flags):
    """Return the folder of a run, and what the trainer printed."""
    result = train(
        "--early_stopping_evals=5", "--early_stopping_metric=exact_match"
    )
    text = ok(result) + result.stderr
    return pathlib.Path(flags[-1].partition("=")[2]), text


def test_early_stopping_refuses_a_metric_of_another_problem(train):
    result = train("--early_stopping_evals=5", "--early_stopping_metric=chrf")
    message = error(result)
    assert "names, letters_in_place, exact_match, bleu; got" in message
    assert "parameters:" not in result.stdout


@pytest.mark.slow
def test_validations_have_the_headline_metric(learned):
    folder, text = learned
    assert f"  {NAME.replace('_', ' ')} " in text
    assert f"{NAME} is measured on 6 of 50 sentences, by greedy search" in text
    first, last = json.loads((folder / "validation.json").read_text())
    for entry in (first, last):
        assert 0 <= entry[NAME] <= 100
        assert entry[f"{NAME}_signature"] == SIGNATURE
        assert "exact_match" in entry  # of early stopping
        assert "bleu" not in entry


@pytest.fixture(scope="module")
def evaluated(learned, flags, run, trained):
    baseline = f"--baseline={trained / 'raw' / 'test.yy'}"
    greedy = "--decode_hparams=beam_size=1"
    return ok(run("evaluate", *flags, baseline, greedy))


@pytest.mark.slow
def test_evaluate_prints_the_headline_first(learned, evaluated):
    scores = json.loads(evaluated.splitlines()[-1])
    assert list(scores) == [NAME, "exact_match", "bleu", "signature"]
    assert scores["signature"] == SIGNATURE
    first = evaluated.splitlines()[0]
    assert first.split()[0] == f"{scores[NAME]:.2f}" and "±" in first
    assert first.endswith(f"{NAME}     % of letters that stand in their place.")
    assert f"{NAME} by words of the source:" in evaluated
    assert f"{NAME} {scores[NAME]:.2f} against 100.00 of the" in evaluated
    folder, _ = learned
    stored = json.loads((folder / "translations" / "test.json").read_text())
    assert stored[NAME] == scores[NAME] and stored["checkpoints"]
    assert stored["plus_minus"][NAME] > 0


@pytest.mark.slow
def test_report_shows_the_metric(learned, evaluated, flags, run):
    folder, _ = learned
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


def test_registry_help_lists_the_metric(flags, run):
    text = ok(run("show", flags[0], "--registry_help"))
    metrics = text.partition("metrics:\n")[2]
    assert f"  {NAME:24} % of letters that stand in their place." in metrics
    assert "mine.py" in metrics and "metrics/translation.py" in metrics
