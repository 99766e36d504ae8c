"""Word alignments of sentences and translations, by a model's attention.

A subword of the translation is linked to the subword of the source that has
the greatest cross-attention weight, in one layer, averaged over its heads. By
default this is the last layer but one, whose attention agrees best with
alignments by people (Garg et al. 2019).
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import row_batches, score, word_alignment
from t2t_repro.decoding.word_alignment import Alignment
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runtime import graph, shards
from t2t_repro.text.vocabulary import EOS, Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies


class Aligner:
    """Models that align given translations, in one forward pass."""

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        vocabularies: Vocabularies,
        layer: int | None = None,
    ) -> None:
        """Store the arguments; TensorFlow traces the forward pass later.

        Args:
            models: one, or an ensemble, whose weights are averaged.
            vocabularies: source and target, the same for all models.
            layer: argument of word_alignment.layer_index().

        Raises:
            UserError: a model has no attention weights, or no such layer.
        """
        self._source, self._target = vocabularies
        any_ids = tf.constant([[EOS, EOS]])
        layers = []
        for model in models:
            if "cross" not in model.attention_kinds:
                raise errors.UserError(
                    f"The model {model.hparams.model!r} has no attention over "
                    "the source, which aligns words. Omit --alignments."
                )
            num_layers = len(score.cross_attention(model, any_ids, any_ids))
            layers.append(word_alignment.layer_index(layer, num_layers))

        def best_sources(inputs, outputs):
            weights = tf.add_n(
                [
                    tf.reduce_mean(
                        score.cross_attention(model, inputs, outputs)[index], 1
                    )
                    for model, index in zip(models, layers, strict=True)
                ]
            )  # [B, T, L]
            is_text = row_batches.is_text(inputs, self._source)
            weights = tf.where(is_text[:, None], weights, -1.0)
            return tf.argmax(weights, -1, tf.int32)  # [B, T]

        ids = tf.TensorSpec([None, None], tf.int32)
        self._best_sources = graph.function(
            best_sources, input_signature=[ids, ids]
        )

    def align(self, inputs: tf.Tensor, outputs: tf.Tensor) -> list[Alignment]:
        """Return the alignment of each sentence.

        Args:
            inputs: [B, L] int32, ids with EOS, PAD after.
            outputs: [B, T] int32, translations, the same.
        """
        best = shards.map_shards(self._best_sources, (inputs, outputs)).numpy()
        alignments = []
        for source, target, positions in zip(
            inputs.numpy(), outputs.numpy(), best, strict=True
        ):
            target_words = _words(self._target, target)
            # The positions of EOS and PAD are not read.
            first = int(source[0] in self._source.tag_ids)  # no word
            links = zip(
                positions - first, range(len(target_words)), strict=False
            )
            source_words = _words(self._source, source[first:])
            alignments.append(
                word_alignment.align(links, source_words, target_words)
            )
        return alignments


def _words(vocabulary: Vocabulary, row: np.ndarray) -> list[int]:
    """Return the word of each subword of a row but EOS and PAD."""
    ids = row[: np.argmax(row == EOS)].tolist()
    return word_alignment.word_indices(ids, vocabulary.decode)
