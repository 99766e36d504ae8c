"""Scores of the checkpoints of a run: stored, printed, and extended."""

import dataclasses
import json

import pytest

from t2t_repro import errors, registry
from t2t_repro.decoding import translate
from t2t_repro.decoding.translation import Translation
from t2t_repro.evaluation import evaluation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files
from t2t_repro.metrics.metric import Suite
from t2t_repro.problem import Problem, scoring_problem
from t2t_repro.runs import checkpoint_files, checkpoints, history
from t2t_repro.runs.checkpoints import CheckpointReader
from t2t_repro.runs.history import CheckpointScores
from t2t_repro.runs.run import Run
from t2t_repro.text import test_sets
from t2t_repro.text.vocabulary import Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies

SUITE = Suite(("ter", "exact_match"))
TEXT = test_sets.TestSet(["a", "b"], [["A", "B"]], "test")


def add(stored, step, **values):
    stored.add(step, f"sha{step}", {"scores": values})


def test_scores_are_stored_by_step_and_replaced(tmp_path):
    for step, value in ((9, 1.0), (4, 3.0), (9, 2.0)):
        add(CheckpointScores(tmp_path, "a/b", {"x": 1}), step, ter=value)
    stored = CheckpointScores(tmp_path, "a/b", {"x": 1})
    assert [entry["step"] for entry in stored.entries] == [4, 9]
    assert stored.has(9, "sha9") and not stored.has(9, "sha4")
    read = history.score_curves(tmp_path, "ter")
    assert read == {"a/b": [(4, 3.0), (9, 2.0)]}
    assert history.score_curves(tmp_path, "bleu") == {"a/b": []}
    add(CheckpointScores(tmp_path, "a/b", {"x": 2}), 9, ter=4.0)
    assert history.score_curves(tmp_path, "ter") == {"a/b": [(9, 4.0)]}
    former = files.read_json(*tmp_path.rglob("b.json.former"))
    assert [entry["step"] for entry in former["checkpoints"]] == [4, 9]
    assert history.score_curves(tmp_path / "absent", "ter") == {}


def test_table_marks_the_best_headline(tmp_path):
    stored = CheckpointScores(tmp_path, "test", {})
    add(stored, 1_000, ter=30.0, exact_match=1.0)
    add(stored, 2_000, ter=20.5, exact_match=0.5)
    assert stored.table(SUITE).splitlines() == [
        "     step        ter  exact_match",
        "    1,000      30.00         1.00",
        "    2,000 *    20.50         0.50",
    ]
    lines = stored.table(Suite(("exact_match", "ter"))).splitlines()
    assert [" * " in line for line in lines] == [False, True, False]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a run with checkpoints 1 and 2, which translate alike."""
    (tmp_path / checkpoint_files.CHECKPOINTS).mkdir()
    for step in (1, 2):
        save(tmp_path, step)

    class Upper:
        """Translator of the source, or the side input, to capital letters."""

        def __init__(self, *_):
            pass

        def refresh_weights(self):
            pass

        def translate(self, lines, count, side=None):
            return [Translation([x.upper()], [0.0]) for x in side or lines]

    monkeypatch.setattr(translate, "BatchTranslator", Upper)
    monkeypatch.setattr(Run, "build_model", lambda run: None)
    monkeypatch.setattr(Problem, "metrics", SUITE.names)
    problem = scoring_problem(("en", "de"))
    vocabularies = Vocabularies.shared(Vocabulary(b"pieces"))
    monkeypatch.setattr(Run, "vocabularies", vocabularies)
    return Run(tmp_path, {}, problem, None)


def save(folder, step):
    path = folder / checkpoint_files.CHECKPOINTS / f"ckpt-{step}.index"
    path.write_text(f"weights of {step}")
    return path


@pytest.fixture
def restored(monkeypatch):
    steps = []
    monkeypatch.setattr(
        checkpoints,
        "restore_weights",
        lambda model, path, sha256: steps.append(path.name),
    )
    return steps


def test_each_checkpoint_is_scored_once(run, restored):
    evaluation.evaluate_checkpoints(run, TEXT, samples=1)
    assert restored == ["ckpt-1", "ckpt-2"]
    save(run.output_dir, 3)
    save(run.output_dir, 1).unlink()  # training went on meanwhile
    stored = evaluation.evaluate_checkpoints(run, TEXT, samples=1)
    assert restored == ["ckpt-1", "ckpt-2", "ckpt-3"]
    assert [entry["step"] for entry in stored.entries] == [1, 2, 3]
    scores = {"ter": 0.0, "exact_match": 100.0}
    assert stored.entries[0]["scores"] == scores
    path = run.output_dir / "checkpoint_scores" / "test.json"
    assert json.loads(path.read_text())["checkpoints"] == stored.entries
    other = test_sets.TestSet(["c"], [["D"]], "test")
    stored = evaluation.evaluate_checkpoints(run, other, samples=1)
    assert [entry["step"] for entry in stored.entries] == [2, 3]


def test_scores_with_other_side_inputs_are_others(run, restored):
    others = ["x" for _ in TEXT.sources]
    for side, score in ((others, 0.0), (TEXT.sources, 100.0)):
        stored = evaluation.evaluate_checkpoints(run, TEXT, side=side)
        assert stored.entries[0]["scores"]["exact_match"] == score
    assert restored == 2 * ["ckpt-1", "ckpt-2"]
    with pytest.raises(errors.UserError, match="one side input; got 0 for 2"):
        evaluation.evaluate_checkpoints(run, TEXT, side=[])


def test_scores_with_other_words_of_a_rule_are_others(run, restored, tmp_path):
    search = DecodeHParams(rules=f"forbid:file={tmp_path / 'words'}")
    for text in "aab":
        (tmp_path / "words").write_text(text)
        evaluation.evaluate_checkpoints(run, TEXT, decode_hparams=search)
    assert restored == 2 * ["ckpt-1", "ckpt-2"]


def test_scores_of_tokens_are_others_than_of_text(run, restored, monkeypatch):
    evaluation.evaluate_checkpoints(run, TEXT, samples=1)
    monkeypatch.setitem(vars(run.problem), "tokenized", True)
    evaluation.evaluate_checkpoints(run, TEXT, samples=1)
    assert restored == 2 * ["ckpt-1", "ckpt-2"]


@pytest.fixture
def usr_dir(tmp_path, registries):
    (tmp_path / "definitions").mkdir()
    return tmp_path / "definitions"


METRIC = """\
from t2t_repro.io import files
from t2t_repro.metrics.translation import ExactMatch
from t2t_repro.registry import metrics

@metrics.register("own")
class Own(ExactMatch):
    pass
"""


@pytest.mark.parametrize("settings", [{}, {"rerank": "mbr:metric=own"}])
def test_scores_are_computed_again_after_the_code_of_a_metric_changed(
    run, restored, usr_dir, settings
):
    def evaluate(code, metrics=("ter",) if settings else ("own",)):
        (usr_dir / "own.py").write_text(code)
        registry.load_definitions(usr_dir)
        evaluation.evaluate_checkpoints(
            run,
            TEXT,
            decode_hparams=DecodeHParams(**settings),
            metrics=metrics,
            samples=1,
        )
        return len(restored)

    assert evaluate(METRIC) == evaluate(METRIC) == 2
    (usr_dir / "other.py").touch()
    assert evaluate(METRIC) == 2
    assert evaluate(METRIC + "# changed") == evaluate(METRIC + "# changed") == 4


def test_scores_before_a_setting_of_the_search_was_added_stay(run, restored):
    evaluation.evaluate_checkpoints(run, TEXT, samples=1)
    path = run.output_dir / "checkpoint_scores" / "test.json"
    stored = json.loads(path.read_text())
    del stored["settings"]["decode_hparams"]["rerank"]
    path.write_text(json.dumps(stored))
    evaluation.evaluate_checkpoints(run, TEXT, samples=1)
    assert restored == ["ckpt-1", "ckpt-2"]


def test_checkpoint_that_training_removes_is_skipped(run, monkeypatch):
    def restore(model, path, sha256):
        if path.name == "ckpt-1":
            path.with_name("ckpt-1.index").unlink()
            raise errors.UserError("There is no checkpoint")

    monkeypatch.setattr(checkpoints, "restore_weights", restore)
    stored = evaluation.evaluate_checkpoints(run, TEXT, samples=1)
    assert [entry["step"] for entry in stored.entries] == [2]


def test_checkpoint_whose_data_left_the_store_is_skipped(run, monkeypatch):
    def fetch(path):
        if path.name == "ckpt-1":
            raise FileNotFoundError(path)

    monkeypatch.setattr(checkpoint_files, "fetch_data", fetch)
    monkeypatch.setattr(
        checkpoints,
        "restore_weights",
        lambda model, path, sha256: CheckpointReader(path),
    )
    with pytest.raises(errors.UserError, match="ckpt-2 is damaged"):
        evaluation.evaluate_checkpoints(run, TEXT, samples=1)


def test_no_checkpoints_and_text_without_sources_are_errors(run, tmp_path):
    with pytest.raises(errors.UserError, match="references without sources"):
        evaluation.evaluate_checkpoints(run, TEXT._replace(sources=None))
    empty = dataclasses.replace(run, output_dir=tmp_path / "empty")
    with pytest.raises(errors.UserError, match="There is no checkpoint in"):
        evaluation.evaluate_checkpoints(empty, TEXT)
