"""Vocabularies of other systems: tokens by ids, and SentencePiece models."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import sentence_piece, whitespace_tokens
from t2t_repro.text.sentence_piece import MappedModel, MappedSentencePiece
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies
from t2t_repro.text.whitespace_tokens import WhitespaceTokens


class FoundVocabularies(NamedTuple):
    """Vocabularies of a model, and what is known of them."""

    pair: Vocabularies
    # The other system's id of each of our ids, on both sides; -1: none.
    orders: Sequence[list[int]]
    files: Sequence[pathlib.Path]
    kind: str  # name in registry.vocabularies


def map_tokens(
    tokens: Sequence[Sequence[str]],
    special: Sequence[SpecialTokens],
    lists: Sequence[pathlib.Path],
) -> FoundVocabularies:
    """Return vocabularies of text in which spaces separate the tokens.

    Args:
        tokens: tokens of both sides by their ids.
        special: names of special tokens.
        lists: the files of the tokens.
    """
    mapped = [
        named(str(file), whitespace_tokens.map_ids, *side)
        for file, *side in zip(lists, tokens, special, strict=True)
    ]
    return FoundVocabularies(
        Vocabularies.of(*(WhitespaceTokens(model) for model, _ in mapped)),
        [order for _, order in mapped],
        [*dict.fromkeys(lists)],
        "whitespace_tokens",
    )


def map_pieces(
    models: Sequence[pathlib.Path],
    tokens: Sequence[Sequence[str]],
    special: Sequence[SpecialTokens],
    lists: Sequence[pathlib.Path],
    reads_codes: bool = False,
) -> FoundVocabularies:
    """Return SentencePiece models whose pieces have the ids of lists.

    Args:
        models: files of the SentencePiece models of both sides.
        tokens: as of map_tokens().
        special: as of map_tokens().
        lists: as of map_tokens().
        reads_codes: as of sentence_piece.map_ids().
    """
    mapped = [
        named(
            f"{model} with {file}",
            sentence_piece.map_ids,
            files.read_bytes(model),
            *side,
            reads_codes,
        )
        for model, file, *side in zip(
            models, lists, tokens, special, strict=True
        )
    ]
    return pieces(mapped, [*lists, *models])


def keep_ids(model: pathlib.Path) -> MappedModel:
    """Call sentence_piece.keep_ids() on a file, named in errors."""
    content = files.read_bytes(model)
    return named(str(model), sentence_piece.keep_ids, content)


def pieces(
    mapped: Sequence[MappedModel], used: Iterable[pathlib.Path]
) -> FoundVocabularies:
    """Return the vocabularies of SentencePiece models, from their files."""
    return FoundVocabularies(
        Vocabularies.of(*(MappedSentencePiece(one.model) for one in mapped)),
        [one.order for one in mapped],
        [*dict.fromkeys(used)],
        "mapped_sentence_piece",
    )


def named(names: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of text/ whose errors are to name files."""
    try:
        return function(*arguments)
    except errors.UserError as error:
        raise errors.UserError(f"Cannot use {names}. {error}") from error
