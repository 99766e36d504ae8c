"""SentencePiece's vocabularies in a graph: operations of TF Text."""

import tensorflow_text

from t2t_repro.serving.graph_vocabulary import GraphVocabulary


class SentencePieceGraph(GraphVocabulary):
    """A SentencePiece model, which TF Text's operations read."""

    def __init__(self, vocabulary):
        super().__init__(vocabulary)
        # A loaded graph finds the model by the name of the operation that made
        # it: with TF Text's own name, a second vocabulary is the first again.
        self.tokenizer = tensorflow_text.SentencepieceTokenizer(
            vocabulary.model, name=f"vocabulary_{vocabulary.sha256}"
        )

    def encode(self, lines):
        return self.tokenizer.tokenize(lines)

    def decode(self, ids):
        return self.tokenizer.detokenize(ids)

    def pieces(self, ids):
        return self.tokenizer.id_to_string(ids)
