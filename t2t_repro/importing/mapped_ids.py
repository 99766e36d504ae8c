"""SentencePiece models in files, with the ids of another program's list."""

import pathlib
from collections.abc import Sequence

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import mapped_sentence_piece
from t2t_repro.text.mapped_sentence_piece import MappedModel
from t2t_repro.text.token_lists import Special


def map_ids(
    spm: pathlib.Path,
    tokens: Sequence[str],
    special: Special,
    vocabulary: pathlib.Path,
    reads_codes: bool = False,
) -> MappedModel:
    """Call mapped_sentence_piece.map_ids() on files, named in errors.

    Args:
        spm: file of a SentencePiece model.
        tokens: tokens by their ids.
        special: names of special tokens.
        vocabulary: file of the tokens.
        reads_codes: as of mapped_sentence_piece.map_ids().
    """
    return _map(
        spm,
        lambda model: mapped_sentence_piece.map_ids(
            model, tokens, special, reads_codes
        ),
        f"{spm} with {vocabulary}",
    )


def keep_ids(spm: pathlib.Path) -> MappedModel:
    """Call mapped_sentence_piece.keep_ids() on a file, named in errors."""
    return _map(spm, mapped_sentence_piece.keep_ids, str(spm))


def _map(spm, function, names):
    model = files.read_bytes(spm)
    try:
        return function(model)
    except errors.UserError as error:
        raise errors.UserError(f"Cannot use {names}. {error}") from error
