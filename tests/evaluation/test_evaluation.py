"""Evaluations from Python, without a model."""

import dataclasses
import errno
import math
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest

from t2t_repro import errors, registry
from t2t_repro.data import manifest
from t2t_repro.evaluation import evaluation
from t2t_repro.io import files
from t2t_repro.metrics.metric import LANGUAGE_MODEL, Metric
from t2t_repro.problem import build_problem, scoring_problem
from t2t_repro.reports import reporting
from t2t_repro.runs.run import Run
from t2t_repro.text import test_sets

LINES = ["Ein Hund läuft nach Hause .", "Zwei Vögel singen im Park ."]
OUTPUTS = evaluation._Outputs(LINES, None)


@pytest.fixture(scope="module")
def captions():
    registry.load_definitions()
    return build_problem("multi30k_ende_lctok")


def test_text_is_scored_in_the_metrics_of_its_problem(captions):
    """The references are normalized; the translations already are."""
    lower = [line.lower() for line in LINES]
    result = evaluation.evaluate(
        captions, test_sets.TestSet(None, [LINES]), lower, samples=1
    )
    assert result.scores["exact_match"] == 100
    assert result.details["signatures"]["bleu_tok"].endswith("text:tokenized")
    assert (
        "bleu_tok, which uses these tokens, is the score to compare"
        in result.text
    )


def test_plain_text_needs_no_registered_problem():
    result = evaluation.evaluate(
        scoring_problem(("en", "de")),
        test_sets.TestSet(None, [LINES]),
        LINES,
        samples=1,
    )
    assert result.scores["bleu"] == pytest.approx(100)
    assert "text:moses-de" in result.details["signatures"]["bleu_tok"]


@pytest.mark.parametrize(
    ("test_set", "translations", "complaint"),
    [
        ("test", LINES, "in a folder of generated data; got no data_dir"),
        (test_sets.TestSet(LINES, [LINES]), None, "nothing to score"),
        (test_sets.TestSet(LINES, [LINES]), LINES[:1], "got 2 and 2 and 1"),
        (test_sets.TestSet(None, [["\udc80"]]), [""], r"line 1 is '\\udc80'"),
    ],
)
def test_missing_or_wrong_input_is_an_error(
    captions, test_set, translations, complaint
):
    with pytest.raises(errors.UserError, match=complaint):
        evaluation.evaluate(captions, test_set, translations)


def test_text_of_a_many_to_many_problem_needs_its_direction():
    registry.load_definitions()
    many = build_problem("multi30k_many")
    test_set = test_sets.TestSet(["Birds", "sing"], [LINES])
    with pytest.raises(errors.UserError, match="has several directions"):
        evaluation.evaluate(many, test_set, LINES)
    with pytest.raises(errors.UserError, match="not of -"):
        evaluation.evaluate(many, "wmt14/full", LINES)
    german = many.toward("de", "en")
    result = evaluation.evaluate(german, test_set, LINES, samples=1)
    assert "text:moses-de" in result.details["signatures"]["bleu_tok"]


def test_text_of_a_direction_is_stored_by_it_and_its_tags_are_no_words():
    registry.load_definitions()
    problem = build_problem("multi30k_many").toward("de", "en")
    texts = test_sets.TestSet(["a " * 10], [["Ein Hund"]], "files/my.en")
    opened = evaluation.open_test_set(None, problem, texts, None)
    assert opened.name == "files/my.en.en-de"
    assert opened.sources == ["<2de> " + texts.sources[0]]
    result = evaluation.evaluate(problem, texts, ["Ein Hund"], samples=1)
    (bucket,) = result.details["by_source_length"]
    assert bucket["longest"] == 10


@pytest.mark.parametrize("directions", [{}, {"en-de": 1, "en-ja": 1}])
def test_missing_package_of_a_metric_is_an_error_before_translation(
    monkeypatch, tmp_path, directions
):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.setattr(evaluation, "_run_models", lambda *_: pytest.fail())
    problem = scoring_problem(("en", "" if directions else "ja"))
    run = Run(tmp_path, {}, problem, None)
    test_set = test_sets.TestSet(LINES, [LINES], directions=directions)
    monkeypatch.setattr(
        evaluation, "open_test_set", lambda *arguments: test_set
    )
    with pytest.raises(errors.UserError, match="'ja'.*needs MeCab"):
        evaluation.evaluate(run)


@pytest.mark.parametrize("folder", ["", "/parent/of/the/run"])
def test_split_of_an_imported_model_needs_text(folder):
    registry.load_definitions()
    settings = {"data_dir": folder, "manifest_sha256": ""}
    run = Run(
        pathlib.Path("run"), settings, build_problem("multi30k_ende"), None
    )
    message = "run has none: .*--sources and --references"
    with pytest.raises(errors.UserError, match=message):
        evaluation.evaluate(run, "test")


def test_stored_translations_that_have_changed_are_no_samples_of_a_report(
    captions, monkeypatch, tmp_path
):
    monkeypatch.setattr(evaluation, "_run_models", lambda *_: (OUTPUTS, {}))
    run = Run(tmp_path, {}, captions, None)
    texts = test_sets.TestSet(LINES, [LINES], "test")
    evaluation.evaluate(run, texts, samples=1)
    monkeypatch.setattr(manifest, "open_corpus", lambda *_: _Corpus())
    path = run.translations_file("test")
    (stored,) = run.stored_scores().values()
    ranked = reporting._samples(run, None, "test", stored)
    assert all(sample.scores["chrf"] == 100 for sample in ranked.best)
    path.write_text(path.read_text().replace("Hund", "Wolf"))
    with pytest.raises(errors.UserError, match="has changed since.*evaluate"):
        reporting._samples(run, None, "test", stored)
    scores = path.with_suffix(".json")
    scores.write_text(scores.read_text().replace('"bleu": ', '"bleu": 1'))
    with pytest.raises(errors.UserError, match="json is damaged"):
        run.stored_scores()


@pytest.fixture
def failing(monkeypatch):
    """The name of a metric that raises an exception."""

    class Failing(Metric):
        def statistics(self, hypotheses, references, sources=None):
            raise ZeroDivisionError("of this metric")

        def aggregate(self, totals):
            return 0.0

    entries = dict(registry.metrics._entries)
    monkeypatch.setattr(registry.metrics, "_entries", entries)
    registry.metrics.register("failing")(Failing)
    return "failing"


def test_metrics_are_chosen_and_their_exceptions_lose_no_translation(
    captions, failing, monkeypatch, tmp_path
):
    monkeypatch.setattr(evaluation, "_run_models", lambda *_: (OUTPUTS, {}))
    run = Run(tmp_path, {}, captions, None)
    texts = test_sets.TestSet(LINES, [LINES], "test")
    names = ("exact_match", "chrf")
    result = evaluation.evaluate(run, texts, metrics=names, samples=1)
    assert tuple(result.scores) == (*names, "signature")
    assert run.stored_scores()["test"]["chrf"] == result.scores["chrf"]
    path = run.translations_file("test")
    path.write_text("")
    message = f"ZeroDivisionError: of this metric(?s:.*)stored in {path}"
    with pytest.raises(errors.UserError, match=message):
        evaluation.evaluate(run, texts, metrics=[failing], samples=1)
    assert path.read_text().splitlines() == LINES
    assert run.stored_scores() == {}  # no scores of other translations
    unnamed = texts._replace(name=None)
    with pytest.raises(errors.UserError, match="stored in") as raised:
        evaluation.evaluate(run, unnamed, metrics=[failing], samples=1)
    kept = re.search(r"--translations=(.*)\.$", str(raised.value))[1]
    assert pathlib.Path(kept).read_text().splitlines() == LINES
    shutil.rmtree(pathlib.Path(kept).parent)
    with pytest.raises(errors.UserError, match="Unknown metric 'chrff'"):
        evaluation.evaluate(run, texts, metrics=["chrff"])


def test_language_model_is_scored_without_translations_and_sources(
    captions, monkeypatch, tmp_path
):
    texts = test_sets.TestSet(None, [LINES], "test")
    run = Run(tmp_path, {}, captions, None)
    monkeypatch.setattr(evaluation, "_run_models", lambda *_: (OUTPUTS, {}))
    evaluation.evaluate(run, texts._replace(sources=LINES), samples=1)
    problem = dataclasses.replace(captions, allow_empty_source=True)
    problem = problem.with_metrics(LANGUAGE_MODEL)

    def run_models(run, task, test_set, settings):
        assert not task.suite.reads_text and test_set.sources == ["", ""]
        rows = np.array([[-math.log(2) * 58, 8]] * 2)
        return evaluation._Outputs(None, rows), {}

    monkeypatch.setattr(evaluation, "_run_models", run_models)
    run = Run(tmp_path, {}, problem, None)
    result = evaluation.evaluate(run, texts)
    assert result.scores["bits_per_byte"] == 2  # 28 bytes and an end each
    assert "by_reference_length" in result.details
    stored = run.stored_scores()["test"]
    assert stored["bits_per_byte"] == 2 and "bleu" not in stored
    assert not run.translations_file("test").exists()  # of earlier scores
    with pytest.raises(errors.UserError, match="or a baseline, has none"):
        evaluation.evaluate(run, texts, baseline=LINES, samples=1)


class _Corpus:
    """Corpus of LINES on both sides."""

    def __len__(self):
        return len(LINES)

    def text(self, side):
        return LINES


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_run_that_cannot_be_written_is_scored_all_the_same(
    captions, monkeypatch, tmp_path, capsys, code
):
    def require_writable(folder):
        raise OSError(code, "it is closed", str(folder))

    monkeypatch.setattr(files, "require_writable", require_writable)
    monkeypatch.setattr(evaluation, "_run_models", lambda *_: (OUTPUTS, {}))
    run = Run(tmp_path, {}, captions, None)
    texts = test_sets.TestSet(LINES, [LINES], "mine")
    if code == errno.ENOSPC:
        with pytest.raises(OSError, match="it is closed"):
            evaluation.evaluate(run, texts, samples=1)
        return
    result = evaluation.evaluate(run, texts, samples=1)
    assert result.scores["bleu"] > 0
    note = f"not stored in {tmp_path / 'translations'}: it is closed."
    assert note in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
