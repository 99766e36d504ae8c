"""Vocabularies of Hugging Face's models of many languages.

    sentencepiece.bpe.model    segments text
    vocab.json                 M2M-100: {token: id}, without those of languages
    tokenizer.json             NLLB-200: all tokens with their ids
    tokenizer_config.json      the class of the tokenizer

The token of a language, __de__ or deu_Latn, is <2de> or <2deu_Latn> here.
"""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

from t2t_repro.importing import imported, model_files
from t2t_repro.importing.imported import FoundVocabularies
from t2t_repro.importing.model_files import Setting
from t2t_repro.io import files
from t2t_repro.text import sentence_piece
from t2t_repro.text.languages import tag_of
from t2t_repro.text.sentence_piece import MultilingualPieces
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

_SPECIAL = SpecialTokens("</s>", "<unk>", "<pad>")
_CODE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")  # eng_Latn, of NLLB
# Languages by `language_codes` of M2M100Tokenizer, whose files lack them. Their
# tokens follow those of vocab.json in this order.
_LANGUAGES = {
    "m2m100": """
        af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff
        fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk
        km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa
        pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur
        uz vi wo xh yi yo zh zu
    """.split(),
    "wmt21": "en ha is ja cs ru zh de".split(),
}


def read(
    folder: pathlib.Path, settings: Mapping[str, Any], size: int
) -> tuple[FoundVocabularies, tuple[str, ...]]:
    """Read the vocabulary of both sides, and the codes of its languages.

    Args:
        folder: has the files.
        settings: those of tokenizer_config.json.
        size: rows of the embedding. Tokens that the tokenizer lacks are never
            read, and nothing in an output.

    Raises:
        UserError: a file is missing or damaged, or the tokenizer is another.
    """
    file = folder / "tokenizer_config.json"
    kind = str(settings.get("tokenizer_class")).removesuffix("Fast")
    known = "M2M100Tokenizer", "NllbTokenizer"
    model_files.require(
        file,
        settings,
        ("tokenizer_class", kind in known, model_files.one_of(known)),
    )
    model_files.require_off(file, settings, ["legacy_behaviour"])
    if kind == "M2M100Tokenizer":
        listing, tokens, codes = _read_m2m100(folder, settings)
    else:
        listing, tokens, codes = _read_nllb(folder)
    model = model_files.find_file(folder, "sentencepiece.bpe.model")
    content = files.read_bytes(model)
    # No token has such a name: tokens have no spaces.
    others = [f"<unused {i}>" for i in range(len(tokens), size)]
    tokens += others
    control = {*map(tag_of, codes), *others, "<mask>"}
    mapped = imported.named(
        f"{model} with {listing}",
        sentence_piece.map_ids,
        content,
        tokens,
        _SPECIAL,
        False,
        control,
    )
    return FoundVocabularies(
        Vocabularies.shared(MultilingualPieces(mapped.model)),
        [mapped.order] * 2,
        [listing, model],
        "multilingual_pieces",
    ), tuple(codes)


def _read_m2m100(folder, settings):
    """Return the file of tokens, the tokens by their ids, and languages."""
    table = {"language_codes": Setting("m2m100", values=tuple(_LANGUAGES))}
    known, _ = model_files.read_settings(
        settings, table, folder / "tokenizer_config.json"
    )
    codes = _LANGUAGES[known["language_codes"]]
    listing = model_files.find_file(folder, "vocab.json")
    tokens = model_files.read_tokens(listing)
    return listing, [*tokens, *map(tag_of, codes)], codes


def _read_nllb(folder):
    """Return the same as _read_m2m100(), of a file of `tokenizers`."""
    listing = model_files.find_file(folder, "tokenizer.json")
    added = [{"id": int, "content": str}]
    shape = {"model": {"vocab": {str: int}}, "added_tokens": added}
    stored = model_files.read_json(listing, shape)
    ids = dict(stored["model"]["vocab"])
    ids |= {token["content"]: token["id"] for token in stored["added_tokens"]}
    tokens = model_files.tokens_by_id(ids, listing)
    tags = {code: tag_of(code) for code in tokens if _CODE.fullmatch(code)}
    return listing, [tags.get(token, token) for token in tokens], [*tags]
