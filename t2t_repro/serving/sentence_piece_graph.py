"""SentencePiece vocabularies in a graph: operations of TF Text."""

import tensorflow as tf
import tensorflow_text

from t2t_repro.serving.graph_vocabularies import GraphVocabulary
from t2t_repro.text.mapped_sentence_piece import CODE, MappedSentencePiece
from t2t_repro.text.vocabulary import Vocabulary


class SentencePieceGraph(GraphVocabulary):
    """A SentencePiece model, which TF Text's operations read."""

    out_type = tf.int32  # of the segmentation: ids

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        # A loaded graph finds the model by the name of the operation that
        # created it: under TF Text's default name, a second vocabulary would
        # be the first one.
        self.tokenizer = tensorflow_text.SentencepieceTokenizer(
            vocabulary.model,
            out_type=self.out_type,
            name=f"vocabulary_{vocabulary.sha256}",
        )

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        return self.tokenizer.tokenize(lines)

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self.tokenizer.detokenize(ids)

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        return self.tokenizer.id_to_string(ids)


class MappedPieceGraph(SentencePieceGraph):
    """A MappedSentencePiece: ids of pieces by their text."""

    out_type = tf.string

    def __init__(self, vocabulary: MappedSentencePiece):
        super().__init__(vocabulary)
        self._size, self._unknown = vocabulary.size, vocabulary.unknown
        self._reads_codes = vocabulary.reads_codes

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        if self._reads_codes:
            pieces = self._with_codes(lines)
        else:
            pieces = super().encode(lines)
        ids = self.tokenizer.string_to_id(pieces.flat_values)
        known = tf.where(ids < self._size, ids, self._unknown)
        return pieces.with_flat_values(known)

    def _with_codes(self, lines):
        """Return pieces: the code at the beginning of a line, then its text."""
        texts = tf.strings.regex_replace(lines, CODE, "", replace_global=False)
        has_code = tf.not_equal(lines, texts)
        ends = tf.strings.length(lines) - tf.strings.length(texts)
        codes = tf.boolean_mask(
            tf.strings.substr(lines, 0 * ends, ends), has_code
        )
        return tf.concat(
            [
                tf.RaggedTensor.from_row_lengths(
                    codes, tf.cast(has_code, tf.int64)
                ),
                super().encode(texts),
            ],
            axis=1,
        )
