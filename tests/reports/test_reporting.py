"""Reports of runs whose data is not at hand."""

import pathlib

import pytest

from t2t_repro import errors, prepare
from t2t_repro.reports import reporting
from t2t_repro.runs.run import Run


def test_report_is_without_data_that_cannot_be_reached(monkeypatch, capsys):
    def fail(data_dir, problem):
        raise errors.UserError(f"Cannot access {data_dir}.")

    monkeypatch.setattr(prepare, "data_folder", fail)
    settings = {"data_dir": "s3://b", "manifest_sha256": "ab"}
    run = Run(pathlib.Path("run"), settings, None, None)
    assert reporting._open_data(run, None) == (None, None)
    message = "The report is without the data. Cannot access s3://b.\n"
    assert capsys.readouterr().err == message
    with pytest.raises(errors.UserError, match="access given"):
        reporting._open_data(run, "given")
