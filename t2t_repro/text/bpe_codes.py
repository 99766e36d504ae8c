"""Byte pair encoding by subword-nmt or fastBPE, with or without Moses.

Their codes are a list of merges. The file here is JSON, which the importer
writes:

    {"tokens": ["<pad>", "</s>", "<unk>", "a@@", …], "unknown": "<unk>",
     "codes": "#version: 0.2\\nt h\\n…", "tokenizer": "moses", "language": "en"}

Subwords that do not end a word end in "@@". Sources: apply_bpe.py of
subword-nmt, fastBPE.hpp, and fairseq's data/encoders/ and data/dictionary.py.

There is no graph_class: neither Moses's rules nor merges in the order of a list
are operations of TensorFlow.
"""

import functools
import heapq
import re
from collections.abc import Iterable, Sequence

from t2t_repro import errors
from t2t_repro.text import moses, vocabulary
from t2t_repro.text.vocabulary import EOS, PAD

JOINER = "@@"
# Those that tokenize before the codes, of a language.
TOKENIZERS = {
    "none": None,
    "moses": moses.dash_splitting_tokenizer,
    "fsmt": moses.normalizing_tokenizer,  # of Hugging Face
}
_END = "</w>"
_VERSION = re.compile(r"#version: (\S+)")
_MAX_CACHED_WORDS = 100_000


class BpeCodes(vocabulary.Imported, vocabulary.TokenList):
    """Subwords of a list of merges, with the ids of another program."""

    not_learned = "Codes of byte pair encoding are not learned here."

    def __init__(self, model: bytes):
        """Parse the file.

        Raises:
            UserError: it is not one.
        """
        super().__init__(model)
        content = vocabulary.load_tokens(
            model,
            "a vocabulary of byte pair encoding",
            *("unknown", "codes", "tokenizer", "language"),
        )
        if content["tokenizer"] not in TOKENIZERS:
            raise errors.UserError(
                f"The tokenizer must be one of {[*TOKENIZERS]}; got "
                f"{content['tokenizer']!r}."
            )
        self._tokens = content["tokens"]
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        self._unknown = self._ids.get(content["unknown"], PAD)
        if self._unknown in (PAD, EOS):
            raise errors.UserError(
                "The vocabulary's unknown token must be in its list, after "
                f"the first two; got {content['unknown']!r}."
            )
        self._segmenter = Segmenter(content["codes"])
        self._tokenizer = content["tokenizer"]
        self._language = content["language"]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        tokenize = self._moses(TOKENIZERS[self._tokenizer])
        return [
            [*map(self._id, self._segmenter.segment(tokenize(line))), EOS]
            for line in lines
        ]

    def _id(self, subword):
        i = self._ids.get(subword, self._unknown)
        return i if i > EOS else self._unknown

    def join(self, rows: list[list[int]]) -> list[str]:
        detokenize = self._moses(moses.detokenizer)
        texts = (" ".join(self.pieces(row)) + " " for row in rows)
        return [
            detokenize(text.replace(f"{JOINER} ", "").rstrip())
            for text in texts
        ]

    def _moses(self, factory):
        if self._tokenizer == "none":
            return str
        return factory(self._language)


class Merges:
    """Merges of neighbouring parts, first those that are first in a list."""

    def __init__(self, pairs: Iterable[tuple[str, str]]):
        """Store the pairs; a second one that is the same is not used."""
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, pair in enumerate(pairs):
            self._ranks.setdefault(pair, rank)

    def apply(self, parts: list) -> list[str]:
        """Merge all occurrences of the first pair of the list, and so on.

        A heap has the pairs of neighbours. Their search in all parts would be
        quadratic, and a word may be a line of text without spaces.

        Args:
            parts: texts; they are changed.
        """
        count = len(parts)
        after = list(range(1, count + 1))
        before = list(range(-1, count - 1))
        heap: list[tuple[int, int]] = []  # rank, left part

        def rank(i):
            if parts[i] is None or after[i] == count:
                return None
            return self._ranks.get((parts[i], parts[after[i]]))

        def push(i):
            if i >= 0 and (found := rank(i)) is not None:
                heapq.heappush(heap, (found, i))

        for i in range(count):
            push(i)
        while heap:
            first, merged = heap[0][0], []
            while heap and heap[0][0] == first:
                _, i = heapq.heappop(heap)
                if rank(i) != first:
                    continue  # a part was merged with its other neighbour
                right = after[i]
                parts[i] += parts[right]
                parts[right] = None
                after[i] = after[right]
                if after[i] < count:
                    before[after[i]] = i
                merged.append(i)
            for i in merged:
                push(before[i])
                push(i)
        return [part for part in parts if part is not None]


class Segmenter:
    """Merges of characters to subwords, first those that come first."""

    def __init__(self, codes: str):
        """Parse codes: a pair on each line, from fastBPE with its frequency.

        Raises:
            UserError: they have another form.
        """
        lines = codes.rstrip("\n").split("\n") if codes.strip() else []
        self._end_is_apart, lines = _is_version_1(lines)
        pairs = []
        for line in lines:
            pair = line.strip("\r\n ").split(" ")
            is_frequency = len(pair) == 3 and pair[2].isdecimal()
            if len(pair) != 2 and not is_frequency:
                raise errors.UserError(
                    "Codes of byte pair encoding have two subwords on each "
                    f"line; got {line!r:.80}."
                )
            if is_frequency:  # of fastBPE, whose codes have no version
                self._end_is_apart = False
            pairs.append((pair[0], pair[1]))
        self._merge = Merges(pairs).apply
        self._word = functools.lru_cache(_MAX_CACHED_WORDS)(self._join_subwords)

    def segment(self, text: str) -> list[str]:
        """Split tokenized text into subwords."""
        segmented = " ".join(
            self._word(word) for word in text.strip("\r\n ").split(" ") if word
        )
        return segmented.split()  # Unicode's spaces, too: fairseq's tokenizer

    def _join_subwords(self, word: str) -> str:
        """Return the subwords of a word, joined by "@@ "."""
        if len(word) == 1:
            return word
        if self._end_is_apart:
            parts = [*word, _END]
        else:
            parts = [*word[:-1], word[-1] + _END]
        *parts, last = self._merge(parts)
        last = last.removesuffix(_END)
        return f"{JOINER} ".join([*parts, last] if last else parts)


def _is_version_1(lines):
    """Return whether a word's end is a part of its own, and the merges."""
    version = _VERSION.match(lines[0]) if lines else None
    if version is None:
        return True, lines
    if not re.fullmatch(r"0\.[12](\.0+)*", version[1]):
        raise errors.UserError(
            "Codes of byte pair encoding must have the version 0.1 or 0.2; "
            f"got {version[1]}."
        )
    return version[1].startswith("0.1"), lines[1:]


def serialize(
    tokens: Sequence[str],
    unknown: str,
    codes: str,
    tokenizer: str,
    language: str,
) -> bytes:
    """Return the content of a file; see the top of this module.

    Raises:
        UserError: a part has another form.
    """
    content = {
        "tokens": list(tokens),
        "unknown": unknown,
        "codes": codes,
        "tokenizer": tokenizer,
        "language": language,
    }
    model = vocabulary.dump_tokens(content)
    BpeCodes(model)
    return model
