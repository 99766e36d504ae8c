"""Loss on the validation split."""

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.data import batch_plan, batches
from t2t_repro.data.corpus import Corpus
from t2t_repro.hparam import HParams
from t2t_repro.io import progress, stop_signals
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.training import step
from t2t_repro.training.cross_entropy import smoothing_constant
from t2t_repro.training.loss import num_chunks, perplexity


class Validation:
    """Repeatable pass over a corpus, without dropout."""

    def __init__(
        self,
        model: Seq2Seq,
        hparams: HParams,
        corpus: Corpus,
        strategy: tf.distribute.Strategy,
        xla: bool,
        microbatches: batches.Microbatches = batches.ONE_MICROBATCH,
        max_pairs: int | None = None,
    ):
        """Plan the batches of the pass.

        Args:
            model: built in the strategy's scope.
            hparams: settings; pairs longer than max_length are dropped.
            corpus: the validation split.
            strategy: tf.distribute strategy.
            xla: whether to compile.
            microbatches: those of a replica.
            max_pairs: pairs to use, evenly spaced; None: all.

        Raises:
            UserError: no pair is short enough.
        """
        max_length = hparams.max_length
        usable = batch_plan.usable_pairs(corpus.lengths, max_length, max_pairs)
        if not len(usable):
            raise errors.UserError(
                f"There is nothing to validate on: of {len(corpus):,} pairs "
                f"none has at most max_length={max_length} subwords "
                "a side. Check the raw validation text."
            )
        replicas = strategy.num_replicas_in_sync
        # A batch is padded to its last row: it needs no more than the corpus.
        tokens = int(corpus.lengths["targets"][usable].sum())
        is_unused = np.ones(len(corpus), bool)
        is_unused[usable] = False
        plan = batch_plan.build(
            # A plan leaves out the pairs that are too long.
            {
                side: np.where(is_unused, max_length + 1, lengths)
                for side, lengths in corpus.lengths.items()
            },
            "packed" if model.packed_rows else "bucketed",
            min(hparams.batch_tokens, tokens),
            max_length,
            seed=0,
            proportional_rows=hparams.proportional_rows,
        )
        # Validations of other pairs are not comparable, see History.values().
        self.sample_sizes = {}
        if len(usable) == max_pairs:
            self.sample_sizes = {
                f"{name}_sentences": len(usable)
                for name in ("perplexity", "accuracy")
            }
        self._num_batches = math.ceil(plan.steps_per_epoch)
        self._batches = strategy.distribute_datasets_from_function(
            lambda context: batches.evaluation_dataset(
                corpus, plan, context, microbatches
            )
        )
        self._step = step.build_eval_step(
            model,
            hparams,
            strategy,
            xla,
            num_chunks(
                plan, replicas, microbatches.max_tokens, model.vocab_size
            ),
            microbatches.parallel,
        )
        self._constant = smoothing_constant(
            hparams.label_smoothing, model.vocab_size
        )

    def measure(
        self, stop: Callable[[], object] = lambda: False
    ) -> dict[str, float]:
        """Return loss, perplexity and accuracy, means over real tokens.

        Args:
            stop: called before each batch, by all workers; true ends the pass.

        Raises:
            Stopped: stop() was true.
        """
        smoothed = nll = correct = tokens = 0.0
        for batch in progress.bar(
            self._batches,
            "validate",
            self._num_batches,
            unit="batch",
            delay=progress.DELAY_SECONDS,
            leave=False,
        ):
            if stop():
                raise stop_signals.Stopped
            sums = self._step(batch)
            smoothed += float(sums.smoothed)
            nll += float(sums.nll)
            correct += float(sums.correct)
            tokens += float(sums.tokens)
        return {
            "loss": smoothed / tokens,
            "loss_minus_smoothing_constant": smoothed / tokens - self._constant,
            "perplexity": perplexity(nll / tokens),
            "accuracy": correct / tokens,
        }
