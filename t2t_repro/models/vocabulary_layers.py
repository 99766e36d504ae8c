"""Embeddings of inputs and targets, and the softmax: one to three matrices."""

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

    hparams.shared_embedding_and_softmax_weights makes them one layer;
    shared_targets_embedding_and_softmax_weights, if the model has it, the last
    two.

    Raises:
        UserError: all should be one, and there are two vocabularies.
    """
    if model.hparams.shared_embedding_and_softmax_weights:
        _require_one_vocabulary(model)
        shared = _embedding(model, "embedding", model.vocab_size, softmax=True)
        return VocabularyLayers(shared, shared, shared)
    inputs = _embedding(model, "inputs_embedding", model.source_vocab_size)
    if getattr(
        model.hparams, "shared_targets_embedding_and_softmax_weights", False
    ):
        targets = _embedding(
            model, "targets_embedding", model.vocab_size, softmax=True
        )
        return VocabularyLayers(inputs, targets, targets)
    targets = _embedding(model, "targets_embedding", model.vocab_size)
    softmax = _embedding(model, "softmax", model.vocab_size, softmax=True)
    return VocabularyLayers(inputs, targets, softmax)


def _embedding(model, name, vocab_size, softmax=False):
    """Build a layer; `softmax` says that it also computes logits.

    Only the Transformer has the hparams of the bias and of the factor.
    """
    hparams = model.hparams
    return Embedding(
        vocab_size,
        hparams.hidden_size,
        use_bias=softmax and getattr(hparams, "softmax_bias", False),
        multiply_mode=getattr(hparams, "multiply_embedding_mode", "sqrt_depth"),
        name=name,
        dtype=model.dtype_policy,
    )


def _require_one_vocabulary(model):
    if model.source_vocab_size != model.vocab_size:
        raise errors.UserError(
            "One embedding for both sides needs one vocabulary; inputs have "
            f"{model.source_vocab_size:,} subwords and targets "
            f"{model.vocab_size:,}. Say --hparams="
            "shared_embedding_and_softmax_weights=false."
        )
