"""Evaluation of runs and of text."""

import dataclasses
import errno
import json
import math
import pathlib
import re
import shutil
import sys

import file_strategies
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.data import manifest
from t2t_repro.decoding.translation import Translation, missing_note
from t2t_repro.evaluation import evaluation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import LANGUAGE_MODEL, TRANSLATION, Metric, Suite
from t2t_repro.problem import build_problem, scoring_problem
from t2t_repro.reports import page, reporting
from t2t_repro.runs.run import Run
from t2t_repro.text import test_sets

LINES = ["Ein Hund läuft nach Hause .", "Zwei Vögel singen im Park ."]
TEXTS = test_sets.TestSet(LINES, [LINES], "test")
OUTPUTS = evaluation._Outputs(LINES, None)
RANDOM = file_strategies.LINES
FEW = hypothesis.settings(
    max_examples=max(20, hypothesis.settings().max_examples // 5)
)


@pytest.fixture(scope="module")
def captions():
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


@pytest.mark.parametrize(
    ("test_set", "translations", "complaint"),
    [
        ("test", LINES, "in a folder of generated data; got no data_dir"),
        (TEXTS, None, "nothing to score"),
        (TEXTS, LINES[:1], "got 2 references, 2 sources, 1 translations"),
        (
            TEXTS._replace(sources=[]),
            LINES,
            "got 2 references, 0 sources, 2 translations",
        ),
        (test_sets.TestSet(None, [["\udc80"]]), [""], r"line 1 is '\\udc80'"),
    ],
)
def test_wrong_input_is_an_error(captions, test_set, translations, complaint):
    with pytest.raises(errors.UserError, match=complaint):
        evaluation.evaluate(captions, test_set, translations)


def test_text_of_a_many_to_many_problem_needs_its_direction():
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
    with pytest.raises(errors.UserError, match="'ja'.*needs MeCab"):
        evaluation.evaluate(run, test_set)


@pytest.mark.parametrize("folder", ["", "/parent/of/the/run"])
def test_split_of_an_imported_model_needs_text(folder):
    settings = {"data_dir": folder, "manifest_sha256": ""}
    problem = build_problem("multi30k_ende")
    run = Run(pathlib.Path("run"), settings, problem, None)
    message = "run has none: .*--sources and --references"
    with pytest.raises(errors.UserError, match=message):
        evaluation.evaluate(run, "test")


@pytest.fixture
def run(captions, monkeypatch, tmp_path):
    """Return a run that translates LINES, or anything else, as LINES."""
    monkeypatch.setattr(evaluation, "_run_models", lambda *_: (OUTPUTS, {}))
    return Run(tmp_path, {}, captions, None)


def test_stored_translations_that_have_changed_are_no_samples_of_a_report(
    run, monkeypatch, capsys
):
    evaluation.evaluate(run, TEXTS, samples=1)
    monkeypatch.setattr(manifest, "require", lambda _: {"splits": ["test"]})
    monkeypatch.setattr(manifest, "open_corpus", lambda *_: _Corpus())
    path = run.stored("test").translations
    (stored,) = run.stored_scores().values()
    ranked = reporting._samples(run, None, "test", stored)
    assert all(sample.scores["chrf"] == 100 for sample in ranked.best)
    (ours := run.stored("test")).write_translations(LINES)
    run.stored("test").write_translations(["of another process"])
    ours.write_scores(stored)
    with pytest.raises(errors.UserError, match="has changed since"):
        ours.read_translations(run.stored_scores()["test"])
    evaluation.evaluate(run, TEXTS, samples=1)
    path.write_text(path.read_text().replace("Hund", "Wolf"))
    assert reporting._samples(run, None, "test", stored) is None
    assert "no samples of test. " in (note := capsys.readouterr().err)
    assert "has changed since its lines were scored" in note
    scores = path.with_suffix(".json")
    scores.write_text(scores.read_text().replace('"bleu": ', '"bleu": 1'))
    with pytest.raises(errors.UserError, match="json is damaged"):
        run.stored_scores()


def test_stored_scores_belong_to_their_text_and_directions(run, monkeypatch):
    whole = _many()[1]
    monkeypatch.setattr(manifest, "require", lambda _: {"splits": ["test"]})
    monkeypatch.setattr(evaluation, "open_split", lambda *_: whole)
    chosen = ("", ""), ("de", ""), ("en", "de"), ("", "en")
    for part in (whole.toward(*languages) for languages in chosen):
        stored = {"text_sha256": files.json_checksum(part.texts)}
        for known in (stored, {}):  # those of earlier versions
            found = evaluation.open_scored(run, None, part.name, known)
            assert found == part
        name = part.name.rstrip("-")  # of an earlier version
        assert evaluation.open_scored(run, None, name, stored) == part
    assert evaluation.open_scored(run, None, "files/my.en", {}) is None
    with pytest.raises(errors.UserError, match="another text.*split=test"):
        evaluation.open_scored(run, None, "test", {"text_sha256": "of before"})


def test_metrics_are_chosen_and_their_exceptions_lose_no_translation(
    run, registries
):
    @registries.metrics.register("failing")
    class Failing(Metric):
        def statistics(self, hypotheses, references, sources=None):
            raise ZeroDivisionError("of this metric")

        def aggregate(self, totals):
            return 0.0

    @registries.metrics.register("silent")
    class Silent(Metric):
        def statistics(self, hypotheses, references, sources=None):
            return [[1]] * len(hypotheses)

        def aggregate(self, totals):
            return None

    with pytest.raises(errors.UserError, match="'silent' must .*got None"):
        evaluation.evaluate(run, TEXTS, metrics=["silent"])
    names = ("exact_match", "chrf")
    result = evaluation.evaluate(run, TEXTS, metrics=names, samples=1)
    assert tuple(result.scores) == (*names, "signature")
    assert run.stored_scores()["test"]["chrf"] == result.scores["chrf"]
    path = run.stored("test").translations
    path.write_text("")
    message = f"ZeroDivisionError: of this metric(?s:.*)stored in {path}"
    with pytest.raises(errors.UserError, match=message):
        evaluation.evaluate(run, TEXTS, metrics=["failing"], samples=1)
    assert path.read_text().splitlines() == LINES
    assert run.stored_scores() == {}  # no scores of other translations
    unnamed = TEXTS._replace(name=None)
    with pytest.raises(errors.UserError, match="stored in") as raised:
        evaluation.evaluate(run, unnamed, metrics=["failing"], samples=1)
    kept = re.search(r"--translations=(.*)\.$", str(raised.value))[1]
    assert pathlib.Path(kept).read_text().splitlines() == LINES
    shutil.rmtree(pathlib.Path(kept).parent)
    with pytest.raises(errors.UserError, match="Unknown metric 'chrff'"):
        evaluation.evaluate(run, TEXTS, metrics=["chrff"])


def test_language_model_is_scored_without_translations_and_sources(
    run, captions, monkeypatch
):
    translated = evaluation.evaluate(run, TEXTS, samples=1).scores
    texts = TEXTS._replace(sources=None)
    problem = dataclasses.replace(captions, allow_empty_source=True)
    problem = problem.with_metrics(LANGUAGE_MODEL)

    def run_models(run, task, test_set, settings):
        assert not task.suite.reads_text and test_set.sources == ["", ""]
        rows = np.array([[-math.log(2) * 58, 8]] * 2)
        return evaluation._Outputs(None, rows), {}

    monkeypatch.setattr(evaluation, "_run_models", run_models)
    run = dataclasses.replace(run, problem=problem)
    result = evaluation.evaluate(run, texts)
    assert result.scores["bits_per_byte"] == 2  # 28 bytes and an end each
    assert "by_reference_length" in result.details
    stored = run.stored_scores()["test"]
    assert stored == stored | translated | {"bits_per_byte": 2}
    assert stored["headline"] == "bleu_tok"
    assert stored["signatures"].keys() >= {"bleu", "bits_per_byte"}
    assert run.stored("test").read_translations(stored) == LINES
    evaluation.evaluate(run, texts._replace(name="files/a.en"))
    assert run.stored_scores()["files/a.en"]["bits_per_byte"] == 2
    with monkeypatch.context() as patch:  # in the other order
        patch.setattr(evaluation, "_run_models", lambda *_: (OUTPUTS, {}))
        text_only = dataclasses.replace(run, problem=captions)
        evaluation.evaluate(text_only, TEXTS, metrics=["chrf"], samples=1)
    again = run.stored_scores()["test"]
    assert again["bits_per_byte"] == 2 and "bleu_tok" not in again
    assert again["signatures"].keys() == {"chrf", *LANGUAGE_MODEL}
    other = {"checkpoints_sha256": ["another"], "bits_per_byte": 3.0}
    run.stored("test").write_scores(other)
    assert run.stored_scores()["test"] == other
    assert not run.stored("test").translations.exists()
    with pytest.raises(errors.UserError, match="or a baseline, has none"):
        evaluation.evaluate(run, texts, baseline=LINES, samples=1)


class _Corpus:
    def __len__(self):
        return len(LINES)

    def text(self, side):
        return LINES


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_run_that_cannot_be_written_is_scored_all_the_same(
    run, monkeypatch, tmp_path, capsys, code
):
    def require_writable(folder):
        raise OSError(code, "it is closed", str(folder))

    monkeypatch.setattr(files, "require_writable", require_writable)
    if code == errno.ENOSPC:
        with pytest.raises(OSError, match="it is closed"):
            evaluation.evaluate(run, TEXTS, samples=1)
        return
    result = evaluation.evaluate(run, TEXTS, samples=1)
    assert result.scores["bleu"] > 0
    note = f"not stored in {tmp_path / 'translations'}: it is closed."
    assert note in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_disk_that_fills_up_costs_neither_earlier_nor_new_scores(
    run, monkeypatch, capsys
):
    run.stored("test").write_scores({"text_sha256": "ab"})
    evaluation.evaluate(run, TEXTS, samples=1)
    note = "stored scores of test were of other text, and are replaced."
    assert note in capsys.readouterr().err
    before, folder = run.stored_scores(), run.translations_folder

    def write_text(path, text, write=files.write_text):
        if path.parent == folder:
            raise OSError(errno.ENOSPC, "no space")
        write(path, text)

    monkeypatch.setattr(files, "write_text", write_text)
    result = evaluation.evaluate(run, TEXTS, samples=1)
    assert result.scores["bleu"] > 0
    kept = re.search(r"translations are in (.*);", capsys.readouterr().err)[1]
    assert pathlib.Path(kept).read_text().splitlines() == LINES
    shutil.rmtree(pathlib.Path(kept).parent)
    assert run.stored_scores() == before


HYPOTHESES = ["the cat sat on the mat", "a dog ran home today"]
REFERENCES = [["the cat sat on a mat", "a dog ran home today"]]
SOURCES = ["die Katze " * 6, "ein Hund"]
WITHOUT_SOURCES = test_sets.TestSet(None, REFERENCES)
WITH_SOURCES = test_sets.TestSet(SOURCES, REFERENCES)


def test_buckets_are_of_source_lengths_if_known_and_of_the_headline_metric():
    result = evaluation.score(HYPOTHESES, WITH_SOURCES, Suite(), samples=5)
    assert "bleu by words of the source" in result.text
    counts = [b["sentences"] for b in result.details["by_source_length"]]
    assert counts == [1, 1]
    suite = Suite(tokenized=True)
    result = evaluation.score(HYPOTHESES, WITHOUT_SOURCES, suite, samples=1)
    (row,) = result.details["by_reference_length"]
    assert row["bleu_tok"] == result.scores["bleu_tok"] and "bleu" not in row
    assert "bleu_tok by words of the reference" in result.text


def test_details_are_json_with_all_printed_figures(monkeypatch):
    name = "Multi30k test_2016_flickr en-de, 1,000 lines"
    monkeypatch.setattr(
        evaluation.published, "identify_test_set", lambda lines: name
    )
    result = evaluation.score(
        HYPOTHESES, WITH_SOURCES, Suite(), REFERENCES[0], 5
    )
    expected = scores.score(Suite(), HYPOTHESES, REFERENCES)
    assert result.scores == scores.values_and_signature(
        Suite().build(), expected
    )
    assert json.loads(json.dumps(result.details)) == result.details
    assert set(result.details["plus_minus"]) == set(TRANSLATION)
    assert result.details["published"][0]["score"] == 41.02
    tested = [one["metric"] for one in result.details["baseline"]]
    assert tested == list(TRANSLATION)
    assert result.details["baseline"][0]["baseline"] > result.scores["bleu"]
    lines = result.text.splitlines()
    row = lines[lines.index(f"Published for {name}:") + 1]
    assert row.split()[0] == "41.02" and "arXiv 2105.14462" in row
    assert "against 100.00 of the baseline" in result.text
    assert "tok:intl" in result.verification


def _many():
    """Return hypotheses and a test set, of which the first is wrong."""
    directions = {"en-de": 2, "de-en": 1}
    references = ["eins zwei", "drei", "one"]
    test_set = test_sets.TestSet(["a"] * 3, [references], "test", directions)
    return ["zwei", "drei", "one"], test_set


def test_scores_of_directions_are_averaged():
    suite = Suite(("exact_match", "bleu_tok"))
    result = evaluation.score(*_many(), suite, samples=5)
    assert result.scores["exact_match"] == 75
    assert list(result.scores)[-2:] == ["signature", "directions"]
    by_direction = result.scores["directions"]
    assert by_direction["en-de"]["exact_match"] == 50
    assert by_direction["de-en"]["exact_match"] == 100
    rows = [line.split() for line in result.text.splitlines()]
    assert rows[0][:3] == ["direction", "exact_match", "bleu_tok"]
    assert [row[:2] for row in rows[1:4]] == [
        ["en-de", "50.00"],
        ["de-en", "100.00"],
        ["mean", "75.00"],
    ]
    spread = result.details["directions_plus_minus"]["en-de"]["exact_match"]
    assert spread > 0 and rows[1][3] == f"{spread:.2f}"
    assert len(rows[3]) == 3  # the mean has none
    signature = result.details["signatures"]["bleu_tok"]
    assert "text:moses" not in signature  # the language differs
    assert signature.endswith("|mean:en-de,de-en")
    assert json.loads(json.dumps(result.details)) == result.details


def test_baseline_is_compared_in_each_direction():
    hypotheses, test_set = _many()
    suite = Suite(("exact_match",))
    result = evaluation.score(hypotheses, test_set, suite, ["zwei"] * 3, 5)
    rows = result.details["baseline"]
    assert [row["direction"] for row in rows] == ["en-de", "de-en"]
    lines = result.text.splitlines()[-2:]
    assert [line.split(":")[0] for line in lines] == ["en-de", "de-en"]
    with pytest.raises(errors.UserError, match="same number of lines"):
        evaluation.score(hypotheses[:2], test_set, suite)


def test_lines_that_were_translated_as_nothing_are_counted(capsys):
    class Doubting:
        def translate(self, lines, total, side):
            found = {"ja": "yes"}
            return [Translation([found.get(line, "")], [0.0]) for line in lines]

    sources = ["ja", "nein", "", "\u200b", "vielleicht"]
    texts = evaluation._best_texts(Doubting(), sources, DecodeHParams(), None)
    assert texts == ["yes", "", "", "", ""]
    assert "2 of 5 lines were translated as nothing" in capsys.readouterr().err
    found = [Translation([""], [score]) for score in (math.nan, -1e9, -3.0)]
    assert ", 2 of them because the search rules" in missing_note(found, 3)


@FEW
@hypothesis.given(
    st.lists(st.tuples(RANDOM, RANDOM, RANDOM), min_size=1, max_size=3),
    st.booleans(),
)
def test_any_translations_are_scored(rows, tokenized):
    sources, hypotheses, references = map(list, zip(*rows, strict=True))
    test_set = test_sets.TestSet(sources, [references])
    made = evaluation.score(
        hypotheses, test_set, Suite(tokenized=tokenized), samples=10
    )
    assert set(made.scores) == {*TRANSLATION, "signature"}
    for key in TRANSLATION:
        assert 0 <= made.scores[key] < math.inf
        assert key in ("ter", "length_ratio") or made.scores[key] < 100.1
    stored = json.loads(json.dumps(made.scores | made.details))
    assert set(page.read_scores(stored).numbers) == set(TRANSLATION)
    same = sum(a == b for a, b in zip(hypotheses, references, strict=True))
    assert made.scores["exact_match"] == 100 * same / len(rows)
