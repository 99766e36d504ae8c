"""Loss on the validation split."""

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.data import batch_plan, batches
from t2t_repro.data.corpus import Corpus
from t2t_repro.hparam import HParams
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
    ):
        """Plan the batches of the pass.

        Args:
            model: built in the strategy's scope.
            hparams: settings; pairs longer than max_length are dropped.
            corpus: the validation split.
            strategy: tf.distribute strategy.
            xla: whether to compile.
            microbatches: those of a replica.

        Raises:
            UserError: no pair is short enough.
        """
        usable = batch_plan.usable_pairs(corpus.lengths, hparams.max_length)
        if not len(usable):
            raise errors.UserError(
                f"There is nothing to validate on: of {len(corpus):,} pairs "
                f"none has at most max_length={hparams.max_length} subwords "
                "a side. Check the raw validation text."
            )
        replicas = strategy.num_replicas_in_sync
        # A batch is padded to its last row: it needs no more than the corpus.
        tokens = int(corpus.lengths["targets"][usable].sum())
        plan = batch_plan.build(
            corpus.lengths,
            "packed" if model.packed_rows else "bucketed",
            min(hparams.batch_tokens, tokens),
            hparams.max_length,
            seed=0,
            proportional_rows=hparams.proportional_rows,
        )
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

    def measure(self) -> dict[str, float]:
        """Return loss, perplexity and accuracy, means over real tokens."""
        smoothed = nll = correct = tokens = 0.0
        for batch in self._batches:
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
