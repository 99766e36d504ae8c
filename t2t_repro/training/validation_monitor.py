"""Validations of a run, each of which is measured, logged and stored."""

import pathlib
from collections.abc import Callable
from typing import Any

from t2t_repro.metrics.suite import Suite
from t2t_repro.runs.history import History
from t2t_repro.training.train_log import TrainLog
from t2t_repro.training.validation import Validation
from t2t_repro.training.validation_sample import ValidationSample


class ValidationMonitor:
    """Measurement and history of the validations of a run."""

    def __init__(
        self,
        validation: Validation | None,
        sample: ValidationSample | None,
        output_dir: pathlib.Path,
        first_step: int,
    ):
        """Read the history of the run.

        Args:
            validation: the pass over the validation split; None: a run
                without validations.
            sample: the sentences to translate; None: none.
            output_dir: folder of the run.
            first_step: number of steps that are done already.
        """
        self._validation, self._sample = validation, sample
        self._history = History(output_dir, first_step)
        self._is_summarized = False

    def measure(
        self,
        step: int,
        log: TrainLog,
        stop: Callable[[], object] = lambda: False,
        stop_sample: Callable[[], object] = lambda: False,
    ) -> dict[str, Any]:
        """Measure after `step`; write the results to `log` and the history.

        Args:
            step: number of steps done.
            log: log of the training.
            stop: argument of Validation.measure().
            stop_sample: argument of ValidationSample.measure().

        Raises:
            Stopped: a function was true; the next session measures again.
        """
        assert self._validation, "--eval_every=0"
        log.check()
        with log.pause():
            results: dict[str, Any] = self._validation.measure(stop)
            if not self._sample:
                log.validation_done(step, results)
            else:
                scores = self._sample.measure(stop_sample)
                values = {name: score.value for name, score in scores.items()}
                log.validation_done(
                    step, results | values, self._sample.shown_translations()
                )
                if not self._is_summarized:
                    log.write(self._sample.summary(scores))
                self._is_summarized = True
                results = results | self._sample.results(scores)
            results = results | self._validation.sample_sizes
            # A validation in the history is not repeated.
            log.flush()
            self._history.add(step, results)
        return results

    def rankings(self, suite: Suite) -> list[list[int]]:
        """Return History.rankings()."""
        return self._history.rankings(suite)

    def stopped_improving(
        self, patience: int | None, metric: str, log: TrainLog
    ) -> bool:
        """Return whether the best is at least `patience` old, and log it."""
        if not self._history.stopped_improving(patience, metric):
            return False
        log.write(
            f"The validation {metric} has not improved for {patience} "
            "evaluations."
        )
        return True
