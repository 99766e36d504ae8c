"""Byte-level byte pair encoding, as of GPT-2 and BART.

A text is divided into words, with the space before them. The bytes of a word
are written as 256 printable characters, and neighbours are merged, first those
that are first in a list. So any text can be spelled.

The file is a SentencePiece model whose pieces have our ids. SentencePiece joins
the neighbours whose union is the best piece, whatever pair they are, which is
the same here: map_ids() requires that each piece is the union of one pair, of
pieces before it, and that the merges turn its characters into it. They then
never reach another pair with the same union, since the last pair within a piece
does not depend on what is around it.
"""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Sequence

from sentencepiece import sentencepiece_model_pb2

from t2t_repro import errors
from t2t_repro.text import bpe_codes, sentence_piece
from t2t_repro.text.sentence_piece import MappedModel, MappedSentencePiece
from t2t_repro.text.vocabulary import EOS, SpecialTokens

# What an output may have, and text does not become.
SPECIAL = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
_START = SPECIAL[0]
# Bytes that are the same character, in the order of GPT-2's encoder.py; the
# others are the characters from 256 on.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_MAX_CACHED_WORDS = 100_000
_Proto = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]
# White space in Unicode, which re's \s is not: it has U+001C to U+001F, too.
SPACES = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def byte_characters() -> list[str]:
    """Return the character of each byte."""
    others = {byte: chr(256 + i) for i, byte in enumerate(_OTHERS)}
    return [others.get(byte, chr(byte)) for byte in range(256)]


@functools.cache
def words() -> str:
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
    return re.compile(rf"[{SPACES}]+(?=[{SPACES}][^{SPACES}])|{words()}")


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
        self.special = frozenset(self._processor.PieceToId([*SPECIAL]))
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


def map_ids(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    num_starts: int,
) -> MappedModel:
    """Make the file of a list of merges, and of the tokens by their ids.

    Args:
        tokens: those of SPECIAL, the characters of bytes, unions of the merges,
            and others, which no text becomes.
        merges: pairs of pieces.
        num_starts: number of `<s>` before a text.

    Raises:
        UserError: a byte has no token, or SentencePiece's merges would be
            others.
    """
    characters = byte_characters()
    pieces = characters + [left + right for left, right in merges]
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    merge = bpe_codes.Merges(merges).apply
    for rank, (pair, piece) in enumerate(
        zip(merges, pieces[len(characters) :], strict=True), len(characters)
    ):
        is_later = any(ranks.get(part, rank) >= rank for part in pair)
        if is_later or ranks[piece] != rank or merge([*piece]) != [piece]:
            raise errors.UserError(
                "Each merge of byte pairs must make a new piece of earlier "
                f"ones; got {pair!r}, the merge number {rank - 255:,}."
            )
    if missing := sorted(ranks.keys() - {*tokens}):
        raise errors.UserError(
            f"The vocabulary of {len(tokens):,} tokens lacks "
            f"{', '.join(map(repr, missing[:5]))} ({len(missing):,})."
        )
    special = SpecialTokens(SPECIAL[2], SPECIAL[3], SPECIAL[1])
    control = {*tokens} - {*pieces, special.unknown}
    mapped = sentence_piece.map_ids(
        _model(pieces), tokens, special, control=control
    )
    proto = _Proto.FromString(mapped.model)
    proto.trainer_spec.control_symbols.extend([_START] * num_starts)
    return mapped._replace(model=proto.SerializeToString(deterministic=True))


def _model(pieces):
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
