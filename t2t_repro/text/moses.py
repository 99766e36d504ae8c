"""Tokenization by sacremoses, the Python port of the Moses scripts.

It is imported where it is used: every command imports the problems, and with
them this module, and few need the 0.4 s.
"""

import functools
import re
import unicodedata
from collections.abc import Callable

# Since 2018 tokenizer.perl always splits off a full stop that ends the line,
# except from "..."; sacremoses does not.
_LAST_STOP = re.compile(r"(?<=[^\s.])\.$")
# Rules of tokenizer.perl that sacremoses lacks: languages with the apostrophes
# of French, and signs that stay within words, before small letters.
_AS_FRENCH = "ca", "ga"
_WITHIN_WORDS = {"ca": "·", "fi": ":", "sv": ":"}
# perl matches bytes: both hyphens of "vis-à-vis" are split, but only the first
# of "a-b-c", since matches do not overlap.
_HYPHEN = re.compile(rb"(\S)-(\S)")
# Spaces of Unicode, which are letters to a perl that matches bytes.
_OTHER_SPACE = re.compile(r"[^\S \t\n\r\f\v]")
_PRIVATE = 0xF0000  # the first character of a plane for private use


@functools.cache
def tokenizer(language: str) -> Callable[[str], str]:
    """Return a function of a line: tokenizer.perl -l LANGUAGE."""
    import regex
    import sacremoses

    moses = sacremoses.MosesTokenizer(lang=language)
    if language in _AS_FRENCH:
        moses.lang = "fr"  # after it has read the abbreviations
    # sacremoses has a list of letters, which lacks those of many scripts.
    sign = _WITHIN_WORDS.get(language, "")
    padded = rf"[^\p{{Alnum}}\s.{sign}'`,\-]"
    if sign:
        padded += rf"|{sign}(?!\p{{Ll}})"
    moses.PAD_NOT_ISALNUM = regex.compile(f"({padded})"), r" \1 "
    return lambda line: _LAST_STOP.sub(
        " .", moses.tokenize(line, return_str=True).strip()
    )


@functools.cache
def dash_splitting_tokenizer(language: str) -> Callable[[str], str]:
    """Return a function of a line: tokenizer.perl -a, as fairseq calls it."""
    return _tokenizer(language, aggressive_dash_splits=True)


@functools.cache
def normalizing_tokenizer(language: str) -> Callable[[str], str]:
    """Return a function of a line: the steps of transformers' FSMTTokenizer.

    They are replace-unicode-punctuation.perl, normalize-punctuation.perl,
    remove-non-printing-char.perl and dash_splitting_tokenizer().
    """
    import sacremoses

    punctuation = sacremoses.MosesPunctNormalizer(lang=language)
    tokenize = dash_splitting_tokenizer(language)

    def tokenized(line):
        text = punctuation.replace_unicode_punct(line)
        text = punctuation.normalize(text)
        return tokenize("".join(filter(_is_printing, text)))

    return tokenized


def _is_printing(character):
    return unicodedata.category(character)[0] != "C"


@functools.cache
def detokenizer(language: str) -> Callable[[str], str]:
    """Return a function of a tokenized line: detokenizer.perl."""
    import sacremoses

    detokenize = sacremoses.MosesDetokenizer(lang=language).detokenize
    return lambda line: detokenize(line.split())


@functools.cache
def compound_splitter(language: str) -> Callable[[str], str]:
    """Return the steps of tensor2tensor's get_ende_bleu.sh before multi-bleu.

    Unicode punctuation becomes ASCII, the line is tokenized, and words are
    split at hyphens: "EU-Plan" -> "EU ##AT##-##AT## Plan".
    """
    import sacremoses

    replace = sacremoses.MosesPunctNormalizer().replace_unicode_punct
    tokenize = tokenizer(language)
    return lambda line: split_hyphens(tokenize(replace(line)))


def split_hyphens(tokens: str) -> str:
    """Split tokens at hyphens: the last step of compound_splitter()."""
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def spaces_of_perl(tokens: str) -> str:
    """Replace the spaces that do not separate words to multi-bleu.perl.

    str.split() then has its words, such as "100\N{NO-BREAK SPACE}000".
    """
    return _OTHER_SPACE.sub(lambda found: chr(_PRIVATE + ord(found[0])), tokens)


@functools.cache
def lowercase_tokenizer(language: str) -> Callable[[str], str]:
    """Return a function that lowercases, normalizes and tokenizes a line.

    It applies lowercase.perl, normalize-punctuation.perl and the tokenizer.perl
    of 2017, as the authors of Multi30k did for their files *.lc.norm.tok.*.
    """
    normalize, tokenize = _normalizer(language), _tokenizer(language)
    return lambda line: tokenize(normalize(line.lower())).strip()


@functools.cache
def punctuation_normalizer(language: str) -> Callable[[str], str]:
    """Return the steps of fairseq's examples before the tokenizer.

    They are normalize-punctuation.perl and remove-non-printing-char.perl.
    """
    normalize = _normalizer(language)

    def normalized(line):
        return "".join(
            # sacremoses removes characters of control; perl does not.
            character if _is_printing(character) else " "
            for character in normalize(line)
        ).strip()

    return normalized


def _normalizer(language: str) -> Callable[[str], str]:
    import sacremoses

    normalize = sacremoses.MosesPunctNormalizer(
        lang=language, perl_parity=True
    ).normalize
    # The script's rule for a full stop and a quote needs the line feed.
    return lambda line: normalize(f"{line}\n")


def _tokenizer(language: str, **options: bool) -> Callable[[str], str]:
    import sacremoses

    tokenize = sacremoses.MosesTokenizer(lang=language).tokenize
    return lambda line: tokenize(line, return_str=True, **options)
