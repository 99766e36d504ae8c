"""Transformers of other systems in our terms: what a reader returns."""

import contextlib
import functools
import itertools
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays
from t2t_repro.io import files
from t2t_repro.text import (
    byte_pair_encoding,
    parallel_files,
    sentence_piece,
    vocabulary,
    vocabulary_pair,
)
from t2t_repro.text.byte_pair_encoding import ByteLevel
from t2t_repro.text.sentence_piece import (
    MappedSentencePiece,
    SentencePiece,
)
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

# Bias of the logit of a PAD that the other system lacks: exp(-100) adds nothing
# to a softmax, and label smoothing of it stays small.
PAD_BIAS = -100.0
SIDES = "inputs", "targets"  # of models of many tasks, in place of languages
_LINES = 10_000  # that trim() segments at once


class FoundVocabularies(NamedTuple):
    """Vocabularies of a model, and what is known of them."""

    pair: Vocabularies
    # The other system's id of each of our ids, on both sides; -1: none.
    orders: Sequence[list[int]]
    files: Sequence[pathlib.Path]
    kind: str  # name in registry.vocabularies
    languages: tuple[str, str] = ("", "")  # "": the files do not say
    # Languages of a model that is told that of the target, or both.
    codes: tuple[str, ...] = ()

    @classmethod
    def of_type(
        cls,
        kind: str,
        mapped: Sequence[tuple[bytes, list[int]]],
        used: Iterable[pathlib.Path],
        languages: tuple[str, str] = ("", ""),
        codes: Iterable[str] = (),
    ) -> "FoundVocabularies":
        """Return vocabularies of a type, from their files and orders."""
        build = functools.cache(vocabulary_pair.vocabulary_class(kind))
        pair = Vocabularies.of(*(build(model) for model, _ in mapped))
        orders = [order for _, order in mapped]
        paths = [*dict.fromkeys(used)]
        return cls(pair, orders, paths, kind, languages, tuple(codes))


class Reference(NamedTuple):
    """Pair of which the other system gives log-probabilities."""

    system: str
    inputs: list[int]  # ids [L] of our vocabulary, EOS the last
    targets: list[int]  # [T], the same
    log_probs: Callable[[], Sequence[float]]  # [T], by the other system


class Imported(NamedTuple):
    """Model, vocabularies and search of another system."""

    # Hparams of the Transformer that differ from those of fine_tuning.
    hparams: Mapping[str, Any]
    # By our paths; weights.by_path() leaves out what is shared.
    weights: Mapping[str, np.ndarray]
    vocabularies: FoundVocabularies
    # Fields of DecodeHParams that differ from the paper's.
    search: Mapping[str, Any]
    # Files that were read.
    files: tuple[pathlib.Path, ...]
    # Arrays of the file that no part of the model needs, by their names.
    left_over: tuple[str, ...] = ()
    # None: the other system is not installed.
    reference: Reference | None = None


def languages_of(found: Imported) -> str:
    """Return the languages that the model's files name, as "en-de".

    A model of many languages may have none that are meant without a word.

    Raises:
        UserError: they name none, or not two words.
    """
    source, target = languages = found.vocabularies.languages
    are_words = all(re.fullmatch(r"\w+", name) for name in languages)
    if found.vocabularies.codes or are_words:
        return f"{source}-{target}"
    raise errors.UserError(
        "The languages must be two words, the extensions of your files; the "
        f"model's files name {source!r} and {target!r}. Say --languages=en-de."
    )


def sharing(
    weights: Mapping[str, np.ndarray], pair: Vocabularies
) -> dict[str, bool]:
    """Return the hparams of equal matrices, which are one, and of vectors."""
    target = weights["targets_embedding/weight"]
    is_tied = _are_equal(weights["softmax/weight"], target)
    have_one = pair.have_same_ids and _are_equal(
        weights["inputs_embedding/weight"], target
    )
    return {
        "shared_embedding_and_softmax_weights": have_one and is_tied,
        "shared_embedding": have_one and not is_tied,
        "shared_targets_embedding_and_softmax_weights": is_tied
        and not have_one,
        "softmax_bias": "softmax/bias" in weights,
        "learned_start": "start" in weights,
    }


def _are_equal(array, other):
    return array is other or np.array_equal(array, other)


def matrices(
    orders: Sequence[Sequence[int]],
    source: np.ndarray,
    target: np.ndarray,
    softmax: np.ndarray,
    bias: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Return embeddings and softmax by their paths, in the order of our ids.

    Args:
        orders: the other system's id of each of our ids, on both sides; -1: it
            has none, a row of zeros.
        source: embedding of the inputs [V', D].
        target: embedding of the targets [V', D].
        softmax: [V', D].
        bias: of the softmax [V']; None: there is none.
    """
    # The same array may be several of them, and of gigabytes.
    inputs = targets = weight = _rows(target, orders[1])
    if source is not target or list(orders[0]) != list(orders[1]):
        inputs = _rows(source, orders[0])
    if softmax is not target:
        weight = _rows(softmax, orders[1])
    found = {
        "inputs_embedding/weight": inputs,
        "targets_embedding/weight": targets,
        "softmax/weight": weight,
    }
    if bias is not None:
        found["softmax/bias"] = _rows(bias, orders[1], PAD_BIAS)
    return found


def _rows(array, order, absent=0.0):
    indices = np.asarray(order)
    taken = arrays.aligned((len(indices), *array.shape[1:]))
    np.take(array, np.maximum(indices, 0), axis=0, out=taken, mode="clip")
    taken[indices < 0] = absent
    return taken


class Side(NamedTuple):
    """Tokens of the inputs, or of the targets."""

    tokens: Sequence[str]  # by their ids
    special: SpecialTokens  # their names
    file: pathlib.Path  # which lists the tokens


def map_tokens(sides: Sequence[Side]) -> FoundVocabularies:
    """Return vocabularies of text in which spaces separate the tokens."""
    mapped = []
    for side in sides:
        with named_in_errors(side.file):
            mapped.append(vocabulary.map_ids(side.tokens, side.special))
    return FoundVocabularies.of_type(
        "whitespace_tokens", mapped, (side.file for side in sides)
    )


def map_pieces(
    models: Sequence[pathlib.Path],
    sides: Sequence[Side],
    reads_codes: bool = False,
) -> FoundVocabularies:
    """Return SentencePiece models whose pieces have the ids of tokens.

    Args:
        models: files of the SentencePiece models of both sides.
        sides: the tokens.
        reads_codes: as of sentence_piece.map_ids().
    """
    mapped = []
    for model, (tokens, special, file) in zip(models, sides, strict=True):
        content = files.read_bytes(model)
        with named_in_errors(f"{model} with {file}"):
            mapped.append(
                sentence_piece.map_ids(content, tokens, special, reads_codes)
            )
    used = [*(side.file for side in sides), *models]
    return FoundVocabularies.of_type("mapped_sentence_piece", mapped, used)


def map_codes(
    codes_file: pathlib.Path,
    codes: str,
    tokenizer: str,
    languages: Sequence[str],
    sides: Sequence[Side],
) -> FoundVocabularies:
    """Return vocabularies of codes of byte pair encoding.

    Args:
        codes_file: the file of the codes.
        codes: its content.
        tokenizer: one of byte_pair_encoding.TOKENIZERS.
        languages: those of both sides.
        sides: the tokens.
    """
    mapped = []
    for (tokens, special, file), language in zip(sides, languages, strict=True):
        with named_in_errors(f"{codes_file} with {file.name}"):
            order = vocabulary.order_tokens(tokens, special)
            model = byte_pair_encoding.serialize_codes(
                [tokens[i] for i in order],
                special.unknown,
                codes,
                tokenizer,
                "" if tokenizer == "none" else language,
            )
        mapped.append((model, order))
    used = [*(side.file for side in sides), codes_file]
    return FoundVocabularies.of_type("bpe_codes", mapped, used)


@contextlib.contextmanager
def named_in_errors(names: Any) -> Iterator[None]:
    """Name files in errors of a function of text/, which gets their content."""
    try:
        yield
    except errors.UserError as error:
        raise errors.UserError(f"Cannot use {names}. {error}") from error


def trim(found: Imported, paths: Sequence[pathlib.Path]) -> Imported:
    """Return a model with the subwords of a text, and those that all need.

    NLLB-200 has 256,206 subwords for 202 languages, which are two fifths of its
    weights, and most of the products of a step of its search. A text in two
    languages uses a tenth of them. Its segmentation stays what it was, and so
    do the logits of the subwords that are left, whose probabilities grow.

    Special subwords, languages, bytes and single characters stay, so that no
    text becomes unknown: another subword is spelled by those that are left.

    Args:
        found: the model.
        paths: files of text in any of its languages.

    Raises:
        UserError: a file cannot be read, or a vocabulary is not SentencePiece.
    """
    vocabularies = found.vocabularies
    pair = vocabularies.pair
    sides: list[Any] = [*pair]
    for side in sides:
        is_other = isinstance(side, ByteLevel)  # it is to spell any text
        if not isinstance(side, SentencePiece) or is_other:
            raise errors.UserError(
                "--keep_tokens_of is for vocabularies of SentencePiece; got "
                f"{type(side).__name__}. Omit it."
            )
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
    trimmed = matrices(ids, source, target, softmax, bias)
    is_mapped = isinstance(pair.source, MappedSentencePiece)
    both = zip(vocabularies.orders, ids, strict=True)
    return found._replace(
        weights={**found.weights, **trimmed},
        vocabularies=vocabularies._replace(
            pair=Vocabularies.of(*kept),
            orders=[[order[i] for i in kept] for order, kept in both],
            kind=vocabularies.kind if is_mapped else "mapped_sentence_piece",
        ),
        reference=None,  # which has the probabilities of before
    )


def _needed_ids(vocabulary, paths):
    """Return the ids of the subwords that stay."""
    ids = sentence_piece.indispensable_ids(vocabulary)
    lines = itertools.chain(*map(parallel_files.read_lines, paths))
    while chunk := list(itertools.islice(lines, _LINES)):
        ids.update(*vocabulary.encode(chunk))
    return ids
