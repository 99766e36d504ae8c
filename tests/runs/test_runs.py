"""Runs: settings of workers and sessions, stored scores, vocabularies."""

import dataclasses
import types
from unittest import mock

import pytest

from t2t_repro import errors, hparam
from t2t_repro.io import files
from t2t_repro.problem import build_problem, scoring_problem
from t2t_repro.runs import checkpoint_files, checkpoints, history, run_json
from t2t_repro.runs.run import Run, table_rows
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies

DATA = {"train_sha256": "a", "validation_sha256": "b"}
OTHER_VALIDATION = DATA | {"validation_sha256": "x"}
SETTINGS = {
    "problem": "mine",
    "problem_arguments": {},
    "hparams_set": "narrow",
    "hparams": {"hidden_size": 16},
    "random_seed": 1,
    "vocabulary_sha256": "ab" * 32,
    "manifest_sha256": "cd" * 32,
    "rows_per_batch": 8,
}
VOCABULARIES = Vocabularies.shared(Vocabulary(b"pieces"))


def start(folder, settings=SETTINGS):
    run_json.start(folder, settings, VOCABULARIES, "one CPU")


def add_checkpoint(run, folder=checkpoint_files.CHECKPOINTS, step=4):
    """Add the index of a checkpoint, which is enough to resume a run."""
    (run / folder).mkdir(exist_ok=True)
    (run / folder / f"ckpt-{step}.index").touch()


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Return the folder of a run that the first worker has started."""
    monkeypatch.setattr(files, "wait_until", lambda condition: condition())
    start(tmp_path)
    return tmp_path


def test_worker_with_other_data_or_another_folder_is_refused(started):
    before = (started / run_json.RUN).read_bytes()
    chief = run_json.fingerprint(started)
    run_json.compare_with_chief(started, SETTINGS, chief)
    other = SETTINGS | {"manifest_sha256": "ef" * 32}
    message = "^manifest_sha256: .*cdcd.* with the same flags and data"
    with pytest.raises(errors.UserError, match=message):
        run_json.compare_with_chief(started, other, chief)
    assert (started / run_json.RUN).read_bytes() == before
    message = "must see the same --output"
    for folder in (started / "own", started):
        with pytest.raises(errors.UserError, match=message):
            run_json.compare_with_chief(folder, SETTINGS, chief)
        files.write_json(started / run_json.RUN, {})  # of a folder like it


@pytest.mark.parametrize(
    "folder", [checkpoint_files.CHECKPOINTS, checkpoint_files.AVERAGED]
)
def test_folder_with_weights_of_another_training_is_refused(started, folder):
    add_checkpoint(started, folder)
    before = (started / run_json.RUN).read_bytes()
    with pytest.raises(errors.UserError, match="^random_seed: 1 -> 2"):
        start(started, settings=SETTINGS | {"random_seed": 2})
    assert (started / run_json.RUN).read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"manifest_sha256": "ef"}, None),  # paths, sizes of files, versions
        ({"data": DATA}, None),
        ({"problem_arguments": {"vocabulary": "/moved"}}, None),
        ({"data": OTHER_VALIDATION}, "^validation_sha256: 'b' -> 'x'"),
        ({"data": DATA | {"train_sha256": "x"}}, "^train_sha256: 'a' -> 'x'"),
        ({"vocabulary_sha256": "x"}, "^vocabulary_sha256"),
    ],
)
def test_run_resumes_exactly_if_what_it_learns_from_is_the_same(
    started, changes, message
):
    settings = SETTINGS | {
        "data": DATA | {"test_sha256": "c"},
        "problem_arguments": {"vocabulary": "/mine"},
        "hparams": {"model": "m"},
    }
    start(started, settings=settings)
    add_checkpoint(started)
    if message is None:
        start(started, settings=settings | changes)
        return
    with pytest.raises(errors.UserError, match=message):
        start(started, settings=settings | changes)


def test_stored_scores_are_selected_by_checkpoint_and_search(tmp_path):
    run = Run(tmp_path, {}, None, None)
    run.translations_folder.mkdir()
    path = tmp_path / "averaged" / "ckpt-9"
    path.parent.mkdir()
    path.with_suffix(".index").write_text("of these weights")
    names = checkpoint_files.names([path], tmp_path)
    sums = checkpoint_files.checksums([path])
    assert names == ["averaged/ckpt-9"]
    stored = {
        "test": {
            "bleu": 30.0,
            "checkpoints": names,
            "checkpoints_sha256": sums,
            "decode_hparams": {"beam_size": 4, "return_beams": True},
        },
        "validation": {"bleu": 20.0, "checkpoints": ["checkpoints/ckpt-9"]},
    }
    for split, scores in stored.items():
        path_of_scores = run.translations_folder / f"{split}.json"
        files.write_json(path_of_scores, scores)
    assert run.stored_scores() == stored
    search = hparam.DecodeHParams()
    found = run.scores_of([path], search)
    assert found == {"test": stored["test"]}
    greedy = dataclasses.replace(search, beam_size=1)
    assert run.scores_of([path], greedy) == {}
    path.with_suffix(".index").write_text("of a new average")
    assert run.scores_of([path], search) == {}
    listed = {"data_dir": "", "hparams": {"model": "transformer"}}
    start(tmp_path, SETTINGS | listed)
    shown = table_rows(tmp_path)[1][-1].split(", ")
    assert shown[0] == "test: bleu 30.00 of averaged/ckpt-9"
    assert shown[1] == "validation: bleu 20.00 of checkpoints/ckpt-9"


def test_scores_of_directions_join_those_of_other_metrics(tmp_path):
    run = Run(tmp_path, {}, None, None)
    for metric in ("chrf", "bits_per_byte"):
        of_each = {"en-de": {metric: 1.0}, "fr-de": {metric: 2.0}}
        run.stored("test").write_scores({metric: 1.5, "directions": of_each})
    assert run.stored_scores()["test"]["directions"] == {
        "en-de": {"chrf": 1.0, "bits_per_byte": 1.0},
        "fr-de": {"chrf": 2.0, "bits_per_byte": 2.0},
    }


def test_run_without_a_later_setting_resumes(started, tiny_hparams):
    built = build_problem("number_words_ende", "vocab_size=300")
    now = SETTINGS | {
        "problem": "number_words_ende",
        "problem_arguments": built.arguments,
        "hparams": dataclasses.asdict(tiny_hparams),
    }
    before = now | {
        "problem_arguments": {"vocab_size": 300},
        "hparams": {
            key: value
            for key, value in now["hparams"].items()
            if key != "num_encoder_layers"
        },
        "command_lines": [],
    }
    add_checkpoint(started)
    files.write_json(started / run_json.RUN, before)
    other = now["problem_arguments"] | {"vocabulary_type": "unigram"}
    message = r"^vocabulary_type: 'bpe' -> 'unigram'\. .* holds another run"
    with pytest.raises(errors.UserError, match=message):
        start(started, settings=now | {"problem_arguments": other})
    wider = now["hparams"] | {"hidden_size": 48, "num_encoder_layers": 1}
    message = (
        r"^hparams_set: 'narrow' -> 'wide'; hidden_size: \d+ -> 48; "
        r"num_encoder_layers: 0 -> 1\. "
    )
    with pytest.raises(errors.UserError, match=message):
        start(started, settings=now | {"hparams_set": "wide", "hparams": wider})
    # A set of another name with the same values is resumed.
    start(started, settings=now | {"hparams_set": "wide"})
    files.write_json(started / run_json.RUN, before)
    for _ in range(2):
        start(started, settings=now)
        stored = files.read_json(started / run_json.RUN)["hparams"]
        assert stored == before["hparams"]


def test_average_older_than_the_training_is_noted(tmp_path, capsys):
    with pytest.raises(errors.UserError, match="no checkpoint in .*trainer fi"):
        Run(tmp_path, {}, None, None).checkpoints()
    for folder, step in (
        ("averaged", 8),
        ("checkpoints", 4),
        ("checkpoints", 8),
    ):
        add_checkpoint(tmp_path, folder, step)
    averaged = tmp_path / "averaged" / "ckpt-8"
    run = Run(tmp_path, {}, None, None)
    assert run.checkpoints() == [averaged]
    assert capsys.readouterr().err == ""
    add_checkpoint(tmp_path, step=12)
    assert run.checkpoints() == [averaged]
    printed = capsys.readouterr().err
    assert "Note: ckpt-12 is newer than the average ckpt-8, which" in printed


def test_modules_that_have_changed_are_printed(started, capsys):
    add_checkpoint(started)
    path = started / run_json.RUN
    settings = files.read_json(path) | {"hparams": {"model": "m"}}
    for modules in ({"a.py": "1", "c.py": "2"}, {"a.py": "1", "b.py": "3"}):
        usr_dir = {"folder": "mine", "sha256": modules}
        files.write_json(path, settings | {"usr_dir": usr_dir})
        after = {"folder": "mine", "sha256": {"a.py": "1", "b.py": "3"}}
        start(started, settings=settings | {"usr_dir": after})
    message = "of --usr_dir have changed since the last session: b.py, c.py."
    assert capsys.readouterr().err.count(message) == 1


def test_run_with_a_setting_that_is_gone_is_refused(started):
    add_checkpoint(started)
    path = started / run_json.RUN
    before = files.read_json(path)
    files.write_json(path, before | {"hparams": {"gone": 1, "model": "m"}})
    with pytest.raises(errors.UserError, match="'m' lacks now: gone. Resume"):
        start(started, settings=SETTINGS | {"hparams": {"model": "m"}})


def test_reversal_has_swapped_vocabularies(tmp_path, tiny_hparams, vocabulary):
    other = Bpe.learn(["eins zwei", "drei"] * 9, 275)
    vocabularies = Vocabularies(vocabulary, other)
    built = build_problem("number_words_ende_rev", "separate_vocabularies=true")
    settings = run_json.settings(
        built, "tiny", tiny_hparams, 1, None, vocabularies, 8
    )
    run_json.start(tmp_path / "run", settings, vocabularies, "one CPU")
    opened = Run.open(tmp_path / "run").vocabularies
    assert [each.model for each in opened] == [vocabulary.model, other.model]
    path = tmp_path / "run" / "vocab.targets.model"
    path.write_bytes(vocabulary.model)
    message = "not trained with .*vocab.inputs.model and .*Restore both files"
    with pytest.raises(errors.UserError, match=message):
        assert Run.open(tmp_path / "run").vocabularies


@pytest.fixture
def validated(tmp_path):
    """Return a run with validations of steps 1 to 5, of which 2 is removed."""
    bleu = {1: 9.0, 2: 7.0, 3: 5.0, 4: 6.0, 5: 8.0}
    entries = history.History(tmp_path)
    for step, value in bleu.items():
        entries.add(step, {"perplexity": 10.0 - step, "bleu": value})
    for step in (1, 3, 4, 5):
        add_checkpoint(tmp_path, step=step)
    problem = scoring_problem(("en", "de"))
    return Run(tmp_path, {}, problem, None)


def test_best_checkpoints_are_chosen_by_the_validations(validated, capsys):
    paths = validated.best_checkpoints(2)
    assert [path.name for path in paths] == ["ckpt-1", "ckpt-5"]
    printed = capsys.readouterr().out
    assert printed == "Best by the validation bleu: ckpt-1 9, ckpt-5 8.\n"


@pytest.mark.parametrize(
    ("number", "wanted", "there"),
    [(3, "ckpt-1, ckpt-5, ckpt-2", 2), (9, "ckpt-1.*ckpt-3", 4)],
)
def test_removed_best_checkpoint_is_an_error(validated, number, wanted, there):
    message = f"are {wanted}; .*/checkpoints has {there} of them.*={number}"
    with pytest.raises(errors.UserError, match=message):
        validated.best_checkpoints(number)


def test_short_training_averages_the_checkpoints_that_it_has(validated, capsys):
    hparams = types.SimpleNamespace(num_averaged_checkpoints=5)
    run = dataclasses.replace(validated, hparams=hparams)
    assert len(run.last_checkpoints()) == 4
    note = "has 4 checkpoints; the hparams set averages 5."
    assert note in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "last"),
    [
        ({"keep_best_checkpoints": 1, "keep_checkpoint_max": 3}, [3, 4, 5]),
        ({"keep_best_checkpoints": 1}, None),  # at most 20
        ({"keep_checkpoint_max": 3}, None),
    ],
)
def test_older_best_checkpoints_are_not_the_last_ones(validated, options, last):
    """Step 2 is removed, so that step 1 is kept as one of the best."""
    run = dataclasses.replace(validated, settings={"options": options})
    paths = run.last_checkpoints(3)
    assert [path.name for path in paths] == ["ckpt-3", "ckpt-4", "ckpt-5"]
    if not last:
        assert len(run.last_checkpoints(4)) == 4
        return
    run.settings["options"]["keep_checkpoint_max"] = 9  # since it was marked
    (run.checkpoints_folder / "ckpt-1.best").touch()
    message = "has 3 checkpoints beside 1 .* 4 are .*checkpoint_max=4 or"
    with pytest.raises(errors.UserError, match=message):
        run.last_checkpoints(4)
    (run.checkpoints_folder / "ckpt-4.best").touch()
    paths = run.last_checkpoints(2)
    assert [path.name for path in paths] == ["ckpt-3", "ckpt-5"]


def test_models_have_hparams_of_their_runs(tmp_path, tiny_hparams, monkeypatch):
    """An ensemble may have models of several runs."""
    other = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
    for name, hparams, problem in (
        ("run", tiny_hparams, "wmt14_ende"),
        ("other", other, "wmt14_ende"),
        ("reverse", other, "wmt14_ende_rev"),
    ):
        settings = {"problem": problem, "problem_arguments": {}}
        settings["hparams"] = dataclasses.asdict(hparams)
        (tmp_path / name).mkdir()
        files.write_json(tmp_path / name / run_json.RUN, settings)
    monkeypatch.setattr(Run, "build_model", lambda run, hparams: hparams)
    restored = mock.Mock()
    monkeypatch.setattr(checkpoints, "restore_weights", restored)
    vocabulary = types.SimpleNamespace(size=20, sha256="")
    monkeypatch.setattr(Run, "vocabularies", Vocabularies.shared(vocabulary))
    problem = build_problem("wmt14_ende")
    run = Run(tmp_path / "run", {}, problem, tiny_hparams)
    names = "run/averaged/ckpt-1", "other/checkpoints/ckpt-2", "lost/x/ckpt-3"
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.with_suffix(".index").touch()
    names = ",".join(map(str, paths))
    assert run.checkpoints(names) == run.checkpoints(f"{names},") == paths
    models = [tiny_hparams, other, tiny_hparams]
    assert run.models(names) == models
    assert restored.call_args_list == [
        mock.call(model, path, "")
        for model, path in zip(models, paths, strict=True)
    ]
    monkeypatch.chdir(paths[1].parent)  # where a path is a name
    named = run.checkpoints("ckpt-2")
    assert run.models(named) == [other]
    names = checkpoint_files.names([*named, paths[0]], run.output_dir)
    assert names == ["other/checkpoints/ckpt-2", "averaged/ckpt-1"]
    run.require_same_model(paths[::2])
    with pytest.raises(errors.UserError, match="ckpt-2 is of .*num_hidden_la"):
        run.require_same_model(named)
    with pytest.raises(errors.UserError, match="not translate the languages"):
        run.models([tmp_path / "reverse/checkpoints/ckpt-1"])
