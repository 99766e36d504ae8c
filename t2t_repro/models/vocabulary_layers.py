"""Embeddings of inputs and targets, and the softmax: one matrix, or three."""

from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.layers.embedding import Embedding
from t2t_repro.models.seq2seq import Seq2Seq


class VocabularyLayers(NamedTuple):
    """Layers whose weights have a row for each subword."""

    inputs: Embedding
    targets: Embedding
    softmax: Embedding


def build(model: Seq2Seq) -> VocabularyLayers:
    """Build the layers for the vocabularies of a model.

    If hparams.shared_embedding_and_softmax_weights, they are one layer.

    Raises:
        UserError: they should be one, and there are two vocabularies.
    """
    sizes = model.source_vocab_size, model.vocab_size, model.vocab_size
    if not model.hparams.shared_embedding_and_softmax_weights:
        return VocabularyLayers(
            *(
                Embedding(
                    size,
                    model.hparams.hidden_size,
                    name=name,
                    dtype=model.dtype_policy,
                )
                for name, size in zip(
                    ("inputs_embedding", "targets_embedding", "softmax"),
                    sizes,
                    strict=True,
                )
            )
        )
    if len(set(sizes)) > 1:
        raise errors.UserError(
            "One embedding for both sides needs one vocabulary; inputs have "
            f"{sizes[0]:,} subwords and targets {sizes[1]:,}. Say --hparams="
            "shared_embedding_and_softmax_weights=false."
        )
    shared = Embedding(
        model.vocab_size,
        model.hparams.hidden_size,
        name="embedding",
        dtype=model.dtype_policy,
    )
    return VocabularyLayers(shared, shared, shared)
