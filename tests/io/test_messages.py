"""train.log: messages of a training, with time and level."""

import logging
import re

import pytest

from t2t_repro import errors
from t2t_repro.io import progress

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")


def lines(folder):
    """Return the lines of the log without their times."""
    text = (folder / progress.LOG).read_text("utf-8")
    assert all(TIME.match(line) for line in text.splitlines())
    return [TIME.sub("", line) for line in text.splitlines()]


def test_messages_are_shown_once_and_appended_with_their_level(
    tmp_path, capsys
):
    for text in ("first", "50% spät"):
        with progress.logging_to(tmp_path):
            progress.show(text)
    with progress.logging_to(tmp_path):
        progress.show("slow", logging.WARNING)
    progress.show("not of this run")
    assert lines(tmp_path) == ["INFO first", "INFO 50% spät", "WARNING slow"]
    captured = capsys.readouterr()
    assert captured.out == "first\n50% spät\nslow\nnot of this run\n"
    assert captured.err == ""


def test_user_error_is_one_line_and_another_has_its_traceback(tmp_path):
    with pytest.raises(errors.UserError), progress.logging_to(tmp_path):
        raise errors.UserError("The loss of step 3 is nan.")
    assert lines(tmp_path) == ["ERROR The loss of step 3 is nan."]
    with pytest.raises(ZeroDivisionError), progress.logging_to(tmp_path):
        print(1 / 0)
    text = (tmp_path / progress.LOG).read_text()
    assert " ERROR The training ended with an error.\nTraceback" in text
    assert text.endswith("ZeroDivisionError: division by zero\n")
