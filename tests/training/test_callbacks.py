"""Callbacks and trackers: their calls, errors, and what they send."""

import contextlib
import csv
import sys
from unittest import mock

import pytest

from t2t_repro import errors
from t2t_repro.io import progress
from t2t_repro.training import callbacks, schedules


class Recorder(callbacks.Callback):
    """Record of all calls, without the results of validations."""

    def __init__(self):
        self.calls = []

    def on_train_begin(self, output_dir, step):
        self.calls.append(("begin", step))

    def on_epoch_begin(self, epoch, step):
        self.calls.append(("epoch", epoch, step))

    def on_epoch_end(self, epoch, step):
        self.calls.append(("epoch end", epoch, step))

    def on_validation_end(self, step, results):
        assert results["perplexity"] > 1
        self.calls.append(("validation", step, results["loss"]))

    def on_checkpoint_saved(self, step, path):
        assert path.with_suffix(".index").exists()
        self.calls.append(("saved", step))

    def on_train_end(self):
        self.calls.append("end")


class Stopping(Recorder):
    """Callback that requests a stop at a step, in one of its methods."""

    def __init__(self, method: str, at: int, patience=1.5):
        super().__init__()
        self.method, self.at, self.patience = method, at, patience

    def on_step_end(self, step, values):
        self.calls.append(("step", step, values))
        self._stop("on_step_end", step)

    def on_validation_end(self, step, results):
        super().on_validation_end(step, results)
        self._stop("on_validation_end", step)

    def _stop(self, method, step):
        if (method, step) == (self.method, self.at):
            self.request_stop("the budget is spent")


class Failing(callbacks.Callback):
    def on_validation_end(self, step, results):
        raise ConnectionError("no server")


def observed(*observers, steps_per_epoch=2.5):
    return callbacks.Callbacks(
        observers, steps_per_epoch, contextlib.nullcontext
    )


def test_epochs_begin_with_their_first_whole_step():
    """Step 3 has pairs of both epochs; steps 6 to 8 are the third."""
    recorder = Recorder()
    observers = observed(recorder)
    for step in range(1, 9):
        observers.step_begin(step)
        observers.step_end(step, lambda: pytest.fail("not observed"))
    assert recorder.calls == [
        ("epoch", 1, 1),
        ("epoch end", 1, 3),
        ("epoch", 2, 4),
        ("epoch end", 2, 5),
        ("epoch", 3, 6),
        ("epoch end", 3, 8),
    ]
    # 35 steps are 15 epochs, but 35 / (392 / 168) < 15.
    assert observed(steps_per_epoch=392 / 168)._epoch(36) == 16


def test_loop_calls_callbacks_in_order_with_values_of_the_step(
    runs, fake_steps, tmp_path
):
    fake_steps(losses=[4.0, 3.0])
    recorder = Stopping("", 0)
    settings = {"eval_every": 4, "save_checkpoints_steps": 4}
    runs.train(tmp_path, train_steps=3, **settings)
    fake_steps(lambda number, _: 1.0 + number, losses=[2.0])
    runs.train(tmp_path, callbacks=[recorder], train_steps=4, **settings)
    rate = float(schedules.learning_rate(runs.hparams, 4))
    values = {"loss": 5.0, "learning_rate": rate, "gradient_norm": 1.0}
    found = [call for call in recorder.calls if "epoch" not in call[0]]
    assert found == [
        ("begin", 3),
        ("step", 4, values),
        ("validation", 4, 2.0),
        ("saved", 4),
        "end",
    ]


@pytest.mark.parametrize(
    ("method", "at", "last", "validated"),
    [
        ("on_step_end", 3, 3, []),
        ("on_step_end", 4, 4, [4]),  # a validation that is due is not left out
        ("on_validation_end", 4, 4, [4]),
    ],
)
def test_requested_stop_saves_and_says_why(
    runs, fake_steps, tmp_path, caplog, method, at, last, validated
):
    fake_steps()
    observer = Stopping(method, at)
    settings = {"eval_every": 4, "save_checkpoints_steps": 100}
    code, _ = runs.train(
        tmp_path, callbacks=[Recorder(), observer], train_steps=8, **settings
    )
    assert code == 0 and runs.saved_steps(tmp_path) == [last]
    assert [
        step for kind, step, *_ in observer.calls[:-1] if kind == "validation"
    ] == validated
    assert "callback Stopping: the budget is spent" in caplog.text
    # The same command trains on, or the same call.
    runs.train(tmp_path, callbacks=[observer], train_steps=8, **settings)
    assert runs.saved_steps(tmp_path)[-1] == 8


def test_error_is_logged_with_its_name_and_training_continues(
    runs, fake_steps, tmp_path
):
    fake_steps()
    recorder = Recorder()
    with progress.logging_to(tmp_path):
        code, printed = runs.train(
            tmp_path, callbacks=[Failing(), recorder], train_steps=4
        )
    assert code == 0 and recorder.calls[-1] == "end"
    message = "The callback Failing failed in on_validation_end: Connection"
    assert message in printed
    text = (tmp_path / progress.LOG).read_text()
    assert f" ERROR {message}" in text and "Traceback" in text


def test_error_before_the_first_step_ends_the_training(tmp_path):
    class Broken(Recorder):
        def on_train_begin(self, output_dir, step):
            raise OSError("no key")

    recorder = Recorder()
    message = "callback .*Broken could not begin: OSError: no key. Correct it"
    with (
        pytest.raises(errors.UserError, match=message),
        observed(recorder, Broken()).session(tmp_path, 0),
    ):
        raise AssertionError
    assert recorder.calls == [("begin", 0), "end"]


def test_registered_callbacks_are_built_by_name(registries):
    registries.callbacks.register("recorder")(Recorder)
    registries.callbacks.register("stopping")(Stopping)
    assert callbacks.build(None) == []
    one, other, third = callbacks.build(
        "stopping:method=on_step_end:at=3:patience=2+recorder,recorder"
    )
    assert (one.method, one.at, one.patience) == ("on_step_end", 3, 2.0)
    assert isinstance(other, Recorder) and isinstance(third, Recorder)
    message = "Add method=VALUE to --callbacks="
    with pytest.raises(errors.UserError, match=message):
        callbacks.build("stopping:at=3")


TRAINING = {"loss": 2.0, "learning_rate": 0.5, "gradient_norm": 3.0}
VALIDATION = {"step": 4, "loss": 1.5, "bleu": 20.0, "bleu_directions": {}}
OF_STEP = {f"train/{name}": value for name, value in TRAINING.items()}
OF_VALIDATION = {"validation/loss": 1.5, "validation/bleu": 20.0}
SENT = [(2, OF_STEP), (4, OF_STEP), (4, OF_VALIDATION)]


def train_four_steps(tracker, folder):
    """Show four steps and a validation to a tracker."""
    observers = observed(*callbacks.build(tracker), steps_per_epoch=100)
    with observers.session(folder, 0):
        for step in range(1, 5):
            observers.step_end(step, lambda: TRAINING)
        observers.call("on_validation_end", 4, VALIDATION)


@pytest.fixture
def run(tmp_path):
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
        rows = list(csv.reader(file))
    assert rows == [
        ["step", "name", "value"],
        *(
            [str(step), name, str(value)]
            for step, values in [*SENT, SENT[-1]]
            for name, value in values.items()
        ),
    ]


def test_wandb_gets_settings_and_values_and_continues_its_run(run, monkeypatch):
    client = mock.MagicMock()
    client.init.return_value.id = "new"
    monkeypatch.setitem(sys.modules, "wandb", client)
    for _ in range(2):
        train_four_steps("wandb:project=p:every=2", run)
    settings = {
        "project": "p",
        "name": "words",
        "resume": "allow",
        "config": SETTINGS,
        "dir": str(run),
    }
    logged = [mock.call.log(values, step=step) for step, values in SENT]
    assert client.init.call_args_list == [
        mock.call(id=None, **settings),
        mock.call(id="new", **settings),
    ]
    sent = client.init.return_value.method_calls
    assert sent == [*logged, mock.call.finish()] * 2


def test_mlflow_gets_settings_and_values_and_continues(run, monkeypatch):
    client = mock.MagicMock()
    client.start_run.return_value.info.run_id = "new"
    monkeypatch.setitem(sys.modules, "mlflow", client)
    for _ in range(2):
        train_four_steps("mlflow:experiment=e:every=2", run)
    logged = [mock.call.log_metrics(values, step=step) for step, values in SENT]
    assert client.method_calls == [
        mock.call.set_experiment("e"),
        mock.call.start_run(run_id=None, run_name="words"),
        mock.call.log_params(SETTINGS),
        *logged,
        mock.call.end_run(),
        mock.call.set_experiment("e"),
        mock.call.start_run(run_id="new", run_name="words"),
        *logged,
        mock.call.end_run(),
    ]
