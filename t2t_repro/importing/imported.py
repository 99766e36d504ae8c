"""Result of a reader: a Transformer of another system in our terms."""

import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.importing.weights import Weights
from t2t_repro.io import files
from t2t_repro.text import sentence_piece
from t2t_repro.text.sentence_piece import MappedModel
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

# Bias of the logit of a PAD that the other system lacks: exp(-100) adds nothing
# to a softmax, and label smoothing of it stays small.
PAD_BIAS = -100.0


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
    weights: Weights
    vocabularies: Vocabularies
    vocabulary_type: str
    # Fields of DecodeHParams that differ from the paper's.
    search: Mapping[str, Any]
    # Files that were read.
    files: tuple[pathlib.Path, ...]
    languages: tuple[str, str] = ("", "")  # "": the files do not say
    languages_file: pathlib.Path | None = None  # the file that names them
    # Arrays of the file that no part of the model needs, by their names.
    left_over: tuple[str, ...] = ()
    # None: the other system is not installed.
    reference: Reference | None = None


def read_json(file: pathlib.Path, shape: Any) -> Any:
    """Call json_files.read() on a file of another program."""
    remedy = "Download or convert the model again."
    return files.read_json(file, shape, remedy)


def languages_of(found: Imported) -> str:
    """Return the languages that the model's files name, as "en-de".

    Raises:
        UserError: they name none, or not two words.
    """
    source, target = found.languages
    if all(re.fullmatch(r"\w+", name) for name in found.languages):
        return f"{source}-{target}"
    if not source and not target:
        names = "The files do not name the languages."
    else:
        names = (
            "The languages must be two words, the extensions of your files; "
            f"{found.languages_file} names {source!r} and {target!r}."
        )
    raise errors.UserError(f"{names} Say --languages=en-de.")


class FoundVocabularies(NamedTuple):
    """Vocabularies of a model, and what is known of them."""

    pair: Vocabularies
    kind: str  # name in registry.vocabularies
    # The other system's id of each of our ids, on both sides; -1: none.
    orders: Sequence[list[int]]
    files: Sequence[pathlib.Path]
    encode_eos: bool = True  # whether sources end in EOS


def refuse(file: Any, name: str, rule: str, got: Any) -> errors.UserError:
    """Return the error of a setting that cannot be represented.

    Args:
        file: path of the file that has it.
        name: its name there.
        rule: what it must be.
        got: its value.
    """
    return errors.UserError(
        f"This model cannot be imported: {name} in {file} must be {rule}; got "
        f"{errors.shown(got)}."
    )


def named_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path of a file that another file of a model names.

    It is the path where the model was trained, perhaps on another machine.
    What lies outside of the model's folder is no part of the model, and would
    be shown in errors or become a part of the run.
    """
    path = pathlib.PurePath(name)
    inside = folder / path
    if not path.is_absolute() and ".." not in path.parts:
        if os.path.isfile(inside):
            return inside
    return folder / path.name


def check_rows(
    arrays: Mapping[str, np.ndarray], order: list[int], file: pathlib.Path
) -> None:
    """Raise a UserError unless each token has a row, and each row a token.

    Args:
        arrays: [V', …] by name.
        order: the other system's id of each of our ids.
        file: the list of tokens.
    """
    count = max(order) + 1
    for name, array in arrays.items():
        if len(array) != count:
            rule = f"that of rows of the {name}, {len(array):,}"
            raise refuse(file, "the number of tokens", rule, count)


def rows(array: np.ndarray, order: list[int]) -> np.ndarray:
    """Return rows (or entries) of a vocabulary in another order.

    Args:
        array: [V', …], a row for each id of the other system.
        order: its id for each of our ids; -1: it has none, a row of zeros.
    """
    indices = np.asarray(order)
    taken = array[np.maximum(indices, 0)]
    taken[indices < 0] = 0
    return taken


def reorder(
    source: np.ndarray,
    target: np.ndarray,
    softmax: np.ndarray,
    orders: Sequence[list[int]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows() of the embeddings of both sides and of the softmax.

    Args:
        source: [V', D].
        target: [V', D].
        softmax: [V', D].
        orders: orders of both sides.
    """
    return (
        rows(source, orders[0]),
        rows(target, orders[1]),
        rows(softmax, orders[1]),
    )


def layer_counts(encoder: int, decoder: int) -> dict[str, int]:
    """Return the hparams of the numbers of layers."""
    return {
        "num_hidden_layers": max(encoder, decoder),
        "num_encoder_layers": encoder,
        "num_decoder_layers": decoder,
    }


def norm_order(pre_norm: bool) -> dict[str, str]:
    """Return the hparams of the operations before and after a sublayer.

    Args:
        pre_norm: whether its inputs are normalized; otherwise, its outputs are.
    """
    return {
        "layer_preprocess_sequence": "n" if pre_norm else "none",
        "layer_postprocess_sequence": "da" if pre_norm else "dan",
    }


def sharing(is_tied: bool, is_one: bool) -> dict[str, bool]:
    """Return the hparams of matrices that are one.

    Args:
        is_tied: whether the softmax has the embedding of the targets.
        is_one: whether that is also the embedding of the inputs.
    """
    shares_all = is_tied and is_one
    return {
        "shared_embedding_and_softmax_weights": shares_all,
        "shared_targets_embedding_and_softmax_weights": is_tied
        and not shares_all,
    }


# SentencePiece models in files, with the ids of another program's list.


def map_ids(
    spm: pathlib.Path,
    tokens: Sequence[str],
    special: SpecialTokens,
    vocabulary: pathlib.Path,
    reads_codes: bool = False,
) -> MappedModel:
    """Call sentence_piece.map_ids() on files, named in errors.

    Args:
        spm: file of a SentencePiece model.
        tokens: tokens by their ids.
        special: names of special tokens.
        vocabulary: file of the tokens.
        reads_codes: as of sentence_piece.map_ids().
    """
    return _map(
        spm,
        lambda model: sentence_piece.map_ids(
            model, tokens, special, reads_codes
        ),
        f"{spm} with {vocabulary}",
    )


def keep_ids(spm: pathlib.Path) -> MappedModel:
    """Call sentence_piece.keep_ids() on a file, named in errors."""
    return _map(spm, sentence_piece.keep_ids, str(spm))


def _map(spm, function, names):
    model = files.read_bytes(spm)
    try:
        return function(model)
    except errors.UserError as error:
        raise errors.UserError(f"Cannot use {names}. {error}") from error
