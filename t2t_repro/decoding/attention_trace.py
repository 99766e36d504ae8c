"""Attention weights of a sentence and its translation."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.data.features import one_sentence_per_row
from t2t_repro.decoding import search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.seq2seq import AttentionWeights, Seq2Seq
from t2t_repro.runtime import graph
from t2t_repro.text.vocabulary import PAD
from t2t_repro.text.vocabulary_pair import Vocabularies

MAX_SUBWORDS = 128  # a larger picture would be illegible


class AttentionTrace(NamedTuple):
    """Attention weights of a sentence and its translation."""

    inputs: str
    outputs: str
    source: list[str]  # L pieces, EOS the last
    target: list[str]  # T pieces, EOS the last
    weights: AttentionWeights  # numpy arrays without the axis B


class AttentionTracer:
    """Search with one model that also returns its attention weights."""

    def __init__(
        self,
        model: Seq2Seq,
        vocabularies: Vocabularies,
        decode_hparams: DecodeHParams,
    ) -> None:
        """Store the arguments; TensorFlow traces the search later.

        Args:
            model: Seq2Seq with cross-attention weights.
            vocabularies: vocabularies of source and target.
            decode_hparams: settings of the search.

        Raises:
            UserError: the model has no attention weights.
        """
        if "cross" not in model.attention_kinds:
            raise errors.UserError(
                f"The model {model.hparams.model!r} has no attention weights "
                "to show."
            )
        self._model = model
        self._source, self._target = vocabularies
        hparams = dataclasses.replace(decode_hparams, return_beams=False)
        rule = search.build_rules(hparams, self._target)
        self._search = graph.function(
            lambda inputs: search.search(
                [model], inputs, hparams, rule=rule
            ).ids[:, 0],
            input_signature=[tf.TensorSpec([1, None], tf.int32)],
        )

    def is_blank(self, line: str) -> bool:
        """Return whether a line has no text to translate."""
        return not self._source.has_text(*self._source.encode([line]))

    def trace(self, line: str) -> AttentionTrace:
        """Translate a line and return its attention weights.

        The line is a batch by itself, so that no padding appears.

        Raises:
            UserError: the line is blank or longer than MAX_SUBWORDS.
        """
        (ids,) = self._source.encode([line])
        if not self._source.has_text(ids) or len(ids) > MAX_SUBWORDS:
            raise errors.UserError(
                "Attention is shown for sentences of 1 to "
                f"{MAX_SUBWORDS - 1} subwords, without tags; got "
                f"{len(ids) - 1} in {line[:80]!r}."
            )
        inputs = tf.constant([ids], tf.int32)
        targets = self._search(inputs)
        targets = tf.boolean_mask(targets, targets[0] != PAD, axis=1)
        batch = one_sentence_per_row(inputs, targets)
        weights = self._model.attention_weights(batch)
        output_ids = targets[0].numpy().tolist()
        return AttentionTrace(
            line,
            self._target.decode([output_ids])[0],
            self._source.pieces(ids),
            self._target.pieces(output_ids),
            AttentionWeights(
                *(
                    None if kind is None else kind[:, 0].numpy()
                    for kind in weights
                )
            ),
        )
