"""Interface of vocabularies in an exported graph: strings in and out."""

import importlib
from collections.abc import Sequence

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.text.vocabulary import Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies


class GraphVocabulary(tf.Module):
    """Base class of vocabularies in a graph; Vocabulary.graph_class names one.

    Its results equal those of the Vocabulary that it is built from. Attributes
    hold its tables and variables, so that a SavedModel contains them.
    """

    def __init__(self, vocabulary: Vocabulary):
        """Build what the graph needs of a vocabulary."""
        super().__init__()

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Convert strings [B] to ragged ids [B, None] int32, without EOS."""
        raise self._lacks("encode")

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Convert ragged ids [N, None], without PAD and EOS, to strings [N]."""
        raise self._lacks("decode")

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Convert ids [B, L] to strings [B, L], PAD and EOS included."""
        raise self._lacks("pieces")

    def _lacks(self, name):
        return errors.UserError(
            f"{type(self).__name__} has no {name}: serving/graph_vocabulary.py "
            "lists the methods of a vocabulary in a graph."
        )


def build(vocabularies: Vocabularies) -> Sequence[GraphVocabulary]:
    """Build the graph's vocabularies of source and target.

    Raises:
        UserError: names a vocabulary that has no form in a graph.
    """
    if vocabularies.is_shared:
        return [_build(vocabularies.source)] * 2
    return [_build(vocabulary) for vocabulary in vocabularies]


def _build(vocabulary):
    name = type(vocabulary).__name__
    if not vocabulary.graph_class:
        raise errors.UserError(
            f"The vocabulary {name} has no graph_class, and without it no "
            "SavedModel can read text. Translate with decoder, or give "
            f"{name} one: serving/graph_vocabulary.py lists its methods."
        )
    module, _, class_name = vocabulary.graph_class.rpartition(".")
    graph_class = getattr(importlib.import_module(module), class_name)
    if not issubclass(graph_class, GraphVocabulary):
        raise errors.UserError(
            f"graph_class of the vocabulary {name} must be a subclass of "
            "t2t_repro.serving.graph_vocabularies.GraphVocabulary; got "
            f"{vocabulary.graph_class!r}."
        )
    return graph_class(vocabulary)
