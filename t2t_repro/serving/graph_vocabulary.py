"""The contract of vocabularies with an exported graph: strings in and out."""

import importlib

import tensorflow as tf

from t2t_repro import errors


class GraphVocabulary(tf.Module):
    """Base class of vocabularies in a graph; Vocabulary.graph_class names one.

    Its results are those of the Vocabulary that it is made from. Attributes
    hold its tables and variables, so that a SavedModel has them.
    """

    def __init__(self, vocabulary):
        """Make what the graph needs of a Vocabulary."""
        super().__init__()

    def encode(self, lines):
        """Convert strings [B] to ragged ids [B, None] int32, without EOS."""
        raise self._lacks("encode")

    def decode(self, ids):
        """Convert ragged ids [N, None], without PAD and EOS, to strings [N]."""
        raise self._lacks("decode")

    def pieces(self, ids):
        """Convert ids [B, L] to strings [B, L], also of PAD and EOS."""
        raise self._lacks("pieces")

    def _lacks(self, name):
        return errors.UserError(
            f"{type(self).__name__} has no {name}: serving/graph_vocabulary.py "
            "says what a vocabulary in a graph owes."
        )


def build(vocabularies) -> list[GraphVocabulary]:
    """Make the graph's vocabularies of source and target.

    Raises:
        UserError: names a vocabulary that cannot be in a graph.
    """
    if vocabularies.is_shared:
        return [_build(vocabularies.source)] * 2
    return [_build(one) for one in vocabularies]


def _build(vocabulary):
    name = type(vocabulary).__name__
    if not vocabulary.graph_class:
        raise errors.UserError(
            f"The vocabulary {name} has no graph_class, and without it no "
            "SavedModel can read text. Translate with decoder, or give "
            f"{name} one: serving/graph_vocabulary.py says what it owes."
        )
    module, _, wanted = vocabulary.graph_class.rpartition(".")
    cls = getattr(importlib.import_module(module), wanted)
    if not issubclass(cls, GraphVocabulary):
        raise errors.UserError(
            f"graph_class of the vocabulary {name} must be a subclass of "
            "t2t_repro.serving.graph_vocabulary.GraphVocabulary; got "
            f"{vocabulary.graph_class!r}."
        )
    return cls(vocabulary)
