"""The figures of every validation of a run: measured, shown, kept in a file."""

import math
import pathlib

from t2t_repro import errors, json_files, registry
from t2t_repro.metrics.suite import Suite

VALIDATION = "validation.json"
LOSS = "loss"  # the name of the loss as a metric to stop by
_SHAPE = [{"step": int, "perplexity": float}]


class History:
    """A list of {"step": …, "loss": …, …}, written whole at each change."""

    def __init__(self, output_dir: pathlib.Path, last_step: int):
        """Read what is there, up to the step that a training goes on from.

        What came later belongs to steps that will be done again.
        """
        self._path = output_dir / VALIDATION
        stored = []
        if self._path.exists():
            stored = json_files.read(self._path, _SHAPE)
        self._entries = [e for e in stored if e["step"] <= last_step]

    def add(self, step: int, figures: dict):
        """Append what a validation found, and write the file."""
        self._entries.append({"step": step} | figures)
        json_files.write(self._path, self._entries)

    def stopped_improving(
        self, patience: int | None, metric: str = LOSS
    ) -> bool:
        """Return whether the best validation is at least `patience` old.

        Losses are compared without label smoothing, as perplexities.
        Validations without the metric, of an earlier session, do not count.
        """
        if not patience:
            return False
        key, sign = "perplexity", 1
        if metric != LOSS:
            better = registry.metrics[metric].value.higher_is_better
            key, sign = metric, -1 if better else 1
        found = [sign * e[key] for e in self._entries if key in e]
        found = [math.inf if math.isnan(value) else value for value in found]
        if len(found) <= patience:
            return False
        return min(found[-patience:]) >= min(found[:-patience])


class Monitor:
    """Measures, shows and keeps how a training does on another split."""

    def __init__(self, validation, sample, output_dir, first_step):
        """Take up the history of the run.

        Args:
            validation: Validation.
            sample: Sample, or None: nothing is translated.
            output_dir: of the run.
            first_step: steps that are done already.
        """
        self._validation, self._sample = validation, sample
        self._history = History(output_dir, first_step)
        self._described = False

    def measure(self, step, show):
        """Measure after `step`, and tell `show`, a Progress."""
        show.check()
        with show.pause():
            figures = self._validation.figures()
            if not self._sample:
                show.validation_done(step, figures)
            else:
                found = self._sample.measure()
                values = {name: one.value for name, one in found.items()}
                show.validation_done(step, figures | values)
                if not self._described:
                    show.say(self._sample.describe(found))
                self._described = True
                figures |= self._sample.figures(found)
            self._history.add(step, figures)

    def no_longer_improves(self, patience, metric, show) -> bool:
        """Return whether the best of all is at least `patience` old; say so."""
        if not self._history.stopped_improving(patience, metric):
            return False
        show.say(
            f"The validation {metric} has not improved for {patience} "
            "evaluations."
        )
        return True


def require_stopping_metric(
    metric: str, patience: int | None, suite: Suite, sentences: int
):
    """Look whether a training can be stopped by a metric.

    Args:
        metric: LOSS, or the name of one of the suite.
        patience: validations without improvement; None: it is not stopped.
        suite: the metrics of the problem.
        sentences: that are translated at each validation.

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
            f"Neither a higher nor a lower {metric} is better: no training is "
            f"stopped by it; {got}. Name another metric, or loss."
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
