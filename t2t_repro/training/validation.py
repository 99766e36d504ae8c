"""Loss on the validation split."""

from t2t_repro import errors
from t2t_repro.data import batch_plan, batches
from t2t_repro.training import loss as losses
from t2t_repro.training import step


class Validation:
    """One pass over a corpus, without dropout, as often as it is asked for."""

    def __init__(self, model, hparams, corpus, strategy, xla, max_tokens=None):
        """Plans the pass.

        Args:
            model: built in the strategy's scope.
            hparams: HParams; pairs longer than max_length are left out.
            corpus: data.corpus.Corpus.
            strategy: tf.distribute strategy.
            xla: whether to compile.
            max_tokens: slots in a replica's memory at once; None: a batch.

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
        # A batch is padded to its last row: it has no more than there are.
        tokens = int(corpus.lengths["targets"][usable].sum())
        plan = batch_plan.build(
            corpus.lengths,
            "packed" if model.packed_rows else "bucketed",
            min(hparams.batch_tokens, tokens),
            hparams.max_length,
            seed=0,
        )
        self._batches = strategy.distribute_datasets_from_function(
            lambda context: batches.evaluation_dataset(
                corpus, plan, context, max_tokens
            )
        )
        self._step = step.build_eval_step(
            model,
            hparams,
            strategy,
            xla,
            losses.num_chunks(plan, replicas, max_tokens, model.vocab_size),
        )
        self._constant = losses.smoothing_constant(
            hparams.label_smoothing, model.vocab_size
        )

    def figures(self) -> dict[str, float]:
        """Per real token: loss as trained on, perplexity, accuracy."""
        totals = [0.0] * 4
        for batch in self._batches:
            sums = self._step(batch)
            totals = [t + float(s) for t, s in zip(totals, sums, strict=False)]
        smoothed, plain, correct, tokens = totals
        return {
            "loss": smoothed / tokens,
            "loss_minus_smoothing_constant": smoothed / tokens - self._constant,
            "perplexity": losses.perplexity(plain / tokens),
            "accuracy": correct / tokens,
        }
