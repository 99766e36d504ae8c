"""Vocabularies of fairseq: dict.LANGUAGE.txt, with codes or SentencePiece.

    dict.en.txt                  "subword count", ids from 4 on
    bpecodes, code               codes of subword-nmt or fastBPE
    sentencepiece.bpe.model      instead of codes; or spm.model

Source: data/dictionary.py. The first ids are <s>, <pad>, </s>, <unk>.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_repro import errors
from t2t_repro.importing import mapped_ids, model_files
from t2t_repro.importing.imported import FoundVocabularies
from t2t_repro.text import bpe_codes
from t2t_repro.text.bpe_codes import BpeCodes
from t2t_repro.text.mapped_sentence_piece import MappedSentencePiece
from t2t_repro.text.token_lists import Special
from t2t_repro.text.vocabulary_pair import Vocabularies

_FIRST = ["<s>", "<pad>", "</s>", "<unk>"]
PAD_ID, EOS_ID = 1, 2
_OVERWRITE = "#fairseq:overwrite"
_CODES = "bpecodes", "code", "codes"
_PIECES = "sentencepiece.bpe.model", "spm.model"


def read(
    folder: pathlib.Path, settings: Mapping[str, Any], tokenizer: str
) -> FoundVocabularies:
    """Read the vocabularies of a folder.

    Args:
        folder: the model's folder.
        settings: result of fairseq_settings.read().
        tokenizer: "moses" or "none"; "": as the settings say.

    Raises:
        UserError: a file is missing or damaged, or nothing names the
            tokenizer.
    """
    files = _dictionary_files(folder, settings)
    tokens = [_tokens(file) for file in files]
    for name in _PIECES:
        if (folder / name).is_file():
            return _sentence_piece(folder / name, files, tokens)
    codes_file = model_files.find(folder, *_CODES, *_PIECES)
    tokenizer = tokenizer or settings["tokenizer"] or ""
    if tokenizer not in bpe_codes.TOKENIZERS:
        raise errors.UserError(
            f"Nothing in {folder} says how text is tokenized before "
            f"{codes_file.name}; got {tokenizer!r}. Say --tokenizer=moses, as "
            "for fairseq's models of WMT, or --tokenizer=none."
        )
    codes = codes_file.read_text("utf-8", "replace")
    orders = [[PAD_ID, EOS_ID, *_others(t)] for t in tokens]
    languages = _languages(files)
    vocabularies = []
    for names, order, language in zip(tokens, orders, languages, strict=True):
        try:
            model = bpe_codes.serialize(
                [names[i] for i in order],
                "<unk>",
                codes,
                tokenizer,
                language if tokenizer == "moses" else "",
            )
        except errors.UserError as error:
            raise errors.UserError(
                f"Cannot use {codes_file} with dict.{language}.txt. {error}"
            ) from error
        vocabularies.append(BpeCodes(model))
    pair = Vocabularies.of(*vocabularies)
    return FoundVocabularies(pair, "bpe_codes", orders, [*files, codes_file])


def _others(tokens):
    return [i for i in range(len(tokens)) if i not in (PAD_ID, EOS_ID)]


def _sentence_piece(spm, files, tokens):
    special = Special("</s>", "<unk>", "<pad>")
    mapped = [
        mapped_ids.map_ids(spm, names, special, file)
        for names, file in zip(tokens, files, strict=True)
    ]
    return FoundVocabularies(
        Vocabularies.of(*(MappedSentencePiece(m.model) for m in mapped)),
        "mapped_sentence_piece",
        [m.order for m in mapped],
        [*files, spm],
    )


def _dictionary_files(folder, settings):
    """Return the dictionaries of source and target."""
    languages = settings["source_lang"], settings["target_lang"]
    files = [folder / f"dict.{language}.txt" for language in languages]
    for file in files:
        if not file.is_file():
            raise errors.UserError(
                f"There is no {file}. Copy it from the data of the training: "
                "fairseq-preprocess writes it."
            )
    return files


def _languages(files):
    return [file.name.split(".")[1] for file in files]


def _tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a dictionary by their ids."""
    try:
        lines = file.read_text("utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeError) as error:
        raise errors.UserError(f"Cannot read {file}: {error}.") from error
    tokens, known = list(_FIRST), set(_FIRST)
    for number, line in enumerate(lines, 1):
        token, _, count = line.rstrip().rpartition(" ")
        is_new = token not in known
        if count == _OVERWRITE:
            token, _, count = token.rpartition(" ")
            is_new = True
        if not token or not count.isdecimal() or not is_new:
            raise errors.UserError(
                f"Line {number} of {file} must be a new token and its count; "
                f"got {line!r:.80}."
            )
        tokens.append(token)
        known.add(token)
    return tokens
