"""Vocabularies of OpenNMT-tf, and what its settings of the data say of text.

A file has a token on each line: <blank>, <s>, </s>, then the others. One more
id, the last, is that of all unknown tokens. Source: data/vocab.py and
inputters/text_inputter.py of OpenNMT-tf.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_repro import errors
from t2t_repro.importing import imported, mapped_ids, opennmt_tf_description
from t2t_repro.importing.imported import FoundVocabularies
from t2t_repro.text import token_lists, whitespace_tokens
from t2t_repro.text.mapped_sentence_piece import MappedSentencePiece
from t2t_repro.text.token_lists import Special
from t2t_repro.text.vocabulary_pair import Vocabularies
from t2t_repro.text.whitespace_tokens import WhitespaceTokens

_FIRST = ["<blank>", "<s>", "</s>"]
START_ID = 1
_UNKNOWN = "<unk>"
_SIDES = "source", "target"
# Parameters of SentencePiece models in settings of a tokenization.
_MODEL_KEYS = "model", "sp_model_path"
_NO_TOKENIZER = "SpaceTokenizer"


def read(config: Mapping[str, Any], file: pathlib.Path) -> FoundVocabularies:
    """Read the vocabularies that the settings of the data name.

    Args:
        config: content of the file.
        file: its path, beside which the other files are.

    Raises:
        UserError: a file is missing or damaged, or text is tokenized in a way
            that cannot be represented.
    """
    data = config.get("data")
    if not isinstance(data, Mapping):
        raise errors.UserError(f"{file} has no settings under `data`.")
    files = [_beside(data, f"{side}_vocabulary", file) for side in _SIDES]
    tokens = [_tokens(path) for path in files]
    models = [_sentence_piece(data, side, file) for side in _SIDES]
    encode_eos = _encodes_eos(data, file)
    unknown = [token_lists.unused_name(_UNKNOWN, names) for names in tokens]
    lists = [[*t, name] for t, name in zip(tokens, unknown, strict=True)]
    special = [Special("</s>", name, "<blank>") for name in unknown]
    if (models[0] is None) != (models[1] is None):
        raise imported.refuse(
            file,
            "tokenization",
            "SentencePiece on both sides, or none",
            "one of them",
        )
    if models[0] is None:
        mapped = [
            whitespace_tokens.map_ids(*side)
            for side in zip(lists, special, strict=True)
        ]
        sides: list[Any] = [WhitespaceTokens(model) for model, _ in mapped]
        orders = [order for _, order in mapped]
        kind = "whitespace_tokens"
    else:
        pieces = [
            mapped_ids.map_ids(*side)
            for side in zip(models, lists, special, files, strict=True)
        ]
        sides = [MappedSentencePiece(one.model) for one in pieces]
        orders = [one.order for one in pieces]
        kind = "mapped_sentence_piece"
    used = dict.fromkeys([*files, *(m for m in models if m)])
    return FoundVocabularies(
        Vocabularies.of(*sides), kind, orders, list(used), encode_eos
    )


def _beside(settings, key, file):
    """Return the file that a setting names."""
    path = settings.get(key)
    if not isinstance(path, str) or not path or "\0" in path:
        raise imported.refuse(file, key, "the path of a file", path)
    named = imported.named_file(file.parent, path)
    if not os.path.isfile(named):
        raise errors.UserError(
            f"There is no {named}, {key} in {file}. Copy it there: a file "
            "outside of that folder is not read."
        )
    return named


def _tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a vocabulary by their ids."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise errors.UserError(f"Cannot read {file}: {error}.") from error
    lines = text.removesuffix("\n").split("\n")
    tokens = [line.rstrip("\r") for line in lines]
    if tokens[: len(_FIRST)] != _FIRST or len(set(tokens)) < len(tokens):
        raise errors.UserError(
            f"{file} must have each token once, {', '.join(_FIRST)} first; "
            f"got {tokens[:3]} and {len(tokens) - len(set(tokens))} "
            "repetitions."
        )
    return tokens


def _sentence_piece(data, side, file):
    """Return the SentencePiece model of a side; None: text has tokens.

    Where the settings name no tokenization, a model beside them is meant.
    """
    settings = data.get(f"{side}_tokenization")
    if isinstance(settings, str):
        name = _beside(data, f"{side}_tokenization", file)
        settings = opennmt_tf_description.read_yaml(name)
    if not settings:
        beside = sorted(
            path
            for path in file.parent.iterdir()
            if path.suffix in (".model", ".spm") and path.is_file()
        )
        if len(beside) > 1:
            raise errors.UserError(
                f"{file.parent} has {len(beside)} SentencePiece models. Name "
                f"one in {file}: {side}_tokenization: {{type: "
                f"SentencePieceTokenizer, params: {{model: {beside[0].name}}}}}"
            )
        return beside[0] if beside else None
    kind = "OpenNMTTokenizer"
    parameters = settings
    if isinstance(settings, Mapping) and "type" in settings:
        kind, parameters = settings["type"], settings.get("params") or {}
    if kind == _NO_TOKENIZER:
        return None
    if isinstance(parameters, Mapping):
        keys = [key for key in _MODEL_KEYS if key in parameters]
        rest = {k: v for k, v in parameters.items() if k not in _MODEL_KEYS}
        # Samples, which only a training draws.
        rest = {k: v for k, v in rest.items() if not k.startswith("sp_nbest")}
        if keys and rest in ({}, {"mode": "none"}):
            return _beside(parameters, keys[0], file)
    raise imported.refuse(
        file,
        f"{side}_tokenization",
        f"{_NO_TOKENIZER}, or SentencePiece without other rules",
        settings,
    )


def _encodes_eos(data, file):
    """Return whether sources end in EOS; refuse other marks."""
    controls = {side: data.get(f"{side}_sequence_controls") for side in _SIDES}
    source, target = (
        value if isinstance(value, Mapping) else {}
        for value in controls.values()
    )
    for name, value, expected in (
        ("source_sequence_controls.start", source.get("start"), False),
        ("target_sequence_controls.start", target.get("start", True), True),
        ("target_sequence_controls.end", target.get("end", True), True),
    ):
        if bool(value) != expected:
            raise imported.refuse(file, name, str(expected).lower(), value)
    return bool(source.get("end"))
