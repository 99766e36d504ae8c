"""Trackers of experiments: callbacks for CSV files, W&B and MLflow.

--callbacks=csv
--callbacks=wandb:project=translation+csv:every=10
--callbacks=mlflow:experiment=translation

A session that resumes a run continues the run of its tracker.
"""

import csv
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_repro.io import extras, files
from t2t_repro.runs import run_json
from t2t_repro.training.callbacks import Callback


class _Tracker(Callback):
    """Base class: a tracker logs {"train/loss": value} of some steps."""

    def __init__(self, every: int):
        self.steps_between = every

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send values of a step."""
        raise NotImplementedError

    def on_step_end(self, step: int, values: Mapping[str, float]) -> None:
        self.log(step, {f"train/{name}": x for name, x in values.items()})

    def on_validation_end(self, step: int, results: Mapping[str, Any]) -> None:
        numbers = {
            f"validation/{name}": value
            for name, value in results.items()
            if isinstance(value, (int, float)) and name != "step"
        }
        self.log(step, numbers)


class Csv(_Tracker):
    """Rows "step,name,value" in RUN/metrics.csv."""

    def __init__(self, every: int = 100):
        """Log the loss of every n-th step, and each validation."""
        super().__init__(every)

    def on_train_begin(self, output_dir: pathlib.Path, step: int) -> None:
        path = output_dir / "metrics.csv"
        is_new = not path.exists()
        self._file = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        if is_new:
            self._writer.writerow(("step", "name", "value"))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._writer.writerows((step, *item) for item in values.items())
        self._file.flush()

    def on_train_end(self) -> None:
        self._file.close()


class Wandb(_Tracker):
    """Weights & Biases: the environment variables WANDB_… set the rest."""

    def __init__(self, project: str = "t2t_repro", every: int = 100):
        """Log to a run of the project, with the settings of run.json."""
        super().__init__(every)
        self._project = project

    def on_train_begin(self, output_dir: pathlib.Path, step: int) -> None:
        with extras.needed("wandb", "The callback wandb"):
            import wandb
        path = output_dir / "wandb_run"
        self._run = wandb.init(
            project=self._project,
            name=output_dir.name,
            id=_read_id(path),
            resume="allow",
            config=_settings(output_dir),
            dir=str(output_dir),
        )
        files.write_text(path, self._run.id)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def on_train_end(self) -> None:
        self._run.finish()


class MLflow(_Tracker):
    """MLflow: MLFLOW_TRACKING_URI names the server, or a folder."""

    def __init__(self, experiment: str = "t2t_repro", every: int = 100):
        """Log to a run of the experiment, with the settings of run.json."""
        super().__init__(every)
        self._experiment = experiment

    def on_train_begin(self, output_dir: pathlib.Path, step: int) -> None:
        with extras.needed("mlflow", "The callback mlflow"):
            import mlflow
        self._mlflow = mlflow
        path = output_dir / "mlflow_run"
        known = _read_id(path)
        mlflow.set_experiment(self._experiment)
        run = mlflow.start_run(run_id=_read_id(path), run_name=output_dir.name)
        if known is None:
            mlflow.log_params(_settings(output_dir))
        files.write_text(path, run.info.run_id)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def on_train_end(self) -> None:
        self._mlflow.end_run()


def _read_id(path):
    """Return the id of a tracker's run, in a file of ours; None: no file."""
    return path.read_text("utf-8") if path.exists() else None


def _settings(output_dir):
    """Return problem, hparams set, seed and hparams of a run."""
    stored = files.read_json(output_dir / run_json.RUN, run_json.SHAPE)
    names = ("problem", "hparams_set", "random_seed")
    return {name: stored[name] for name in names} | stored["hparams"]
