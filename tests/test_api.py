"""The interface for Python: runs, checkpoints and exports."""

import os
import pathlib
import shutil

import numpy as np
import pytest
from stored_run import FIXTURE, RUN

import t2t_repro
from t2t_repro import errors
from t2t_repro.decoding import reranking, translation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import Problem, build_problem
from t2t_repro.text import test_sets

PAIRS = [
    line.split("\t") for line in (FIXTURE / "pairs.tsv").read_text().split("\n")
][:-1]
SOURCES, TARGETS = zip(*PAIRS, strict=True)
# Log-probabilities, from the version that trained the run.
SCORES = [
    float(line.split("\t")[0])
    for line in (FIXTURE / "scores.tsv").read_text().splitlines()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    shutil.copytree(RUN, folder / "run")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return t2t_repro.load(folder / "run")


@pytest.fixture(scope="module")
def export(stored_export):
    return t2t_repro.load(stored_export)


@pytest.fixture(params=["run", "export"])
def model(request):
    return request.getfixturevalue(request.param)


def test_scores_are_log_probabilities(model):
    np.testing.assert_allclose(
        model.score(SOURCES, TARGETS), SCORES, rtol=1e-3, atol=1e-3
    )


def test_problem_without_a_name_is_not_trained(tmp_path):
    with pytest.raises(errors.UserError, match="by name; got a Problem"):
        t2t_repro.train(Problem(vocab_size=9), "tiny", tmp_path / "run")
    with pytest.raises(errors.UserError, match="'vocab_size': 8.* build_prob"):
        t2t_repro.train(
            build_problem("number_words_ende"),
            "tiny",
            tmp_path / "run",
            problem_args={"vocab_size": 8},
        )
    with pytest.raises(errors.UserError, match="t2t trainer --dry_run"):
        t2t_repro.train("number_words_ende", "tiny", tmp_path, dry_run=True)
    assert not (tmp_path / "run").exists()


def test_reranker_of_a_run_with_a_new_checkpoint_is_built_again(
    run, registries, tmp_path
):
    @registries.rerankers.register("reading")
    class Reading(reranking.Reranker):
        def __init__(self, run: str):
            self.found = run

        def score(self, source, candidates):
            return candidates.scores

    (tmp_path / "checkpoints").mkdir()
    search = DecodeHParams(rerank=f"reading:run={tmp_path}")
    first = run._translator_of(search)
    assert run._translator_of(search) is first
    (tmp_path / "checkpoints" / "ckpt-2.index").touch()
    os.utime(tmp_path / "checkpoints", (0, 0))
    assert run._translator_of(search) is not first


def test_translations_begin_with_their_prefixes(run, export):
    prefixes = [target[:2] for target in TARGETS[:2]]
    found = run.translate(SOURCES[:2], prefixes=prefixes)
    for each, prefix in zip(found, prefixes, strict=True):
        assert each.text.startswith(prefix)
    free = run.translate(SOURCES[:2])
    assert run.translate(SOURCES[:2], prefixes=["", ""]) == free
    with pytest.raises(errors.UserError, match="an export with --max_beam"):
        export.translate(SOURCES[:2], prefixes=prefixes)
    with pytest.raises(errors.UserError, match="needs one prefix; got 1 for 2"):
        run.translate(SOURCES[:2], prefixes=["a"])


def test_rules_read_side_inputs(run, say):
    found = run.translate(SOURCES, rules="say", beam_size=1, side=TARGETS)
    assert tuple(each.text for each in found) == TARGETS
    result = run.evaluate(
        test_sets.TestSet(SOURCES, [TARGETS]),
        decode_hparams=DecodeHParams(rules="say", beam_size=1),
        side=TARGETS,
        metrics=["exact_match"],
        samples=1,
    )
    assert result.scores["exact_match"] == 100
    assert result.details["side_sha256"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"n_best": 4}, (["a", "a", "b"], [-1.0, -2.0, -3.0])),
        ({"n_best": 2}, (["a", "a"], [-1.0, -2.0])),
        ({"n_best": 2, "distinct": True}, (["a", "b"], [-1.0, -3.0])),
    ],
)
def test_export_drops_beams_without_an_output_and_repeated_texts(
    monkeypatch, export, settings, expected
):
    outputs = {
        "outputs": np.array([["a", "a", "b", ""]], object),
        "scores": np.array([[-1.0, -2.0, -3.0, -1e9]]),
    }
    monkeypatch.setattr(export, "run", lambda *_: outputs)
    (found,) = export.translate(["x"], **settings)
    assert found == translation.Translation(*expected)


def test_one_translation_is_the_first_also_if_distinct(monkeypatch, export):
    asked = []
    monkeypatch.setattr(
        export, "_run", lambda *given: asked.append(given) or ()
    )
    export.translate(["x"], distinct=True, beam_size=3)
    assert asked[0][1]["n_best"] == [1]  # of 0, samples would come best first


@pytest.mark.slow
def test_distinct_samples_have_different_texts(run):
    settings = dict(beam_size=8, sampling_temp=0.6, n_best=8)
    samples = run.translate([*SOURCES[:4], ""], **settings)
    assert any(len({*each.texts}) < len(each.texts) for each in samples[:4])
    distinct = run.translate([*SOURCES[:4], ""], **settings, distinct=True)
    assert [[*dict.fromkeys(each.texts)] for each in samples] == [
        each.texts for each in distinct
    ]
    assert distinct[-1].texts == [""] and samples[-1].texts == [""] * 8


def test_attention_of_export_is_the_mean_of_heads(run, export):
    ours, theirs = (model.attention(SOURCES[0]) for model in (run, export))
    assert ours[:4] == theirs[:4]
    np.testing.assert_allclose(
        ours.weights.cross.mean(1, keepdims=True),
        theirs.weights.cross,
        atol=1e-5,
    )


BEAMS = "n_best must be from 1 to beam_size=.;"


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("translate", ["two"], "list of lines; got the str 'two'"),
        ("translate", [["two"], 9], f"{BEAMS} got 9"),
        ("translate", [["two"], "2"], f"{BEAMS} got '2'"),
        ("translate", [[None]], "line 1 is None"),
        ("translate", [None], "got the NoneType None"),
        ("translate", [["ok", "\ud83d"]], r"line 2 is '\\ud83d"),
        (
            "attention",
            [""],
            "Attention is shown .*(1 to 127 .* got 0 in|that have text)",
        ),
        (
            "attention",
            ["two " * 1_000],
            "Attention is shown .*(got 4000 in|that have text)",
        ),
        ("attention", ["\ud83d"], r"line 1 is '\\ud83d"),
        ("score", ["two", "zwei"], "got the str 'two'"),
        (
            "score",
            [["two"], ["a", "b"]],
            "needs one target; got 2 for 1 sources",
        ),
    ],
)
def test_mistakes(model, method, arguments, message):
    with pytest.raises(errors.UserError, match=message):
        getattr(model, method)(*arguments)


def test_model_remains_when_the_working_directory_changes(
    folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(folder)
    model = t2t_repro.load("run/checkpoints/ckpt-300")
    monkeypatch.chdir(tmp_path)
    lines = test_sets.TestSet(SOURCES[:1], [TARGETS[:1]], "files/lines")
    search = {"beam_size": 1}
    found = model.evaluate(lines, samples=1, decode_hparams=search)
    assert found.details["decode_hparams"]["beam_size"] == 1
    assert (folder / "run" / "translations" / "files" / "lines.txt").exists()


def test_end_of_a_long_pair_is_not_scored_without_a_word(model):
    with pytest.warns(UserWarning, match="1 .*their ends are ignored"):
        model.score(["two"], ["zwei " * 1_000])


def test_wrong_arguments_of_an_export_are_refused(run, stored_export):
    with pytest.raises(errors.UserError, match="is a version of an export"):
        run.export(next(stored_export.glob("[0-9]*")))
    with pytest.raises(errors.UserError, match="format must be one of saved_"):
        run.export(format="onnx")
    with pytest.raises(errors.UserError, match="float16, .*; got 'int8'"):
        run.export(weights_dtype="int8")


def test_model_and_package_show_what_they_have(run):
    assert repr(run).endswith("run: checkpoints/ckpt-300>")
    assert {"load", "train", "registry"} <= {*dir(t2t_repro)}


def test_unknown_settings_are_named(run, tmp_path):
    with pytest.raises(errors.UserError, match="Did you mean beam_size"):
        run.translate(["two"], beams=3)
    with pytest.raises(errors.UserError, match="follows from n_best; got ret"):
        run.translate(["two"], return_beams=True)
    with pytest.raises(errors.UserError, match="Did you mean train_steps"):
        t2t_repro.train("number_words_ende", "tiny", tmp_path, steps=3)
    for name, value in (("data_dir", None), ("num_workers", 0), ("engine", 3)):
        with pytest.raises(errors.UserError, match=f"{name} must be"):
            t2t_repro.train(
                "number_words_ende", "tiny", tmp_path, **{name: value}
            )
    with pytest.raises(AttributeError, match="no attribute 'loads'"):
        _ = t2t_repro.loads


def test_folder_without_a_model(tmp_path):
    for path in (tmp_path, tmp_path / "lost", tmp_path / "a" / "ckpt-3"):
        with pytest.raises(errors.UserError, match="no model in"):
            t2t_repro.load(path)


def test_long_line_is_refused_where_the_search_says_so(run):
    settings = dict(max_input_length=4, long_inputs="refuse")
    message = r"refused, and with them the others .*line 2 \([0-9]+ subwords\)"
    with pytest.raises(errors.UserError, match=message):
        run.translate(["six", "nine " * 9], **settings)


def test_models_are_loaded_by_url(folder, stored_export, run, machine, memory):
    for path in (folder / "run", stored_export):
        memory.put(f"{path}/", f"/bucket/{path.name}/", recursive=True)
    (checkpoint,) = (folder / "run").glob("*/ckpt-*.index")
    relative = checkpoint.relative_to(folder).with_suffix("")
    expected = run.score(SOURCES[:2], TARGETS[:2])
    for path in ("run", "export"):
        machine(f"of-{pathlib.Path(path).name}")
        model = t2t_repro.load(f"memory://bucket/{path}")
        found = model.score(SOURCES[:2], TARGETS[:2])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    ensemble = t2t_repro.load(f"memory://bucket/{relative},{folder / relative}")
    np.testing.assert_allclose(
        ensemble.score(SOURCES[:2], TARGETS[:2]), expected, rtol=1e-5
    )
    with pytest.raises(errors.UserError, match="no model in memory://bucket/x"):
        t2t_repro.load("memory://bucket/x/y/z")
