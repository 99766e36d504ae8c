"""Imported models without the subwords that a text does not use.

NLLB-200 has 256,206 subwords for 202 languages, which are two fifths of its
weights, and most of the products of a step of its search. A text in two
languages uses a tenth of them. Its segmentation stays what it was, and so do
the logits of the subwords that are left, whose probabilities grow.
"""

import itertools
import pathlib
from collections.abc import Sequence

from t2t_repro import errors
from t2t_repro.importing import imported
from t2t_repro.importing.imported import Imported
from t2t_repro.text import parallel_files, sentence_piece
from t2t_repro.text.sentence_piece import MappedSentencePiece, SentencePiece
from t2t_repro.text.vocabulary_pair import Vocabularies

_LINES = 10_000  # that are segmented at once


def trim(found: Imported, paths: Sequence[pathlib.Path]) -> Imported:
    """Return a model with the subwords of a text, and those that all need.

    Special subwords, languages, bytes and single characters stay, so that no
    text becomes unknown: another subword is spelled by those that are left.

    Args:
        found: the model.
        paths: files of text in any of its languages.

    Raises:
        UserError: a file cannot be read, or a vocabulary is not SentencePiece.
    """
    pair = found.vocabularies
    sides = list(map(_require_pieces, pair))
    needed = [_needed_ids(side, paths) for side in dict.fromkeys(sides)]
    if pair.have_same_ids:
        needed = [set().union(*needed)] * 2
    ids = list(map(sorted, needed))
    kept = map(sentence_piece.keep_pieces, sides, ids)
    source, target, softmax = (
        found.weights[f"{name}/weight"]
        for name in ("inputs_embedding", "targets_embedding", "softmax")
    )
    bias = found.weights.get("softmax/bias")
    matrices = imported.matrices(ids, source, target, softmax, bias)
    return found._replace(
        weights={**found.weights, **matrices},
        vocabularies=Vocabularies.of(*kept),
        vocabulary_type=(
            found.vocabulary_type
            if isinstance(pair.source, MappedSentencePiece)
            else "mapped_sentence_piece"
        ),
        reference=None,  # which has the probabilities of before
    )


def _require_pieces(vocabulary):
    if not isinstance(vocabulary, SentencePiece):
        raise errors.UserError(
            "--keep_tokens_of is for vocabularies of SentencePiece; got "
            f"{type(vocabulary).__name__}. Omit it."
        )
    return vocabulary


def _needed_ids(vocabulary, paths):
    """Return the ids of the subwords that stay."""
    ids = sentence_piece.indispensable_ids(vocabulary)
    lines = itertools.chain(*map(parallel_files.read_lines, paths))
    while chunk := list(itertools.islice(lines, _LINES)):
        ids.update(*vocabulary.encode(chunk))
    return ids
