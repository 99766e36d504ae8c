"""A training job: options that continue those of a run, and notes."""

import json

import pytest

from t2t_repro import run_json
from t2t_repro.training import job
from t2t_repro.training.options import Options


@pytest.mark.parametrize(
    ("stored", "given", "expected"),
    [
        ({"keep_best_checkpoints": 2}, None, 2),
        ({"keep_best_checkpoints": 2}, 0, 0),
        ({"keep_best_checkpoints": 2}, 3, 3),
        ({"keep_best_checkpoints": 0}, None, None),
        ({}, None, None),
    ],
)
def test_resumed_run_keeps_its_best_checkpoints_unless_told(
    tmp_path, capsys, stored, given, expected
):
    (tmp_path / run_json.CHECKPOINTS).mkdir()
    (tmp_path / run_json.CHECKPOINTS / "ckpt-4.index").touch()
    (tmp_path / run_json.RUN).write_text(json.dumps({"options": stored}))
    options = job._continue_best_checkpoints(
        tmp_path, Options(keep_best_checkpoints=given)
    )
    assert options.keep_best_checkpoints == expected
    printed = capsys.readouterr().out
    continues = given is None and expected is not None
    assert ("continues with --keep_best_checkpoints=2" in printed) is continues


def test_new_run_keeps_no_best_checkpoints(tmp_path):
    options = job._continue_best_checkpoints(tmp_path, Options())
    assert options.keep_best_checkpoints is None


@pytest.mark.parametrize(("kept", "is_noted"), [(5, True), (20, False)])
def test_checkpoints_that_an_average_will_miss_are_noted(
    capsys, kept, is_noted
):
    job._note_missing_checkpoints(20, kept)
    printed = capsys.readouterr().out
    assert ("last 20 checkpoints" in printed) is is_noted
    assert ("--keep_checkpoint_max=5 keeps 5" in printed) is is_noted


def test_data_without_the_longest_allowed_pairs_is_noted(capsys):
    job._note_shorter_data(256, 256)
    assert capsys.readouterr().out == ""
    job._note_shorter_data(512, 256)
    printed = capsys.readouterr().out
    assert "allow max_length=512, but the data has no training pairs" in printed
    assert "above 256 subwords" in printed
