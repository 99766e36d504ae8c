"""Results of the validations of a run, which are logged and stored."""

import math
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2t_repro import errors, json_files, registry
from t2t_repro.metrics.suite import Suite

if TYPE_CHECKING:  # they import TensorFlow
    from t2t_repro.training.train_log import TrainLog
    from t2t_repro.training.validation import Validation

VALIDATION = "validation.json"
LOSS = "loss"  # name of the loss as early-stopping metric
_SHAPE = [{"step": int, "perplexity": float}]


class History:
    """List of {"step": …, "loss": …, …}, written whole at each change."""

    def __init__(self, output_dir: pathlib.Path, last_step: int):
        """Read the entries up to `last_step`, from which a run resumes.

        Later entries belong to steps that will be repeated.
        """
        self._path = output_dir / VALIDATION
        stored = []
        if self._path.exists():
            stored = json_files.read(self._path, _SHAPE)
        self._entries = [e for e in stored if e["step"] <= last_step]

    def add(self, step: int, results: Mapping[str, Any]) -> None:
        """Append the results of a validation, and write the file."""
        self._entries.append({"step": step, **results})
        json_files.write(self._path, self._entries)

    def stopped_improving(
        self, patience: int | None, metric: str = LOSS
    ) -> bool:
        """Return whether the best validation is at least `patience` old.

        Losses are compared without label smoothing, as perplexities.
        Validations without the metric, from an earlier session, do not count.
        """
        if not patience:
            return False
        key, sign = "perplexity", 1
        if metric != LOSS:
            better = registry.metrics[metric].value.higher_is_better
            key, sign = metric, -1 if better else 1
        costs = [sign * e[key] for e in self._entries if key in e]
        costs = [math.inf if math.isnan(cost) else cost for cost in costs]
        if len(costs) <= patience:
            return False
        return min(costs[-patience:]) >= min(costs[:-patience])


class ValidationMonitor:
    """Validations of a run, each of which is measured, logged and stored."""

    def __init__(
        self,
        validation: "Validation",
        sample: Any,
        output_dir: pathlib.Path,
        first_step: int,
    ):
        """Read the history of the run.

        Args:
            validation: the pass over the validation split.
            sample: validation_sample.ValidationSample, or None to translate
                nothing.
            output_dir: folder of the run.
            first_step: number of steps that are done already.
        """
        self._validation, self._sample = validation, sample
        self._history = History(output_dir, first_step)
        self._is_summarized = False

    def measure(self, step: int, log: "TrainLog") -> None:
        """Measure after `step`; write the results to `log` and the history."""
        log.check()
        with log.pause():
            results: dict[str, Any] = self._validation.measure()
            if not self._sample:
                log.validation_done(step, results)
            else:
                scores = self._sample.measure()
                values = {name: score.value for name, score in scores.items()}
                log.validation_done(step, results | values)
                if not self._is_summarized:
                    log.write(self._sample.summary(scores))
                self._is_summarized = True
                results = results | self._sample.results(scores)
            self._history.add(step, results)

    def stopped_improving(
        self, patience: int | None, metric: str, log: "TrainLog"
    ) -> bool:
        """Return whether the best is at least `patience` old, and log it."""
        if not self._history.stopped_improving(patience, metric):
            return False
        log.write(
            f"The validation {metric} has not improved for {patience} "
            "evaluations."
        )
        return True


def require_stopping_metric(
    metric: str, patience: int | None, suite: Suite, sentences: int
) -> None:
    """Require a metric that early stopping can use.

    Args:
        metric: LOSS, or the name of a metric of the suite.
        patience: number of validations without improvement; None: no early
            stopping.
        suite: the metrics of the problem.
        sentences: number of sentences translated at each validation.

    Raises:
        UserError: says what is missing.
    """
    if metric == LOSS:
        return
    got = f"got --early_stopping_metric={metric}"
    if metric not in suite.names:
        raise errors.UserError(
            "--early_stopping_metric is loss or a metric that the problem "
            f"names, {', '.join(suite.names)}; {got}."
        )
    if registry.metrics[metric].value.higher_is_better is None:
        raise errors.UserError(
            f"Neither a higher nor a lower {metric} is better, so that it "
            f"cannot stop training; {got}. Name another metric, or loss."
        )
    if not patience:
        raise errors.UserError(
            "--early_stopping_evals says for how many validations a metric "
            f"may fail to improve; {got} without it. Name both."
        )
    if not sentences:
        raise errors.UserError(
            f"{metric} is measured on translated sentences; {got} with "
            "--eval_bleu_sentences=0. Name a number above 0."
        )
