"""Vocabularies of Hugging Face's models of byte pairs: BART and FSMT.

vocab.json, merges.txt             BART: {token: id} and pairs of pieces
tokenizer.json                     of newer versions: the same, and rules
vocab-src.json, vocab-tgt.json     FSMT: {token: id} of both sides
merges.txt                         FSMT: fastBPE's codes, without counts
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_repro.importing import fairseq, imported, model_files
from t2t_repro.importing.imported import FoundVocabularies
from t2t_repro.text import bpe_codes, byte_level
from t2t_repro.text.byte_level import ByteLevel
from t2t_repro.text.vocabulary_pair import Vocabularies

_MERGES, _TOKENIZER = "merges.txt", "tokenizer.json"
_VERSION = "#version: 0.2"  # of codes, in which the last part has </w>
# Settings of a tokenizer.json, with the only values.
_MODEL = {
    "type": "BPE",
    "dropout": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "byte_fallback": False,
    "ignore_merges": False,
}
_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


def read_bart(
    folder: pathlib.Path,
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> FoundVocabularies:
    """Read the vocabularies of a BART.

    Args:
        folder: has the files.
        config: settings of config.json: rows of the embedding, and perhaps the
            token that begins all outputs, `<s>`.
        settings: those of tokenizer_config.json.

    Raises:
        UserError: a file is missing or damaged, or the tokenizer is another.
    """
    classes = "BartTokenizer", "RobertaTokenizer"
    imported.require_tokenizer(folder, settings, classes, classes[0])
    file = folder / "tokenizer_config.json"
    model_files.require_off(file, settings, ["add_prefix_space"])
    tokens, merges, files = _read_byte_pairs(folder)
    # bart-large-cnn has no row of <mask>, the last token.
    tokens = imported.with_rows(tokens, config["vocab_size"])
    imported.check_added(folder, settings, tokens)
    name, first = "forced_bos_token_id", config["forced_bos_token_id"]
    is_right = first is None or (type(first), first) == (int, 0)
    model_files.require(
        "the settings", config, (name, is_right, "null or that of <s>, 0")
    )
    # The first of two is not read, but begins the output.
    starts = (1, 1) if first is None else (2, 0)
    mapped = [
        imported.named(
            " and ".join(map(str, files)),
            byte_level.map_ids,
            tokens,
            merges,
            count,
        )
        for count in starts
    ]
    return FoundVocabularies(
        Vocabularies.of(*(ByteLevel(side.model) for side in mapped)),
        [side.order for side in mapped],
        files,
        "byte_level",
        imported.SIDES,
    )


def read_fsmt(
    folder: pathlib.Path,
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> FoundVocabularies:
    """Read the vocabularies of an FSMT, as read_bart()."""
    name = "FSMTTokenizer"
    imported.require_tokenizer(folder, settings, [name], name)
    file = folder / "tokenizer_config.json"
    model_files.require_off(file, settings, ["do_lower_case"])
    model_files.require_same(file, settings, config, {"langs": "langs"})
    languages = config["langs"]
    is_pair = [*map(type, languages)] == [str, str]
    model_files.require(
        folder / "config.json", config, ("langs", is_pair, "two languages")
    )
    lists = [
        model_files.find_file(folder, f"vocab-{side}.json")
        for side in ("src", "tgt")
    ]
    codes = model_files.find_file(folder, _MERGES)
    found = imported.map_codes(
        codes,
        "\n".join([_VERSION, *_merge_lines(codes)]),
        "fsmt",
        languages,
        [[*map(_subword, model_files.read_tokens(file))] for file in lists],
        fairseq.SPECIAL,
        lists,
    )
    return found._replace(languages=(languages[0], languages[1]))


def _subword(token):
    """Return a token of FSMT as codes have it: the last of a word is bare."""
    if token in fairseq.FIRST:
        return token
    last = token.removesuffix("</w>")
    return last if last != token else token + bpe_codes.JOINER


def _merge_lines(file):
    """Return the lines of merges, without that of the version."""
    lines = model_files.read_lines(file)
    return lines[lines[0].startswith("#version") :]


def _read_byte_pairs(folder):
    """Return the tokens by their ids, the merges, and the files of them."""
    listing = folder / _TOKENIZER
    if listing.is_file():
        return *_read_tokenizers(listing), [listing]
    listing = model_files.find_file(folder, "vocab.json")
    file = model_files.find_file(folder, _MERGES)
    merges = [line.split(" ") for line in _merge_lines(file)]
    tokens = model_files.read_tokens(listing)
    return tokens, _pairs(merges, file), [listing, file]


def _read_tokenizers(file):
    """Return the tokens by their ids, and the merges, of a tokenizer.json."""
    shape = {
        "model": {"vocab": {str: int}, "merges": list},
        "pre_tokenizer": dict,
        "added_tokens": [{"id": int, "content": str}],
    }
    stored = model_files.read_json(file, shape)
    model = stored["model"]
    model_files.require_fixed(file, model, _MODEL, [None])
    model_files.require_fixed(file, stored["pre_tokenizer"], _WORDS)
    model_files.require_fixed(file, stored, {"normalizer": None})
    added = {token["content"]: token["id"] for token in stored["added_tokens"]}
    if others := sorted(added.keys() - {*byte_level.SPECIAL}):
        rule = model_files.one_of(byte_level.SPECIAL)
        raise model_files.refuse(file, "added_tokens", rule, others)
    merges = [
        pair.split(" ") if isinstance(pair, str) else pair
        for pair in model["merges"]
    ]
    tokens = model_files.tokens_by_id(model["vocab"] | added, file)
    return tokens, _pairs(merges, file)


def _pairs(merges: Sequence[Any], file: pathlib.Path) -> list[tuple[str, str]]:
    """Return pairs of texts, or raise a UserError."""
    for pair in merges:
        if not isinstance(pair, list) or [*map(type, pair)] != [str, str]:
            rule = "two pieces on each line"
            raise model_files.refuse(file, "the merges", rule, pair)
    return [(left, right) for left, right in merges]
