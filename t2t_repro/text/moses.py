"""Text as the Moses scripts tokenize it, through their port, sacremoses."""

import functools
import re
from collections.abc import Callable

import sacremoses

# What tokenizer.perl does since 2018 and sacremoses does not: a full stop that
# ends the line is never part of an abbreviation. "..." stays whole.
_LAST_STOP = re.compile(r"(?<=[^\s.])\.$")
# Of bytes, as perl reads them: both hyphens of "vis-à-vis" are split, and of
# "a-b-c" the first one, for then b is used up.
_HYPHEN = re.compile(rb"(\S)-(\S)")


@functools.cache
def tokenizer(language: str) -> Callable[[str], str]:
    """tokenizer.perl -l LANGUAGE: a line -> its tokens, a space between."""
    tokenize = _sacremoses(language)
    return lambda line: _LAST_STOP.sub(" .", tokenize(line))


@functools.cache
def compound_splitter(language: str) -> Callable[[str], str]:
    """The steps of tensor2tensor's get_ende_bleu.sh before multi-bleu.

    Unicode punctuation becomes ASCII, the line is tokenized, and words are cut
    at hyphens: "EU-Plan" -> "EU ##AT##-##AT## Plan".
    """
    replace = sacremoses.MosesPunctNormalizer().replace_unicode_punct
    tokenize = tokenizer(language)
    return lambda line: split_hyphens(tokenize(replace(line)))


def split_hyphens(tokens: str) -> str:
    """The last step of compound_splitter alone, on text that is tokenized."""
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


@functools.cache
def lowercase_tokenizer(language: str) -> Callable[[str], str]:
    """A line in lower case, with plain punctuation, tokenized.

    lowercase.perl, normalize-punctuation.perl and the tokenizer.perl of 2017,
    as Multi30k's authors made their files *.lc.norm.tok.*.
    """
    normalize = sacremoses.MosesPunctNormalizer(
        lang=language, perl_parity=True
    ).normalize
    tokenize = _sacremoses(language)
    # A rule of the script for a full stop and a quote reads the line feed, too.
    return lambda line: tokenize(normalize(f"{line.lower()}\n"))


def _sacremoses(language):
    tokenize = sacremoses.MosesTokenizer(lang=language).tokenize
    return lambda line: tokenize(line, return_str=True).strip()
