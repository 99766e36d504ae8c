"""A vocabulary of characters, with its counterpart in exported graphs."""

import tensorflow as tf

from t2t_repro.registry import vocabularies
from t2t_repro.serving.graph_vocabularies import GraphVocabulary
from t2t_repro.text.vocabulary import EOS, Vocabulary

SPECIAL = ["<pad>", "</s>", "<unk>"]
UNKNOWN = 2


@vocabularies.register("characters")
class Characters(Vocabulary):
    """Characters of the text, in the order of their code points."""

    graph_class = f"{__name__}.CharactersGraph"
    unknown = UNKNOWN

    def __init__(self, model):
        super().__init__(model)
        self._pieces = [*SPECIAL, *model.decode("utf-8")]
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}

    @classmethod
    def learn(cls, lines, vocab_size, split_by_unicode_script=True):
        kept = sorted(set("".join(lines)))[: vocab_size - len(SPECIAL)]
        return cls("".join(kept).encode("utf-8"))

    @property
    def size(self):
        return len(self._pieces)

    def encode(self, lines):
        return [
            [*(self._ids.get(letter, UNKNOWN) for letter in line), EOS]
            for line in lines
        ]

    def join(self, rows):
        return ["".join(self.pieces(row)) for row in rows]

    def pieces(self, ids):
        return [self._pieces[i] for i in ids]


class CharactersGraph(GraphVocabulary):
    """Same vocabulary in TensorFlow operations."""

    def __init__(self, vocabulary):
        super().__init__(vocabulary)
        self._pieces = tf.constant(vocabulary.pieces(range(vocabulary.size)))
        ids = tf.range(vocabulary.size)
        entries = tf.lookup.KeyValueTensorInitializer(self._pieces, ids)
        self._ids = tf.lookup.StaticHashTable(entries, UNKNOWN)

    def encode(self, lines):
        letters = tf.strings.unicode_split(lines, "UTF-8")
        return letters.with_flat_values(self._ids[letters.flat_values])

    def decode(self, ids):
        return tf.strings.reduce_join(tf.gather(self._pieces, ids), axis=1)

    def pieces(self, ids):
        return tf.gather(self._pieces, ids)
