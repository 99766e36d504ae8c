"""Runs: several workers join one, and what is kept of its scores."""

import types

import pytest

from t2t_repro import errors, files, json_files, runs

SETTINGS = {
    "problem": "mine",
    "problem_arguments": {},
    "hparams": {"hidden_size": 16},
    "random_seed": 1,
    "vocabulary_sha256": "ab" * 32,
    "manifest_sha256": "cd" * 32,
    "rows_per_batch": 8,
}


def start(folder, hardware="one CPU", settings=SETTINGS):
    subwords = types.SimpleNamespace(model=b"pieces")
    runs.start(folder, settings, subwords, hardware)


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The folder of a run that the first worker has started."""
    monkeypatch.setattr(files, "appears", lambda found: found())
    start(tmp_path)
    return tmp_path


def test_a_worker_joins(started):
    before = (started / runs.RUN).read_bytes()
    runs.join(started, SETTINGS, runs.mark(started))
    assert (started / runs.RUN).read_bytes() == before


@pytest.mark.parametrize("folder", [runs.CHECKPOINTS, runs.AVERAGED])
def test_another_training_takes_no_folder_that_has_weights(started, folder):
    (started / folder).mkdir()
    for suffix in ("index", "data-00000-of-00001"):
        (started / folder / f"ckpt-4.{suffix}").touch()
    before = (started / runs.RUN).read_bytes()
    with pytest.raises(errors.UserError, match="random_seed is 1 .* 2"):
        start(started, settings=SETTINGS | {"random_seed": 2})
    assert (started / runs.RUN).read_bytes() == before


def test_each_start_leaves_another_mark(started):
    first = runs.mark(started)
    start(started)
    assert 0 < runs.mark(started) < 2**63
    assert runs.mark(started) != first


def test_every_session_says_what_it_computes_on(started):
    start(started, "8 GPUs")
    settings = json_files.read(started / runs.RUN)
    assert settings["hardware"] == ["one CPU", "8 GPUs"]
    assert len(settings["command_lines"]) == 2


def test_a_worker_with_a_folder_of_its_own_is_refused(started, tmp_path):
    mark = runs.mark(started)
    for folder in (tmp_path / "own", started):
        with pytest.raises(
            errors.UserError, match="must see the same --output"
        ):
            runs.join(folder, SETTINGS, mark)
        json_files.write(started / runs.RUN, {})  # of a folder like it


def test_a_worker_with_other_data_is_refused(started):
    other = SETTINGS | {"manifest_sha256": "ef" * 32}
    message = "manifest_sha256 is .*cdcd.* with the same flags and data"
    with pytest.raises(errors.UserError, match=message):
        runs.join(started, other, runs.mark(started))


def test_score_sheets_of_some_checkpoints(tmp_path):
    (tmp_path / runs.TRANSLATIONS).mkdir()
    path = tmp_path / "averaged" / "ckpt-9"
    path.parent.mkdir()
    path.with_suffix(".index").write_text("of these weights")
    names, sums = runs.names([path]), runs.checksums([path])
    assert names == ["averaged/ckpt-9"]
    sheets = {
        "test": {
            "bleu": 30.0,
            "checkpoints": names,
            "checkpoints_sha256": sums,
        },
        "validation": {"bleu": 20.0, "checkpoints": ["checkpoints/ckpt-9"]},
    }
    for split, sheet in sheets.items():
        json_files.write(tmp_path / runs.TRANSLATIONS / f"{split}.json", sheet)
    assert runs.score_sheets(tmp_path) == sheets
    assert runs.score_sheets(tmp_path, [path]) == {"test": sheets["test"]}
    path.with_suffix(".index").write_text("of an average made anew")
    assert runs.score_sheets(tmp_path, [path]) == {}
    assert runs.score_sheets(tmp_path / "none") == {}
