"""Vocabulary of words that cannot be exported in a graph."""

import collections

from t2t_repro import errors
from t2t_repro.registry import vocabularies
from t2t_repro.text.vocabulary import EOS, Vocabulary

SPECIAL = ["<pad>", "</s>", "<unk>"]


@vocabularies.register("words")
class Words(Vocabulary):
    """Most frequent words, separated by spaces."""

    unknown = 2

    def __init__(self, model):
        super().__init__(model)
        try:
            self._words = [*SPECIAL, *model.decode("utf-8").split("\n")]
        except UnicodeDecodeError as error:
            raise errors.UserError(
                f"The file of words is not UTF-8: {error}."
            ) from error
        self._ids = {word: i for i, word in enumerate(self._words)}

    @classmethod
    def learn(cls, lines, vocab_size, split_by_unicode_script=True):
        counts = collections.Counter(
            word for line in lines for word in line.split()
        )
        by_count = sorted(counts, key=lambda word: (-counts[word], word))
        kept = by_count[: vocab_size - len(SPECIAL)]
        return cls("\n".join(kept).encode("utf-8"))

    @property
    def size(self):
        return len(self._words)

    def encode(self, lines):
        return [
            [*(self._ids.get(word, self.unknown) for word in line.split()), EOS]
            for line in lines
        ]

    def join(self, rows):
        return [" ".join(self.pieces(row)) for row in rows]

    def pieces(self, ids):
        return [self._words[i] for i in ids]
