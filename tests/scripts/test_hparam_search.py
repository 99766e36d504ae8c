"""Hyperparameter search: ranges, budget of trials, resuming."""

import functools

import optuna
import pytest
from micro_jobs import micro_job

from scripts.paper import hparam_search
from t2t_repro import errors
from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.io import files
from t2t_repro.runs import history
from t2t_repro.sweeps import queue, rows

SETTINGS = TransformerHParams
RANGES = hparam_search.parse_ranges(SETTINGS, ["relu_dropout=0.0:0.5"])


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_search_resumes_on_another_machine_from_results(monkeypatch, tmp_path):
    """The journal has finished trials; their folders are not needed."""
    trained = []

    def train(trial, job, commands):
        folder = job.training_folder(trial)
        trained.append(folder.relative_to(tmp_path).as_posix())
        if len(trained) == 2:
            raise queue.CommandError("trainer", 143, "above")
        folder.mkdir(parents=True)
        curve = [{"step": 5, "perplexity": 9.0 - len(trained)}]
        files.write_json(folder / history.VALIDATION, curve)

    monkeypatch.setattr(hparam_search.running, "train_row", train)
    row = rows.Row("base", "base", {"train_steps": 5}, 1)
    here = micro_job(tmp_path)._replace(output_dir=tmp_path / "here")
    objective = hparam_search.Objective("perplexity", here)

    def search(job):
        study = hparam_search.open_study(row, job, RANGES, objective)
        run = functools.partial(hparam_search.run_trial, row, job, objective)
        hparam_search.run_trials(study, 3, RANGES, run)
        return study

    with pytest.raises(errors.UserError, match="status 143"):
        search(here)
    study = search(here._replace(output_dir=tmp_path / "there"))
    places = ("here", 0), ("here", 1), ("there", 1), ("there", 2)
    names = "{}/base-trial{}-seed1-float32".format
    assert trained == [names(*place) for place in places]
    assert [trial.value for trial in study.get_trials()] == [8.0, 6.0, 5.0]
    journal = here.results_dir / hparam_search.JOURNAL
    stored = journal.read_text()
    assert str(tmp_path) not in stored
    earlier = stored.replace('"normalization":"",', "")
    assert earlier != stored  # of a version without this argument
    journal.write_text(earlier)
    hparam_search.open_study(row, here, RANGES, objective)
    with pytest.raises(errors.UserError, match="Name another --results_dir"):
        hparam_search.open_study(row._replace(seed=2), here, RANGES, objective)
    with pytest.raises(errors.UserError, match="perplexity, .*got --obj.*=x"):
        hparam_search.Objective("x", here)
