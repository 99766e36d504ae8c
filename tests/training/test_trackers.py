"""Trackers: what they send, and to which run."""

import contextlib
import csv
import sys
import types

import pytest

from t2t_repro import errors
from t2t_repro.training import callbacks

TRAINING = {"loss": 2.0, "learning_rate": 0.5, "gradient_norm": 3.0}
VALIDATION = {"step": 4, "loss": 1.5, "bleu": 20.0, "bleu_directions": {}}
OF_STEP = {f"train/{name}": value for name, value in TRAINING.items()}
OF_VALIDATION = {"validation/loss": 1.5, "validation/bleu": 20.0}
SENT = [(2, OF_STEP), (4, OF_STEP), (4, OF_VALIDATION)]


def train_four_steps(tracker, folder):
    """Show four steps and a validation to a tracker."""
    observers = callbacks.Callbacks(
        callbacks.build(tracker), 100, contextlib.nullcontext
    )
    with observers.session(folder, 0):
        for step in range(1, 5):
            observers.step_end(step, lambda: TRAINING)
        observers.call("on_validation_end", 4, VALIDATION)


@pytest.fixture
def run(tmp_path):
    """A folder with a run.json."""
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "run.json").write_text(RUN)
    return folder


RUN = """{"problem": "number_words_ende", "problem_arguments": {},
"hparams_set": "tiny", "hparams": {"model": "transformer", "hidden_size": 8},
"random_seed": 3, "data_dir": "", "vocabulary_sha256": "",
"manifest_sha256": "", "versions": {}, "command_lines": []}"""
SETTINGS = {
    "problem": "number_words_ende",
    "hparams_set": "tiny",
    "random_seed": 3,
    "model": "transformer",
    "hidden_size": 8,
}


def test_csv_has_a_row_for_each_value(run):
    train_four_steps("csv:every=2", run)
    train_four_steps("csv:every=0", run)
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["step", "name", "value"]
    expected = [(step, *item) for step, row in SENT for item in row.items()]
    validated = [(4, *item) for item in OF_VALIDATION.items()]
    assert [(int(step), name, float(value)) for step, name, value in rows] == [
        *expected,
        *validated,
    ]


def test_wandb_gets_settings_and_values_and_continues_its_run(run, monkeypatch):
    started, sent = [], []

    def init(**arguments):
        started.append(arguments)
        return types.SimpleNamespace(
            id=arguments["id"] or "new",
            log=lambda values, step: sent.append((step, values)),
            finish=lambda: sent.append("finished"),
        )

    client = types.SimpleNamespace(init=init)
    monkeypatch.setitem(sys.modules, "wandb", client)
    for _ in range(2):
        train_four_steps("wandb:project=p:every=2", run)
    assert sent == [*SENT, "finished"] * 2
    first, second = started
    assert first.pop("id") is None and second.pop("id") == "new"
    assert first == second
    assert first == {
        "project": "p",
        "name": "words",
        "resume": "allow",
        "config": SETTINGS,
        "dir": str(run),
    }


def test_mlflow_gets_settings_and_values_and_continues_its_run(
    run, monkeypatch
):
    calls = []

    def start_run(run_id, run_name):
        calls.append(("start", run_id, run_name))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="new"))

    client = types.SimpleNamespace(
        set_experiment=lambda name: calls.append(name),
        start_run=start_run,
        log_params=lambda values: calls.append(values),
        log_metrics=lambda values, step: calls.append((step, values)),
        end_run=lambda: calls.append("end"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", client)
    for _ in range(2):
        train_four_steps("mlflow:experiment=e:every=2", run)
    session = [*SENT, "end"]
    assert calls == [
        *("e", ("start", None, "words"), SETTINGS, *session),
        *("e", ("start", "new", "words"), *session),
    ]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_missing_client_is_named(run, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.UserError, match=f"{name}.*pip install"):
        train_four_steps(name, run)
