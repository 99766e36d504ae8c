"""Vocabularies of Hugging Face's models, from the files of their tokenizers.

    vocab.json                         {token: id}; M2M-100's lacks languages
    target_vocab.json                  Marian's, if targets have their own ids
    source.spm, target.spm             Marian's SentencePiece models
    sentencepiece.bpe.model            segments text of many languages
    merges.txt                         pairs of pieces of BART; fastBPE's codes
                                       of FSMT, without counts
    vocab-src.json, vocab-tgt.json     FSMT: {token: id} of both sides
    spiece.model                       segments text of T5 and Pegasus
    tokenizer.json                     NLLB-200: all tokens with their ids; of
                                       mBART-50 and BART newer versions have it
    tokenizer_config.json              the class of the tokenizer, and languages

The token of a language, __de__, deu_Latn or de_DE, is <2de>, <2deu_Latn> or
<2de_DE> here.

The ids of T5's pieces are those of its SentencePiece model. After them come
sentinels, <extra_id_99> to <extra_id_0>, which are read where
SentencePieceVocabulary of T5's own code reads them, with the space before them.
Pegasus has the tokens of its pre-training between EOS and the others. Further
rows of an embedding round its size up.
"""

import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.importing import fairseq, imported, model_files
from t2t_repro.importing.imported import FoundVocabularies, Side
from t2t_repro.importing.model_files import Setting
from t2t_repro.io import files
from t2t_repro.text import byte_pair_encoding, sentence_piece
from t2t_repro.text.byte_pair_encoding import BYTE_LEVEL_SPECIAL
from t2t_repro.text.languages import tag_of
from t2t_repro.text.sentence_piece import LANGUAGE, SPACE
from t2t_repro.text.vocabulary import SpecialTokens

_CODE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")  # eng_Latn, en_XX
_REPLACED = ["<unk>", "<s>", "</s>"]  # of SentencePiece, by them
_MASK = "<mask>"
_MERGES, _TOKENIZER = "merges.txt", "tokenizer.json"
# Languages by `language_codes` of M2M100Tokenizer, and of MBart50Tokenizer,
# whose files lack them. Their tokens follow the others in this order.
_LANGUAGES = {
    "m2m100": """
        af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff
        fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk
        km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa
        pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur
        uz vi wo xh yi yo zh zu
    """.split(),
    "wmt21": "en ha is ja cs ru zh de".split(),
    "mbart50": """
        ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX
        kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN
        zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN
        mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA
        ur_PK xh_ZA gl_ES sl_SI
    """.split(),
}
_VERSION = "#version: 0.2"  # of codes, in which the last part has </w>
# Settings of BART's tokenizer.json, with the only values.
_MODEL = {
    "type": "BPE",
    "dropout": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "byte_fallback": False,
    "ignore_merges": False,
}
_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


class Tokenizer(NamedTuple):
    """Folder of a tokenizer's files, and the settings in two of them."""

    folder: pathlib.Path
    config: Mapping[str, Any]  # of config.json
    settings: Mapping[str, Any]  # of tokenizer_config.json

    @property
    def file(self) -> pathlib.Path:
        """Path of tokenizer_config.json, for errors."""
        return self.folder / "tokenizer_config.json"

    def find(self, *names: str) -> pathlib.Path:
        """Return the path of the first file there is, or raise a UserError."""
        return model_files.find_file(self.folder, *names)

    def setting(self, name: str, setting: Setting) -> Any:
        """Return a checked value of tokenizer_config.json."""
        table = {name: setting}
        found, _ = model_files.read_settings(self.settings, table, self.file)
        return found[name]

    def require_class(
        self, known: Collection[str], off: str = "", default: str | None = None
    ) -> str:
        """Return the class of the tokenizer, without "Fast".

        Args:
            known: classes that are read.
            off: name of a setting that must be false; "": none.
            default: that of settings without a class; None: there is none.

        Raises:
            UserError: the class is another, or the setting is true.
        """
        kind = str(self.settings.get("tokenizer_class") or default)
        kind = kind.removesuffix("Fast")
        rule = model_files.one_of(known)
        model_files.require(
            self.file, self.settings, "tokenizer_class", kind in known, rule
        )
        model_files.require_off(self.file, self.settings, off.split())
        return kind

    def special(self, tokens: Sequence[str]) -> SpecialTokens:
        """Return the names of the tokens that have ids in config.json.

        Raises:
            UserError: an id is not one of the tokens'.
        """
        rule = f"below the number of tokens ({len(tokens):,})"
        names = "decoder_start_token_id", "eos_token_id", "pad_token_id"
        for name in names:
            is_token = self.config[name] < len(tokens)
            file = self.folder / "config.json"
            model_files.require(file, self.config, name, is_token, rule)
        eos, pad = (tokens[self.config[name]] for name in names[1:])
        return SpecialTokens(eos, "<unk>", pad)

    def languages(self, *names: str) -> tuple[str, str]:
        """Return the languages of both sides by the names of the settings."""
        source, target = (str(self.settings.get(x) or "") for x in names)
        return source, target


def read_marian(tokenizer: Tokenizer) -> FoundVocabularies:
    """Read the vocabularies of a Marian.

    Raises:
        UserError: a file is missing or damaged, lacks a special token, or the
            tokenizer is another; as in the functions below.
    """
    source = tokenizer.find("vocab.json")
    lists = [source, tokenizer.find("target_vocab.json", source.name)]
    models = [tokenizer.find(f"{side}.spm") for side in ("source", "target")]
    tokens = [model_files.read_tokens(file) for file in lists]
    special = map(tokenizer.special, tokens)
    sides = [*map(Side, tokens, special, lists)]
    found = imported.map_pieces(models, sides, True)
    languages = tokenizer.languages("source_lang", "target_lang")
    return found._replace(languages=languages)


def _with_rows(tokens, count):
    """Return as many tokens as an embedding has rows.

    Rows without a token get names that no text has, since tokens have no
    spaces.
    """
    others = [f"<unused {i}>" for i in range(len(tokens), count)]
    return [*tokens[:count], *others]


def read_languages(tokenizer: Tokenizer) -> FoundVocabularies:
    """Read the vocabulary of both sides, and the codes of its languages.

    config.json may have the token of a target language. Tokens that the
    tokenizer lacks are never read, and nothing in an output.
    """
    kind = tokenizer.require_class(_READERS, "legacy_behaviour")
    model = _find_model(tokenizer, "sentencepiece.bpe.model")
    content = files.read_bytes(model)
    listing, tokens, codes = _READERS[kind](tokenizer, content)
    count = max(len(tokens), tokenizer.config["vocab_size"])
    every = _with_rows(tokens, count)
    names = {
        tag_of(code): f"__{code}__" if kind == "M2M100Tokenizer" else code
        for code in codes
    }
    _check_added(tokenizer, [names.get(token, token) for token in every])
    control = {*map(tag_of, codes), *every[len(tokens) :], _MASK}
    with imported.named_in_errors(f"{model} with {listing}"):
        mapped = sentence_piece.map_ids(
            content, every, fairseq.SPECIAL, control=control
        )
    source, target = tokenizer.languages("src_lang", "tgt_lang")
    forced = _forced_language(tokenizer.config, tokens, codes)
    return FoundVocabularies.of_type(
        "multilingual_pieces",
        [mapped] * 2,
        [listing, model],
        (source, forced or target),
        codes,
    )


def _forced_language(config, tokens, codes):
    """Return the language whose token begins all outputs, or ""."""
    name = "forced_bos_token_id"
    if (forced := config.get(name)) is None:
        return ""
    known = {tokens.index(tag_of(code)): code for code in codes}
    is_known = type(forced) is int and forced in known
    rule = "the id of a language"
    model_files.require("the settings", config, name, is_known, rule)
    return known[forced]


def _read_m2m100(tokenizer, model):
    """Return the file of tokens, the tokens by their ids, and languages.

    `model` is the content of the SentencePiece model.
    """
    known = Setting("m2m100", values=("m2m100", "wmt21"))
    codes = _LANGUAGES[tokenizer.setting("language_codes", known)]
    listing = tokenizer.find("vocab.json")
    tokens = model_files.read_tokens(listing)
    return listing, [*tokens, *map(tag_of, codes)], codes


def _read_tokenizers(tokenizer, shape):
    """Return the same as _read_m2m100(), of a file of `tokenizers`.

    Its vocabulary has the shape {token: id}, or [[token, score]].
    """
    listing = tokenizer.find(_TOKENIZER)
    stored, added = _read_json(listing, {"model": {"vocab": shape}})
    ids = stored["model"]["vocab"]
    codes = set(filter(_CODE.fullmatch, added))
    if others := sorted({*added} - codes - {*fairseq.FIRST, _MASK}):
        rule = "languages, and special ones of the original"
        raise model_files.refuse(listing, "added_tokens", rule, others)
    if isinstance(ids, list):
        ids = {str([*pair, ""][0]): i for i, pair in enumerate(ids)}
    tokens = model_files.tokens_by_id(ids | added, listing)
    tags = {code: tag_of(code) for code in tokens if _CODE.fullmatch(code)}
    return listing, [tags.get(token, token) for token in tokens], [*tags]


def _read_json(file, shape):
    """Return a tokenizer.json, and the ids of the tokens added in it."""
    shape = {**shape, "added_tokens": [{"id": int, "content": str}]}
    stored = model_files.read_json(file, shape)
    return stored, {x["content"]: x["id"] for x in stored["added_tokens"]}


def _read_mbart50(tokenizer, model):
    """Return the same as _read_m2m100().

    fairseq's first tokens replace those of SentencePiece.
    """
    if (tokenizer.folder / _TOKENIZER).is_file():
        return _read_tokenizers(tokenizer, [[object]])
    listing = tokenizer.folder / "sentencepiece.bpe.model"
    with imported.named_in_errors(listing):
        pieces = sentence_piece.piece_names(model)
    if pieces[:3] != _REPLACED:
        name, rule = "the first pieces", f"{_REPLACED}"
        raise model_files.refuse(listing, name, rule, pieces[:3])
    codes = _LANGUAGES["mbart50"]
    tokens = [*fairseq.FIRST, *pieces[3:], *map(tag_of, codes), _MASK]
    return listing, tokens, codes


_READERS = {
    "M2M100Tokenizer": _read_m2m100,
    "NllbTokenizer": lambda files, _: _read_tokenizers(files, {str: int}),
    "MBart50Tokenizer": _read_mbart50,
}


def read_bart(tokenizer: Tokenizer) -> FoundVocabularies:
    """Read the vocabularies of a BART.

    config.json may have the token that begins all outputs, `<s>`.
    """
    classes = "BartTokenizer", "RobertaTokenizer"
    tokenizer.require_class(classes, "add_prefix_space", classes[0])
    tokens, merges, sources = _read_byte_pairs(tokenizer)
    # bart-large-cnn has no row of <mask>, the last token.
    config = tokenizer.config
    tokens = _with_rows(tokens, config["vocab_size"])
    _check_added(tokenizer, tokens)
    name, first = "forced_bos_token_id", config["forced_bos_token_id"]
    is_right = first is None or (type(first), first) == (int, 0)
    rule = "null or that of <s>, 0"
    model_files.require("the settings", config, name, is_right, rule)
    # The first of two is not read, but begins the output.
    starts = (1, 1) if first is None else (2, 0)
    with imported.named_in_errors(" and ".join(map(str, sources))):
        mapped = [
            byte_pair_encoding.map_byte_level(tokens, merges, count)
            for count in starts
        ]
    return FoundVocabularies.of_type(
        "byte_level", mapped, sources, imported.SIDES
    )


def read_fsmt(tokenizer: Tokenizer) -> FoundVocabularies:
    """Read the vocabularies of an FSMT."""
    name, same, config = "FSMTTokenizer", {"langs": "langs"}, tokenizer.config
    tokenizer.require_class([name], "do_lower_case", name)
    model_files.require_same(tokenizer.file, tokenizer.settings, config, same)
    languages = config["langs"]
    if [*map(type, languages)] != [str, str]:
        file = tokenizer.folder / "config.json"
        raise model_files.refuse(file, "langs", "two languages", languages)
    sides = []
    for side in ("src", "tgt"):
        file = tokenizer.find(f"vocab-{side}.json")
        tokens = [*map(_subword, model_files.read_tokens(file))]
        sides.append(Side(tokens, fairseq.SPECIAL, file))
    codes = tokenizer.find(_MERGES)
    found = imported.map_codes(
        codes,
        "\n".join([_VERSION, *_merge_lines(codes)]),
        "fsmt",
        languages,
        sides,
    )
    return found._replace(languages=(languages[0], languages[1]))


def _subword(token):
    """Return a token of FSMT as codes have it: the last of a word is bare."""
    if token in fairseq.FIRST:
        return token
    last = token.removesuffix("</w>")
    return last if last != token else token + byte_pair_encoding.JOINER


def _merge_lines(file):
    """Return the lines of merges, without that of the version."""
    lines = model_files.read_lines(file)
    return lines[lines[0].startswith("#version") :]


def _read_byte_pairs(tokenizer):
    """Return the tokens by their ids, the merges, and the files of them."""
    listing = tokenizer.folder / _TOKENIZER
    if listing.is_file():
        return *_read_byte_level(listing), [listing]
    listing, file = map(tokenizer.find, ("vocab.json", _MERGES))
    merges = [line.split(" ") for line in _merge_lines(file)]
    tokens = model_files.read_tokens(listing)
    return tokens, _pairs(merges, file), [listing, file]


def _read_byte_level(file):
    """Return the tokens by their ids, and the merges, of a tokenizer.json."""
    shape = {
        "model": {"vocab": {str: int}, "merges": list},
        "pre_tokenizer": dict,
    }
    stored, added = _read_json(file, shape)
    model = stored["model"]
    model_files.require_fixed(file, model, _MODEL, [None])
    model_files.require_fixed(file, stored["pre_tokenizer"], _WORDS)
    model_files.require_fixed(file, stored, {"normalizer": None})
    if others := sorted(added.keys() - {*BYTE_LEVEL_SPECIAL}):
        rule = model_files.one_of(BYTE_LEVEL_SPECIAL)
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


def read_t5(tokenizer: Tokenizer) -> FoundVocabularies:
    """Read the vocabulary of both sides, and MADLAD's languages."""
    model = _read_model(tokenizer, "T5", "MT5")
    pieces, size = model.pieces, tokenizer.config["vocab_size"]
    special = _special_tokens(tokenizer, pieces)
    codes = {
        piece: match[1]
        for piece in pieces
        if (match := LANGUAGE.fullmatch(piece.removeprefix(SPACE)))
    }
    # MADLAD's embedding has no rows for sentinels.
    last = tokenizer.setting("extra_ids", Setting(100)) - 1
    sentinels = [f"{SPACE}<extra_id_{i}>" for i in range(last, -1, -1)]
    if sentinels[-1:] == pieces[-1:]:  # mT5's are pieces
        sentinels = []
    tokens = (pieces + sentinels)[:size]
    words = {*tokens[len(pieces) :], *codes}
    found = _map_pieces(tokenizer, model, tokens, special, words)
    if not codes:
        return found
    return found._replace(languages=("", ""), codes=tuple(codes.values()))


def read_pegasus(tokenizer: Tokenizer) -> FoundVocabularies:
    """Read the vocabulary of a Pegasus."""
    model = _read_model(tokenizer, "Pegasus")
    offset = tokenizer.setting("offset", Setting(103, lowest=2))
    masks = ["<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, offset))]
    tokens = [*model.pieces[:2], *masks, *model.pieces[2:]]
    special = _special_tokens(tokenizer, tokens)
    return _map_pieces(tokenizer, model, tokens, special)


def _find_model(tokenizer, name):
    """Return the path of a SentencePiece model, or raise a UserError."""
    model = tokenizer.folder / name
    if not model.is_file():  # transformers 5 does not save it
        raise errors.UserError(
            f"{tokenizer.folder} has no {name}. Put that of the model that "
            "was trained further there: the vocabulary is the same."
        )
    return model


class _Model(NamedTuple):
    """SentencePiece model of a folder."""

    file: pathlib.Path
    content: bytes
    pieces: list[str]


def _read_model(tokenizer, *families):
    classes = [f"{family}Tokenizer" for family in families]
    tokenizer.require_class(classes, default=classes[0])
    model = _find_model(tokenizer, "spiece.model")
    content = files.read_bytes(model)
    with imported.named_in_errors(model):
        pieces = sentence_piece.piece_names(content)
    return _Model(model, content, pieces)


def _special_tokens(tokenizer, tokens):
    """Return the special ones of tokens, for which there must be rows."""
    count, config = len(tokens), tokenizer.config
    rule = f"at least {count:,}, the number of tokens"
    file, name = tokenizer.folder / "config.json", "vocab_size"
    model_files.require(file, config, name, config[name] >= count, rule)
    return tokenizer.special(tokens)


def _map_pieces(tokenizer, model, tokens, special, words=()):
    """Return the vocabulary of a model's pieces with the ids of tokens.

    `words` are tokens that are read whole. The others that are no pieces, and
    rows without a token, are never read.
    """
    tokens = _with_rows(tokens, tokenizer.config["vocab_size"])
    file = tokenizer.folder / _TOKENIZER
    listed = _read_json(file, {})[1] if file.is_file() else {}
    _check_added(tokenizer, tokens, listed)
    control = {*tokens} - {*model.pieces, *words}
    with imported.named_in_errors(model.file):
        mapped = sentence_piece.map_ids(
            model.content, tokens, special, False, control, words
        )
    return FoundVocabularies.of_type(
        "mapped_sentence_piece", [mapped] * 2, [model.file], imported.SIDES
    )


def _check_added(tokenizer, tokens, listed=()):
    """Refuse tokens that were added to `tokens`, those of a tokenizer by id.

    `listed` is {token: id} of a tokenizer.json that is not read otherwise.
    """
    added = tokenizer.settings.get("added_tokens_decoder", {})
    files.require_json_shape(tokenizer.file, added, {str: {"content": str}})
    names = {i: token["content"] for i, token in added.items()}
    if (file := tokenizer.folder / "added_tokens.json").is_file():
        ids = model_files.read_json(file, {str: int})
        names |= {str(i): name for name, i in ids.items()}
    names |= {str(i): name for name, i in dict(listed).items()}
    where = f"the tokens of {tokenizer.folder}"
    for i, token in enumerate(tokens):
        name = names.get(str(i), token)
        is_right = name.removeprefix(SPACE) == token.removeprefix(SPACE)
        rule = f"{token!r}, a token of the original"
        model_files.require(where, names, str(i), is_right, rule)
