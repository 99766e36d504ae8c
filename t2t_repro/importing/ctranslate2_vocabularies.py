"""Vocabularies of CTranslate2's folders, and what its settings say of text."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.importing import imported, mapped_ids
from t2t_repro.importing.ctranslate2_files import ModelFile
from t2t_repro.importing.imported import FoundVocabularies
from t2t_repro.io import json_files
from t2t_repro.serving.to_ctranslate2 import MODEL_CARD, START
from t2t_repro.text import (
    mapped_sentence_piece,
    vocabulary_pair,
    whitespace_tokens,
)
from t2t_repro.text.mapped_sentence_piece import MappedSentencePiece
from t2t_repro.text.token_lists import Special
from t2t_repro.text.vocabulary_pair import Vocabularies
from t2t_repro.text.whitespace_tokens import WhitespaceTokens

CONFIG = "config.json"
_CONFIG = {
    "unk_token": str,
    "eos_token": str,
    "add_source_bos": bool,
    "add_source_eos": bool,
}
# Tokens of M2M-100, of NLLB and of mBART-50.
_LANGUAGE = re.compile(
    "__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}"
)
_PAIRS_OF_MODELS = (
    ("source.spm", "target.spm"),
    ("source.model", "target.model"),
    ("sentencepiece.model",) * 2,
    ("sentencepiece.bpe.model",) * 2,
    ("spm.model",) * 2,
)


class Tokens(NamedTuple):
    """Tokens by their ids, and settings of config.json."""

    source: list[str]
    target: list[str]
    special: Special
    start: int  # id of the decoder's first input
    is_own: bool  # whether START, which this project's exporter adds, is last
    encodes_eos: bool
    adds_eos: bool  # whether CTranslate2 adds it, and not its caller
    epsilon: float | None
    files: tuple[pathlib.Path, ...]


def read_tokens(folder: pathlib.Path, model: ModelFile) -> Tokens:
    """Read the vocabulary files and config.json.

    Raises:
        UserError: a file is missing or damaged, or a setting cannot be
            represented.
    """
    config, files = _config(folder, model)
    shared = _find(folder, "shared_vocabulary")
    paths = [shared, shared]
    if shared is None:
        paths = [
            _find(folder, f"{side}_vocabulary") for side in ("source", "target")
        ]
    missing = [
        f"{side}_vocabulary.json"
        for side, path in zip(("source", "target"), paths, strict=True)
        if path is None
    ]
    if missing:
        raise errors.UserError(
            f"{folder} has no shared_vocabulary.json and no {missing[0]} (nor "
            "one in .txt). Name the folder of a model with one source "
            "vocabulary: --input=…."
        )
    source, target = (_lines(path, config["unk_token"]) for path in paths)
    for name in (config["eos_token"], config["decoder_start_token"]):
        if name not in target:
            raise imported.refuse(
                paths[1], "a special token", "one of its tokens", name
            )
    epsilon = config.get("layer_norm_epsilon")
    return Tokens(
        source,
        target,
        Special(config["eos_token"], config["unk_token"]),
        target.index(config["decoder_start_token"]),
        {source[-1], target[-1], config["decoder_start_token"]} == {START},
        _encodes_eos(config),
        config["add_source_eos"],
        float(epsilon) if epsilon else None,
        (*files, *dict.fromkeys(paths)),
    )


def find(folder: pathlib.Path, tokens: Tokens) -> FoundVocabularies:
    """Return the vocabularies of a folder.

    They are those that this project's exporter wrote; or SentencePiece models
    with the ids of the tokens; or, without one, tokens between spaces.

    Raises:
        UserError: a file cannot be used, or the tokens are not its pieces.
    """
    lists = tokens.source, tokens.target
    if tokens.is_own:
        lists = tokens.source[:-1], tokens.target[:-1]
        for separate in (False, True):
            paths = vocabulary_pair.paths(folder, separate)
            if all(path.is_file() for path in paths):
                return _own(folder, paths, lists)
    special = [
        tokens.special._replace(pad=whitespace_tokens.pad_name(names))
        for names in lists
    ]
    for names in _PAIRS_OF_MODELS:
        spm = [folder / name for name in names]
        if all(path.is_file() for path in spm):
            return _pieces(spm, lists, special, tokens.files[-1])
    mapped = [
        whitespace_tokens.map_ids(names, one)
        for names, one in zip(lists, special, strict=True)
    ]
    pair = Vocabularies.of(*(WhitespaceTokens(model) for model, _ in mapped))
    orders = [order for _, order in mapped]
    return FoundVocabularies(pair, "whitespace_tokens", orders, ())


def refuse_languages(tokens: Tokens, found: FoundVocabularies) -> None:
    """Refuse a model of many languages, of which a caller names one.

    The first token of its output is that of the language, after EOS as the
    decoder's first input. A piece of a SentencePiece model is text.

    Raises:
        UserError: the target's vocabulary has tokens of languages.
    """
    if tokens.target[tokens.start] != tokens.special.eos:
        return
    text = set()
    if found.kind != "whitespace_tokens":
        text = {
            piece for piece, _ in found.pair.target.scored_pieces().values()
        }
    names = [
        token
        for token in tokens.target
        if _LANGUAGE.fullmatch(token) and token not in text
    ]
    if names:
        raise imported.refuse(
            tokens.files[-1],
            "the target's vocabulary",
            "without tokens of languages: in M2M-100, NLLB and mBART-50, the "
            "caller gives one of them as the first token of an output",
            ", ".join(names[:5]),
        )


def _config(folder, model):
    """Return the settings of config.json or of old attributes, and the file."""
    path = folder / CONFIG
    if model.version >= 6:
        config = imported.read_json(path, _CONFIG)
    else:
        config = imported.read_json(path, dict) if path.is_file() else {}
        config = config | _old_config(model.attributes)
    epsilon = config.get("layer_norm_epsilon")
    for name, is_right, rule in (
        ("add_source_bos", not config["add_source_bos"], "false"),
        ("quantization_type", not config.get("quantization_type"), "absent"),
        (
            "decoder_start_token",
            isinstance(config.get("decoder_start_token"), str),
            "a token: here no caller of the model names one",
        ),
        (
            "layer_norm_epsilon",
            epsilon is None
            or (type(epsilon) in (float, int) and 0 <= epsilon < 1),
            "a number of at least 0, below 1",
        ),
    ):
        if not is_right:
            raise imported.refuse(path, name, rule, config.get(name))
    return config, (path,) if path.is_file() else ()


def _old_config(attributes):
    """Return the settings of versions before 6.

    src/models/sequence_to_sequence.cc, initialize().
    """
    bos = attributes.take("bos_token", "<s>")
    eos = attributes.take("eos_token", "</s>")
    with_bos = attributes.take("with_target_bos", True)
    by_caller = attributes.take("user_decoder_start_tokens", False)
    return {
        "unk_token": attributes.take("unk_token", "<unk>"),
        "eos_token": eos,
        "add_source_bos": attributes.take("with_source_bos", False),
        "add_source_eos": attributes.take("with_source_eos", False),
        "decoder_start_token": None if by_caller else bos if with_bos else eos,
    }


def _encodes_eos(config: Mapping[str, Any]) -> bool:
    """Return whether the encoder reads EOS.

    CTranslate2 adds it, or the caller: the tokenizers of Hugging Face's models
    do. The decoders of these models start with EOS, and OpenNMT's with <s>.
    """
    starts_with_eos = config["decoder_start_token"] == config["eos_token"]
    return config["add_source_eos"] or starts_with_eos


def _find(folder, stem):
    """Return the file of a vocabulary; None: there is none."""
    paths = [folder / f"{stem}{ending}" for ending in (".json", ".txt")]
    return next((path for path in paths if path.is_file()), None)


def _lines(path, unknown):
    """Return the tokens of a vocabulary file, and the unknown one at the end.

    src/vocabulary.cc: carriage returns are removed if all lines have one.
    """
    if path.suffix == ".json":
        tokens = imported.read_json(path, [str])
    else:
        try:
            tokens = path.read_bytes().decode().split("\n")
        except (OSError, ValueError) as error:
            raise errors.UserError(
                f"The vocabulary {path} cannot be read: {error}. Download or "
                "convert it again."
            ) from error
        if not tokens[-1]:
            tokens.pop()
        if all(token.endswith("\r") for token in tokens):
            tokens = [token[:-1] for token in tokens]
    return tokens if unknown in tokens else [*tokens, unknown]


def _own(folder, paths, lists):
    """Return vocabularies that this project's exporter wrote."""
    card = folder / MODEL_CARD
    contents = json_files.read(card, dict) if card.is_file() else {}
    arguments = contents.get("problem_arguments")
    kind = None
    if isinstance(arguments, dict):
        kind = arguments.get("vocabulary_type")
    if not isinstance(kind, str):
        kind = _kind(paths[0], len(lists[0]))
    pair = vocabulary_pair.load(kind, paths)
    for path, side, names in zip(
        (paths[0], paths[-1]), pair, lists, strict=True
    ):
        if side.pieces(range(side.size)) != names:
            raise errors.UserError(
                f"The subwords of {path} are not the tokens of the model's "
                "vocabulary. Copy the file of the export, or remove it."
            )
    orders = [list(range(side.size)) for side in pair]
    return FoundVocabularies(pair, kind, orders, paths)


def _kind(path, size):
    """Return the type of a vocabulary file of `size` tokens."""
    content = path.read_bytes()
    if content.startswith(b"{"):
        return "whitespace_tokens"
    return mapped_sentence_piece.vocabulary_type(content, size)


def _pieces(spm, lists, special, file):
    """Return SentencePiece models with the ids of the tokens."""
    mapped = [
        mapped_ids.map_ids(path, names, one, file)
        for path, names, one in zip(spm, lists, special, strict=True)
    ]
    return FoundVocabularies(
        Vocabularies.of(*(MappedSentencePiece(one.model) for one in mapped)),
        "mapped_sentence_piece",
        [one.order for one in mapped],
        list(dict.fromkeys(spm)),
    )
