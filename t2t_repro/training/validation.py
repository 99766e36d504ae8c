"""Validation: the loss on its split, and the scores of a translated sample."""

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.data import batch_plan, batches
from t2t_repro.decoding import translate
from t2t_repro.io import progress
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import Suite
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runs import history
from t2t_repro.text.test_sets import TestSet
from t2t_repro.training import losses, step
from t2t_repro.training.cross_entropy import smoothing_constant
from t2t_repro.training.options import Task
from t2t_repro.training.step import perplexity

_SAMPLES_SHOWN = 5  # translations in TensorBoard


class Validation:
    """Repeatable pass over a corpus, without dropout."""

    def __init__(
        self,
        model: Seq2Seq,
        task: Task,
        execution: step.Execution,
        max_pairs: int | None = None,
    ):
        """Plan the batches of the pass.

        Pairs longer than task.hparams.max_length are dropped; of the others
        `max_pairs`, evenly spaced, are used, or all.

        Raises:
            UserError: no pair is short enough.
        """
        corpus, hparams = task.corpora["validation"], task.hparams
        plan = _plan(corpus, hparams, model.packed_rows, max_pairs)
        # Validations of other pairs are not comparable, see History.values().
        self.conditions: dict[str, Any] = {}
        self._has_own_loss = hparams.loss != losses.CROSS_ENTROPY
        if self._has_own_loss:
            self.conditions[history.LOSS_NAME] = hparams.loss
        if plan.num_pairs == max_pairs:
            self.conditions |= {
                f"{name}_sentences": max_pairs
                for name in ("loss", "perplexity", "accuracy")
                if name != "loss" or self._has_own_loss
            }
        self._num_batches = math.ceil(plan.steps_per_epoch)
        self._batches = execution.strategy.distribute_datasets_from_function(
            lambda context: batches.evaluation_dataset(
                corpus, plan, context, execution.microbatches
            )
        )
        spec = self._batches.element_spec
        self._step = step.build_eval_step(
            model,
            hparams,
            execution.for_plan(plan, model.vocab_size, spec),
            {
                "target_tokens": float(plan.tokens["targets"]),
                "source_tokens": float(plan.tokens["inputs"]),
                "sentences": float(plan.num_pairs),
            },
        )
        self._constant = smoothing_constant(
            hparams.label_smoothing, model.vocab_size
        )

    def measure(
        self, stop: Callable[[], object] = lambda: False
    ) -> dict[str, float]:
        """Return loss, perplexity and accuracy, means over real tokens.

        Others are the terms of a loss that has several, and auxiliary losses.

        Raises:
            Stopped: stop(), called before each batch by all workers, was true.
        """
        totals: Any = None
        for batch in progress.bar(
            self._batches,
            "validate",
            self._num_batches,
            unit="batch",
            delay=progress.DELAY_SECONDS,
            leave=False,
        ):
            if stop():
                raise progress.Stopped
            sums = tf.nest.map_structure(float, self._step(batch))
            if totals is not None:
                sums = tf.nest.map_structure(operator.add, totals, sums)
            totals = sums
        loss = {"loss": totals.smoothed / totals.tokens}
        if not self._has_own_loss:
            above = loss["loss"] - self._constant
            loss["loss_minus_smoothing_constant"] = above
        return {
            **loss,
            "perplexity": perplexity(totals.nll / totals.tokens),
            "accuracy": totals.correct / totals.tokens,
            **totals.terms,
            **totals.auxiliary,
        }


def _plan(corpus, hparams, is_packed, max_pairs):
    """Plan batches of the pairs of a corpus; see Validation."""
    max_length = hparams.max_length
    usable = batch_plan.usable_pairs(corpus.lengths, max_length, max_pairs)
    if not len(usable):
        raise errors.UserError(
            f"There is nothing to validate on: of {len(corpus):,} pairs none "
            f"has at most max_length={max_length} subwords a side. Check the "
            "raw validation text."
        )
    # A batch is padded to its last row: it needs no more than the corpus.
    tokens = int(corpus.lengths["targets"][usable].sum())
    is_unused = ~np.isin(np.arange(len(corpus)), usable)
    return batch_plan.build(
        # A plan leaves out the pairs that are too long.
        {
            side: np.where(is_unused, max_length + 1, lengths)
            for side, lengths in corpus.lengths.items()
        },
        dataclasses.replace(
            hparams,
            batching="packed" if is_packed else "bucketed",
            batch_tokens=min(hparams.batch_tokens, tokens),
            batch_unit="real_tokens",
        ),
        seed=0,
    )


class ValidationSample:
    """Evenly spaced sentences of a corpus, which a model translates."""

    def __init__(
        self, model: Seq2Seq, task: Task, sentences: int, suite: Suite
    ):
        """Choose so many sentences of a split that is stored with its text.

        Pairs longer than task.hparams.max_length are dropped, as they are from
        the loss. The beam size is always 1: more beams multiply the time and
        show progress no better. Scores are means of the task's directions.
        """
        corpus, max_length = task.corpora["validation"], task.hparams.max_length
        usable = batch_plan.usable_pairs(corpus.lengths, max_length)
        chosen = batch_plan.usable_pairs(corpus.lengths, max_length, sentences)
        inputs, targets = corpus.text("inputs"), corpus.text("targets")
        split = TestSet(inputs, [targets], directions=task.directions)
        self._inputs = [inputs[i] for i in chosen]
        self._references = [targets[i] for i in chosen]
        self._outputs: list[str] = []  # of the last measure()
        self._suite = suite
        self._num_usable = len(usable)
        suites = suite.by_direction(split.directions)
        # {direction: (indices of its sentences, its metrics)}
        self._parts = {
            name: (part, suites[name].build())
            for name, pairs in split.parts.items()
            if (part := np.flatnonzero(np.isin(chosen, pairs)).tolist())
        } or {"": (list(range(len(chosen))), suite.build())}
        self._by_direction: dict[str, dict[str, scores.Score]] = {}
        # One translator for all validations, so that search is traced once.
        greedy = dataclasses.replace(
            task.search, beam_size=1, sampling_temp=0.0, rerank=""
        )
        self._translator = translate.BatchTranslator(
            [model], task.vocabularies, greedy
        )
        self._translator.require_side(False)  # before the first step

    def measure(
        self, stop: Callable[[], object] = lambda: False
    ) -> dict[str, scores.Score]:
        """Translate with the current weights, and score.

        Raises:
            Stopped: stop(), called before each batch, was true.
        """
        self._translator.refresh_weights()
        self._outputs = [""] * len(self._inputs)
        if self._suite.reads_text:
            outputs = self._translator.translate(
                self._inputs, len(self._inputs), stop=stop
            )
            self._outputs = [translation.texts[0] for translation in outputs]
        log_probs = None
        if self._suite.reads_model:
            log_probs = self._translator.log_probs(
                self._inputs, self._references
            )
        self._by_direction = {
            name: self._score(*part, log_probs)
            for name, part in self._parts.items()
        }
        return scores.mean(self._by_direction)

    def _score(self, indices, metrics, log_probs):
        outputs, references, inputs = (
            [lines[i] for i in indices]
            for lines in (self._outputs, self._references, self._inputs)
        )
        if log_probs is not None:
            log_probs = log_probs[indices]
        statistics = scores.count(
            metrics, outputs, [references], inputs, log_probs
        )
        return scores.aggregate(metrics, statistics)

    def shown_translations(self) -> list[dict[str, str]]:
        """Return evenly spaced translations of the last measure(), as rows."""
        if not self._suite.reads_text:
            return []
        count = min(_SAMPLES_SHOWN, len(self._inputs))
        return [
            {
                "source": self._inputs[i],
                "translation": self._outputs[i],
                "reference": self._references[i],
            }
            for i in np.linspace(0, len(self._inputs) - 1, count).astype(int)
        ]

    def results(self, values: dict[str, scores.Score]) -> dict[str, Any]:
        """Return scores with their signatures and numbers of sentences.

        If there are several directions, the scores of each are there, too.
        """
        results: dict[str, Any] = {}
        for name, score in values.items():
            results[name] = score.value
            results[f"{name}_sentences"] = len(self._inputs)
            results[f"{name}_signature"] = score.signature
            if len(self._parts) > 1:
                results[f"{name}_directions"] = {
                    direction: found[name].value
                    for direction, found in self._by_direction.items()
                }
        return results

    def summary(self, values: dict[str, scores.Score]) -> str:
        """Return a human-readable line about the settings of each score."""
        search = ", by greedy search" if self._suite.reads_text else ""
        return "\n".join(
            f"{name} is measured on {len(self._inputs):,} of "
            f"{self._num_usable:,} sentences{search}, without an average "
            f"of checkpoints: {score.signature}"
            for name, score in values.items()
        )
