"""SentencePiece models with the ids of another program's vocabulary.

Marian, Hugging Face, fairseq and others segment text by SentencePiece, and
number the pieces by a list of their own. map_ids() writes that list into the
model, so that its pieces have our ids: PAD, EOS, then the others in the list's
order. The number of ids is V, the model's trainer_spec.vocab_size. Pieces of
the model that the list lacks come after them. They take part in the
segmentation as before, and become unknown. Text that is unknown to the model
may still be a token of the list: "z", of a list for both languages.

The source of a multilingual model begins with the code of its target language,
as in ">>fra<< A dog". The code is a token of the list, which the model does not
read: it segments the text after the code (MarianTokenizer of transformers).
Elsewhere, a code is text.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sentencepiece import sentencepiece_model_pb2

from t2t_repro import errors
from t2t_repro.text import token_lists
from t2t_repro.text.sentence_piece import SentencePiece, algorithm_of
from t2t_repro.text.token_lists import Special
from t2t_repro.text.vocabulary import EOS, PAD

_Proto = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]
_Piece = _Proto.SentencePiece
_UNUSED_SCORE = -1e9  # merged last, if ever
_ALGORITHMS = ("unigram", "bpe", "char")  # names in registry.vocabularies, too
CODE = r"(?s)^>>.*?<<"  # also in the syntax of RE2
_CODE = re.compile(CODE)


class MappedSentencePiece(SentencePiece):
    """SentencePiece model with another program's ids; the importer makes it."""

    graph_class = "t2t_repro.serving.sentence_piece_graph.MappedPieceGraph"
    needs_bytes = False
    learns_tags = False

    def __init__(self, model: bytes):
        super().__init__(model)
        proto = _Proto.FromString(model)
        self._size = proto.trainer_spec.vocab_size
        # Before map_ids() wrote it, codes were user-defined pieces.
        self.reads_codes = CODE in proto.trainer_spec.control_symbols
        if not self.unknown < self._size <= self.num_pieces:
            raise errors.UserError(
                f"Its trainer_spec.vocab_size is {self._size:,}, which must be "
                f"above the id of unknown text, {self.unknown:,}, and at most "
                f"the number of pieces, {self.num_pieces:,}."
            )

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        split_by_unicode_script: bool = True,
        tags: Sequence[str] = (),
    ) -> "MappedSentencePiece":
        raise errors.UserError(
            "A vocabulary with ids of another program cannot be learned. "
            "Import a model, and name its file: --problem_args=vocabulary=…."
        )

    @property
    def size(self) -> int:
        return self._size

    @functools.cached_property
    def tags(self) -> frozenset[str]:  # type: ignore[override]
        if not self.reads_codes:
            return super().tags
        names = self.pieces(range(self._size))
        return frozenset(name for name in names if _CODE.fullmatch(name))

    def split_tag(self, line: str) -> tuple[str, str]:
        if not self.reads_codes:
            return super().split_tag(line)
        code, text = self._split_code(line)
        return (code, text) if code in self.tags else ("", line)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        parts = [self._split_code(line) for line in lines]
        rows = self._processor.Encode(
            [text for _, text in parts], out_type=str, num_threads=1
        )
        return [
            [
                i if i < self._size else self.unknown
                for i in self._processor.PieceToId([code] * bool(code) + row)
            ]
            + [EOS]
            for (code, _), row in zip(parts, rows, strict=True)
        ]

    def _split_code(self, line):
        """Split a line into a code, known or not, and the text after it."""
        code = _CODE.match(line) if self.reads_codes else None
        return (code[0], line[code.end() :]) if code else ("", line)


class MappedModel(NamedTuple):
    """SentencePiece model with new ids, and what they were."""

    model: bytes
    order: list[int]  # the program's id of each of our V ids; -1: none


def map_ids(
    model: bytes,
    tokens: Sequence[str],
    special: Special,
    reads_codes: bool = False,
) -> MappedModel:
    """Give the pieces of a SentencePiece model the ids of a list.

    Args:
        model: serialized SentencePiece model.
        tokens: the list; a token's place is its id.
        special: names of special tokens in it.
        reads_codes: whether the program reads the code of a language at the
            beginning of a line even where the list has none. It is then
            unknown, and otherwise text.

    Raises:
        UserError: the model or the list lacks what it must have.
    """
    proto = _parse(model)
    order = token_lists.order(tokens, special)
    known = {piece.piece: piece for piece in proto.pieces}
    spec = proto.trainer_spec
    if spec.model_type == spec.BPE or spec.byte_fallback:
        _refuse_characters(tokens, known)
    pieces = [_piece(tokens[i], known, special) for i in order[1:]]
    taken = {piece.piece for piece in pieces} | known.keys()
    pad = token_lists.name_of_pad(special, taken)
    pieces.insert(0, _Piece(piece=pad, type=_Piece.CONTROL))
    taken = {piece.piece for piece in pieces}
    # A second piece for unknown text is not allowed.
    rest = [
        piece
        for piece in proto.pieces
        if piece.piece not in taken and piece.type != _Piece.UNKNOWN
    ]
    del proto.pieces[:]
    proto.pieces.extend(pieces + rest)
    spec.vocab_size = len(order)
    spec.pad_id, spec.eos_id, spec.bos_id = PAD, EOS, -1
    spec.unk_id = order.index(tokens.index(special.unknown))
    spec.pad_piece, spec.eos_piece = pad, special.eos
    spec.unk_piece = special.unknown
    codes = set(filter(_CODE.fullmatch, tokens)) - known.keys()
    if reads_codes or codes:  # a code that is a piece is read as such
        spec.control_symbols.append(CODE)
    return MappedModel(proto.SerializeToString(deterministic=True), order)


def vocabulary_type(model: bytes, size: int) -> str:
    """Return the name in registry.vocabularies of a model of our ids.

    Args:
        model: serialized SentencePiece model.
        size: V, the number of its ids.

    Raises:
        UserError: it is not a model of a known algorithm.
    """
    proto = _parse(model)
    is_mapped = size != len(proto.pieces) or not any(
        piece.type == _Piece.BYTE for piece in proto.pieces
    )
    if is_mapped:
        return "mapped_sentence_piece"
    algorithm = algorithm_of(proto.trainer_spec)
    if algorithm not in _ALGORITHMS:
        raise errors.UserError(
            f"A SentencePiece model of the type {algorithm} is none of "
            f"{', '.join(_ALGORITHMS)}."
        )
    return algorithm


def _refuse_characters(tokens, known):
    """Refuse characters of the list that the model lacks.

    With byte pairs or bytes, releases of SentencePiece differ in whether a
    character is read as an unused piece.
    """
    others = [t for t in tokens if len(t) == 1 and t not in known]
    if others:
        raise errors.UserError(
            "The vocabulary has characters that the SentencePiece model, of "
            "byte pairs or with bytes, lacks: "
            f"{' '.join(others[:10])}. Only a unigram model may lack them."
        )


def keep_ids(model: bytes) -> MappedModel:
    """Call map_ids() for a program that has the ids of the model itself.

    Args:
        model: serialized SentencePiece model.

    Raises:
        UserError: the model lacks what it must have.
    """
    proto = _parse(model)
    kinds = {piece.piece: piece.type for piece in proto.pieces}
    eos = proto.trainer_spec.eos_piece
    unknown = [name for name in kinds if kinds[name] == _Piece.UNKNOWN]
    if kinds.get(eos) != _Piece.CONTROL or len(unknown) != 1:
        raise errors.UserError(
            "The SentencePiece model must have a piece for EOS and one for "
            f"unknown text; it has {len(unknown)} for unknown text, and "
            f"{eos!r} is {'one' if eos in kinds else 'none'} of its "
            f"{len(kinds):,} pieces."
        )
    return map_ids(model, list(kinds), Special(eos, unknown[0]))


def _piece(token, known, special):
    """Return the piece of a token of the list."""
    if token == special.eos:
        return _Piece(piece=token, type=_Piece.CONTROL)
    if token == special.unknown:
        return _Piece(piece=token, type=_Piece.UNKNOWN)
    if token in known:
        piece = _Piece()
        piece.CopyFrom(known[token])
        if piece.type == _Piece.UNKNOWN:
            piece.type = _Piece.CONTROL
        return piece
    # Never read from text, but an output may have it.
    return _Piece(piece=token, type=_Piece.UNUSED, score=_UNUSED_SCORE)


def _parse(model):
    try:
        proto = _Proto.FromString(model)
    except Exception as error:  # DecodeError, of a private module
        raise errors.UserError(
            f"This is not a SentencePiece model ({len(model)} bytes): {error}."
        ) from error
    if not proto.pieces:
        raise errors.UserError(
            f"This is not a SentencePiece model ({len(model)} bytes)."
        )
    return proto
