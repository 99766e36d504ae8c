"""WhitespaceTokens in a graph: a split and a hash table."""

import tensorflow as tf

from t2t_repro.serving.graph_vocabularies import GraphVocabulary
from t2t_repro.text.whitespace_tokens import WhitespaceTokens


class TokenTable(GraphVocabulary):
    """Table from tokens to ids, and back."""

    def __init__(self, vocabulary: WhitespaceTokens):
        super().__init__(vocabulary)
        self._tokens = tf.constant(vocabulary.pieces(range(vocabulary.size)))
        ids = vocabulary.text_ids
        entries = tf.lookup.KeyValueTensorInitializer(
            tf.constant(list(ids)), tf.constant(list(ids.values()), tf.int32)
        )
        self._table = tf.lookup.StaticHashTable(entries, vocabulary.unknown)

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        tokens = tf.strings.split(lines)
        return tokens.with_flat_values(self._table[tokens.flat_values])

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        tokens = tf.gather(self._tokens, ids)
        return tf.strings.reduce_join(tokens, axis=1, separator=" ")

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._tokens, ids)
