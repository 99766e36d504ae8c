"""Byte pair encodings of other programs: merges in the order of a list.

Codes of subword-nmt or fastBPE, with or without Moses, are the list. The file
here is JSON, which the importer writes:

    {"tokens": ["<pad>", "</s>", "<unk>", "a@@", …], "unknown": "<unk>",
     "codes": "#version: 0.2\\nt h\\n…", "tokenizer": "moses", "language": "en"}

Subwords that do not end a word end in "@@". Sources: apply_bpe.py of
subword-nmt, fastBPE.hpp, and fairseq's data/encoders/ and data/dictionary.py.
There is no graph_class: neither Moses's rules nor merges in the order of a list
are operations of TensorFlow.

Byte-level pairs, as of GPT-2 and BART, divide a text into words, with the space
before them. The bytes of a word are written as 256 printable characters, and
neighbours are merged. So any text can be spelled. The file is a SentencePiece
model whose pieces have our ids. SentencePiece joins the neighbours whose union
is the best piece, whatever pair they are, which is the same here:
map_byte_level() requires that each piece is the union of one pair, of pieces
before it, and that the merges turn its characters into it. They then never
reach another pair with the same union, since the last pair within a piece does
not depend on what is around it.
"""

import functools
import heapq
import itertools
import re
import sys
import unicodedata
from collections.abc import Sequence

from sentencepiece import sentencepiece_model_pb2

from t2t_repro import errors
from t2t_repro.text import moses, sentence_piece, vocabulary
from t2t_repro.text.sentence_piece import MappedModel, MappedSentencePiece
from t2t_repro.text.vocabulary import EOS, SpecialTokens

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
# What an output may have, and text does not become.
BYTE_LEVEL_SPECIAL = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
_START = BYTE_LEVEL_SPECIAL[0]
# Bytes that are the same character in GPT-2's encoder.py; the others are the
# characters from 256 on.
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_Proto = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]
# White space in Unicode, which re's \s is not: it has U+001C to U+001F, too.
SPACES = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


class BpeCodes(vocabulary.Imported, vocabulary.TokenList):
    """Subwords of a list of merges, with the ids of another program."""

    def __init__(self, model: bytes):
        super().__init__(model)
        content = self._load(
            "a vocabulary of byte pair encoding",
            *("codes", "tokenizer", "language"),
        )
        if content["tokenizer"] not in TOKENIZERS:
            raise errors.UserError(
                f"The tokenizer must be one of {[*TOKENIZERS]}; got "
                f"{content['tokenizer']!r}."
            )
        self._segmenter = Segmenter(content["codes"])
        self._tokenizer = content["tokenizer"]
        self._language = content["language"]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        tokenize = self._moses(TOKENIZERS[self._tokenizer])
        return [
            self._ids_of(self._segmenter.segment(tokenize(line)))
            for line in lines
        ]

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


def _merge(parts: list, ranks: dict[tuple[str, str], int]) -> list[str]:
    """Merge all occurrences of the pair with the lowest rank, and so on.

    A heap has the pairs of neighbours. Their search in all parts would be
    quadratic, and a word may be a line of text without spaces. The list of
    parts is changed.
    """
    count = len(parts)
    after = list(range(1, count + 1))
    before = list(range(-1, count - 1))
    heap: list[tuple[int, int]] = []  # rank, left part

    def rank(i):
        if parts[i] is None or after[i] == count:
            return None
        return ranks.get((parts[i], parts[after[i]]))

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
        self._ranks: dict[tuple[str, str], int] = {}
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
            # A second pair that is the same is not used.
            self._ranks.setdefault((pair[0], pair[1]), len(self._ranks))
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
        *parts, last = _merge(parts, self._ranks)
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


def serialize_codes(
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


def byte_characters() -> list[str]:
    """Return the character of each byte."""
    others = itertools.count(256)
    codes = (
        byte if byte in _PRINTABLE else next(others) for byte in range(256)
    )
    return list(map(chr, codes))


@functools.cache
def byte_level_words() -> str:
    """Return the regular expression of words, also in the syntax of RE2.

    Its last alternative takes a whole run of spaces, where GPT-2's leaves the
    last one to the next word.
    """
    letters, numbers = _category("L"), _category("N")
    return (
        rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[{numbers}]+"
        rf"| ?[^{SPACES}{letters}{numbers}]+|[{SPACES}]+"
    )


def _category(first):
    """Return characters of Unicode's categories, as ranges within brackets."""
    codes = range(sys.maxunicode + 1)
    runs = itertools.groupby(
        codes, lambda code: unicodedata.category(chr(code))[0] == first
    )
    found = ([*run] for is_member, run in runs if is_member)
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in found)


@functools.cache
def _word_pattern():
    # A run of spaces leaves the last one to a word that follows.
    return re.compile(
        rf"[{SPACES}]+(?=[{SPACES}][^{SPACES}])|{byte_level_words()}"
    )


class ByteLevel(MappedSentencePiece):
    """Pieces of bytes, with the ids of another program.

    `<s>` begins each text that is not empty. Where another `<s>` is before it,
    outputs begin with that, too.
    """

    graph_class = "t2t_repro.serving.graph_vocabularies.ByteLevelGraph"

    def __init__(self, model: bytes):
        super().__init__(model)
        starts = _Proto.FromString(model).trainer_spec.control_symbols
        self.before = self._processor.PieceToId([*starts])
        self.special = frozenset(
            self._processor.PieceToId([*BYTE_LEVEL_SPECIAL])
        )
        characters = byte_characters()
        self._characters = dict(enumerate(characters))
        self._bytes = {ord(c): byte for byte, c in enumerate(characters)}
        self._segment = functools.lru_cache(_MAX_CACHED_WORDS)(self._ids)

    @property
    def leads_outputs(self) -> bool:  # type: ignore[override]
        return len(self.before) > 1

    @functools.cached_property
    def tag_ids(self) -> frozenset[int]:  # type: ignore[override]
        return frozenset(self.before)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        find = _word_pattern().findall
        return [
            [
                *(self.before if line else ()),
                *itertools.chain.from_iterable(map(self._segment, find(line))),
                EOS,
            ]
            for line in lines
        ]

    def _ids(self, word):
        text = word.encode().decode("latin-1").translate(self._characters)
        return self._processor.Encode(text)

    def join(self, rows: list[list[int]]) -> list[str]:
        return [
            "".join(self.pieces([i for i in row if i not in self.special]))
            .translate(self._bytes)
            .encode("latin-1")
            .decode(errors="replace")
            for row in rows
        ]


def map_byte_level(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    num_starts: int,
) -> MappedModel:
    """Make the file of a list of merges, and of the tokens by their ids.

    Args:
        tokens: those of BYTE_LEVEL_SPECIAL, the characters of bytes, unions of
            the merges, and others, which no text becomes.
        merges: pairs of pieces.
        num_starts: number of `<s>` before a text.

    Raises:
        UserError: a byte has no token, or SentencePiece's merges would be
            others.
    """
    characters = byte_characters()
    pieces = characters + [left + right for left, right in merges]
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    merge_ranks = {pair: i for i, pair in enumerate(merges)}
    for rank, pair in enumerate(merges, len(characters)):
        piece = pieces[rank]
        is_later = any(ranks.get(part, rank) >= rank for part in pair)
        is_made = _merge([*piece], merge_ranks) == [piece]
        if is_later or ranks[piece] != rank or not is_made:
            raise errors.UserError(
                "Each merge of byte pairs must make a new piece of earlier "
                f"ones; got {pair!r}, the merge number {rank - 255:,}."
            )
    if missing := sorted(ranks.keys() - {*tokens}):
        raise errors.UserError(
            f"The vocabulary of {len(tokens):,} tokens lacks "
            f"{', '.join(map(repr, missing[:5]))} ({len(missing):,})."
        )
    special = SpecialTokens(
        BYTE_LEVEL_SPECIAL[2], BYTE_LEVEL_SPECIAL[3], BYTE_LEVEL_SPECIAL[1]
    )
    control = {*tokens} - {*pieces, special.unknown}
    mapped = sentence_piece.map_ids(
        _byte_level_model(pieces), tokens, special, control=control
    )
    proto = _Proto.FromString(mapped.model)
    proto.trainer_spec.control_symbols.extend([_START] * num_starts)
    return mapped._replace(model=proto.SerializeToString(deterministic=True))


def _byte_level_model(pieces):
    """Return a SentencePiece model of pieces, which merges the first first."""
    proto = _Proto()
    proto.trainer_spec.model_type = proto.trainer_spec.BPE
    rules = proto.normalizer_spec
    rules.name = "identity"
    rules.add_dummy_prefix = rules.remove_extra_whitespaces = False
    rules.escape_whitespaces = False
    for rank, piece in enumerate(pieces):
        proto.pieces.add(piece=piece, score=-float(rank))
    return proto.SerializeToString()
