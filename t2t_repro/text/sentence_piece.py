"""SentencePiece's vocabularies: byte pairs, the unigram model, characters.

Byte fallback spells any text that a learned vocabulary lacks, so no text is
unknown. SentencePiece requires an id for unknown text nevertheless: 2.

Its default rule, nmt_nfkc, normalizes text: "½" becomes "1⁄2", "…" becomes
"...", "，" becomes ",", and every space, and characters without width, become
U+0020. The rule nfkc keeps characters without width, and identity keeps all.
With these rules, repeated spaces and those at the ends are removed. A fourth,
VERBATIM, is ours: all characters and spaces stay, also tabs in translations.
Only U+2581, with which SentencePiece marks spaces, becomes one.

Marian, Hugging Face, fairseq and others segment text by SentencePiece, and
number the pieces by a list of their own. map_ids() writes that list into the
model, so that its pieces have our ids: PAD, EOS, then the others in the
list's order. The number of ids is V, the model's trainer_spec.vocab_size.
Pieces of the model that the list lacks come after them. They take part in the
segmentation as before, and become unknown. Text that is unknown to the model
may still be a token of the list: "z", of a list for both languages, if no other
unknown character is beside it.
"""

import functools
import io
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from t2t_repro import errors
from t2t_repro.text import languages, vocabulary
from t2t_repro.text.vocabulary import EOS, PAD, SpecialTokens, Vocabulary

SPACE = "\u2581"  # the sign of a space, which begins a word
CODE = r"(?s)^>>.*?<<"  # of a language; also in the syntax of RE2
_CODE = re.compile(CODE)
LANGUAGE = re.compile(r"<2([A-Za-z_]+)>")  # name of a language's token
_SENTINEL = re.compile("<extra_id_[0-9]+>")  # T5's, which is a word of a text
_Proto = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]
_Piece = _Proto.SentencePiece
VERBATIM = "verbatim"
_UNKNOWN = 2
_UNUSED_SCORE = -1e9  # merged last, if ever
_ALGORITHMS = ("unigram", "bpe", "char")  # names in registry.vocabularies, too
_LEARN_IT = (
    "Learn it with --byte_fallback=true --pad_id=0 --eos_id=1 --unk_id=2 "
    "--bos_id=-1."
)


class SentencePiece(Vocabulary):
    """A vocabulary of one of SentencePiece's algorithms."""

    algorithm = ""  # SentencePiece's model_type; "": any
    graph_class = "t2t_repro.serving.graph_vocabularies.SentencePieceGraph"
    learns_tags = True
    normalizations: tuple[str, ...] = (
        "nmt_nfkc",
        "nfkc",
        "identity",
        VERBATIM,
    )
    max_line_length = 4192  # bytes, SentencePiece's max_sentence_length
    needs_bytes = True  # so that no text is unknown

    def __init__(self, model: bytes):
        """Parse a serialized SentencePiece model.

        Raises:
            UserError: `model` is not a model, PAD and EOS are not 0 and 1, it
                has no pieces for bytes, or another algorithm.
        """
        super().__init__(model)
        trainer_spec = _parse(model).trainer_spec
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        # ValueError: the message about a damaged model may not be UTF-8.
        except (RuntimeError, ValueError) as error:
            raise _no_model(model, error) from error
        special = (self._processor.pad_id(), self._processor.eos_id())
        if special != (PAD, EOS):
            raise errors.UserError(
                f"A vocabulary must have PAD {PAD} and EOS {EOS}; got "
                f"{special[0]} and {special[1]}. {_LEARN_IT}"
            )
        pieces = range(self.num_pieces)
        if self.needs_bytes and not any(map(self._processor.IsByte, pieces)):
            raise errors.UserError(
                "A vocabulary must have pieces for bytes, to spell text that "
                f"no other piece spells; none of these {len(pieces):,} is one. "
                f"{_LEARN_IT}"
            )
        # Sampling would take its scores for those of this algorithm.
        found = _algorithm_of(trainer_spec)
        if self.algorithm and found != self.algorithm:
            raise errors.UserError(
                f"This SentencePiece model has the type {found} and not "
                f"{self.algorithm}. Say --problem_args=vocabulary_type={found}."
            )

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        split_by_unicode_script: bool = True,
        tags: Sequence[str] = (),
        normalization: str = normalizations[0],
    ) -> "SentencePiece":
        """Learn a vocabulary of `vocab_size` ids; Characters may need fewer.

        Tags are user-defined pieces with the space before them, so that a tag
        at the beginning of a line is its first and only piece.
        """
        model = io.BytesIO()
        verbatim = normalization == VERBATIM
        try:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type=cls.algorithm,
                vocab_size=vocab_size,
                pad_id=PAD,
                eos_id=EOS,
                unk_id=_UNKNOWN,
                bos_id=-1,
                byte_fallback=True,
                split_by_unicode_script=split_by_unicode_script,
                normalization_rule_name="identity"
                if verbatim
                else normalization,
                remove_extra_whitespaces=not verbatim,
                allow_whitespace_only_pieces=verbatim,  # as of indentation
                user_defined_symbols=[SPACE + tag for tag in tags],
                max_sentence_length=cls.max_line_length,
                minloglevel=2,  # errors only: progress goes to stderr
            )
        except (RuntimeError, ValueError) as error:  # ValueError: not 32 bits
            raise errors.UserError(
                f"Cannot learn a vocabulary of {vocab_size} subwords from this "
                f"text: {_reason(error)}. (Of --problem_args=vocab_size=… or "
                "source_vocab_size=…, 256 are bytes, 3 are special, and one is "
                "needed for each character of the text. Most of the others are "
                "pieces that the text repeats.)"
            ) from error
        return cls(model.getvalue())

    @property
    def num_pieces(self) -> int:
        """Number of pieces of the SentencePiece model."""
        return self._processor.GetPieceSize()

    @property
    def size(self) -> int:
        return self.num_pieces

    @property
    def unknown(self) -> int:  # type: ignore[override]
        return self._processor.unk_id()

    @functools.cached_property
    def spaces(self) -> Mapping[int, str]:  # type: ignore[override]
        spec = _Proto.FromString(self.model).normalizer_spec
        if spec.name == "identity" and not spec.remove_extra_whitespaces:
            return vocabulary.LINE_ENDS
        return super().spaces

    @property
    def drops_one_space(self) -> bool:
        """True if text lacks the first space of its pieces, and no other."""
        spec = _Proto.FromString(self.model).normalizer_spec
        return spec.add_dummy_prefix and not spec.remove_extra_whitespaces

    @functools.cached_property
    def tags(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(
            name.removeprefix(SPACE)
            for name in self._words
            if name.startswith(SPACE)
        )

    @property
    def _words(self):
        """Pieces that are read whole, user-defined ones."""
        return [
            piece.piece
            for piece in _Proto.FromString(self.model).pieces
            if piece.type == _Piece.USER_DEFINED
        ]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return self._processor.Encode(list(lines), add_eos=True, num_threads=1)

    def join(self, rows: list[list[int]]) -> list[str]:
        return self._processor.Decode(rows) if rows else []  # Decode([]): ""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._processor.IdToPiece(list(ids))

    def scored_pieces(self) -> dict[int, tuple[str, float]]:
        pieces = _Proto.FromString(self.model).pieces
        return {
            i: (piece.piece, piece.score)
            for i, piece in enumerate(pieces)
            if piece.type == _Piece.NORMAL
        }


class Bpe(SentencePiece):
    """Byte pair encoding: pieces that merge the most frequent pairs."""

    algorithm = "bpe"
    sampling_hparam = "bpe_dropout"


class Unigram(SentencePiece):
    """Unigram model: pieces that maximize the likelihood of the text."""

    algorithm = "unigram"
    sampling_hparam = "unigram_alpha"


class Characters(SentencePiece):
    """The most frequent characters of the text, at most vocab_size ids.

    Rare characters, 0.05% of the text, are spelled as bytes.
    """

    algorithm = "char"


class MappedSentencePiece(vocabulary.Imported, SentencePiece):
    """SentencePiece model with another program's ids; the importer makes it.

    The source of a multilingual model begins with the code of its target
    language, as in ">>fra<< A dog". The code is a token of the list, which the
    model does not read: it segments the text after the code (MarianTokenizer
    of transformers). Elsewhere, a code is text.
    """

    graph_class = "t2t_repro.serving.graph_vocabularies.MappedPieceGraph"
    needs_bytes = False
    learns_tags = False
    normalizations = ()

    def __init__(self, model: bytes):
        super().__init__(model)
        spec = _Proto.FromString(model).trainer_spec
        self._size = spec.vocab_size
        # Before map_ids() wrote it, codes were user-defined pieces.
        self.reads_codes = CODE in spec.control_symbols
        if not self.unknown < self._size <= self.num_pieces:
            raise errors.UserError(
                f"Its trainer_spec.vocab_size is {self._size:,}, which must be "
                f"above the id of unknown text, {self.unknown:,}, and at most "
                f"the number of pieces, {self.num_pieces:,}."
            )

    @property
    def size(self) -> int:
        return self._size

    @functools.cached_property
    def tags(self) -> frozenset[str]:  # type: ignore[override]
        if not self.reads_codes:
            words = (name.removeprefix(SPACE) for name in self._words)
            tags = super().tags | set(filter(LANGUAGE.fullmatch, words))
            return frozenset(t for t in tags if not _SENTINEL.fullmatch(t))
        names = self.pieces(range(self._size))
        return frozenset(name for name in names if _CODE.fullmatch(name))

    @functools.cached_property
    def unread(self) -> frozenset[int]:
        """Ids of text that is unknown to the model; a run of them is one piece.

        SentencePiece joins unknown characters, but TF Text and some of its
        releases leave apart those that the list has, if the model is of byte
        pairs. Empty where the list has none.
        """
        algorithm = _algorithm_of(_Proto.FromString(self.model).trainer_spec)
        ids = {*filter(self._processor.IsUnused, range(self.num_pieces))}
        has_characters = any(len(piece) == 1 for piece in self.pieces([*ids]))
        if algorithm == "unigram" or not has_characters:
            return frozenset()
        return frozenset({*ids, self.unknown})

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
            for (code, _), row in zip(parts, map(self._join, rows), strict=True)
        ]

    def _join(self, row):
        """Return pieces, of which runs of unknown text are one."""
        if not self.unread:
            return row
        runs = itertools.groupby(
            row, lambda piece: self._processor.PieceToId(piece) in self.unread
        )
        joined = []
        for is_unread, run in runs:
            joined += ["".join(run)] if is_unread else run
        return joined

    def _split_code(self, line):
        """Split a line into a code, known or not, and the text after it."""
        code = _CODE.match(line) if self.reads_codes else None
        return (code[0], line[code.end() :]) if code else ("", line)


class MultilingualPieces(MappedSentencePiece):
    """MappedSentencePiece with a token of each language: M2M-100's, NLLB's.

    The tag of a source, <en2de>, becomes two tokens, <2de> and <2en>. The first
    one is not read, but begins the output; the second begins the source.
    """

    graph_class = "t2t_repro.serving.graph_vocabularies.MultilingualGraph"
    leads_outputs = True

    @functools.cached_property
    def languages(self) -> dict[str, int]:
        """Ids of the languages' tokens."""
        names = enumerate(self.pieces(range(self._size)))
        return {
            match[1]: i
            for i, name in names
            if (match := LANGUAGE.fullmatch(name))
            and self._processor.IsControl(i)
        }

    @functools.cached_property
    def tags(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(map(languages.tag_of, self.languages))

    @functools.cached_property
    def tag_ids(self) -> frozenset[int]:  # type: ignore[override]
        return frozenset(self.languages.values())

    def split_tag(self, line: str) -> tuple[str, str]:
        direction, text = self._split_direction(line)
        tag = languages.tag_of("-".join(direction)) if direction else ""
        return tag, text

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        parts = [self._split_direction(line) for line in lines]
        rows = super().encode([text for _, text in parts])
        return [
            [self.languages[code] for code in reversed(direction)] + row
            for (direction, _), row in zip(parts, rows, strict=True)
        ]

    def _split_direction(self, line):
        """Split a line into two known languages, or none, and its text."""
        direction, text = languages.split_direction(line)
        if not all(code in self.languages for code in direction):
            return (), line
        return direction, text


class MappedModel(NamedTuple):
    """SentencePiece model with new ids, and what they were."""

    model: bytes
    order: list[int]  # the program's id of each of our V ids; -1: none


def map_ids(
    model: bytes,
    tokens: Sequence[str],
    special: SpecialTokens,
    reads_codes: bool = False,
    control: Collection[str] = (),
    words: Collection[str] = (),
) -> MappedModel:
    """Give the pieces of a SentencePiece model the ids of a list.

    Args:
        model: serialized SentencePiece model.
        tokens: the list; a token's place is its id.
        special: names of special tokens in it.
        reads_codes: whether the program reads the code of a language at the
            beginning of a line even where the list has none. It is then
            unknown, and otherwise text.
        control: tokens that neither are read from text nor become text.
        words: tokens that are read whole, also if the model lacks them.

    Raises:
        UserError: the model or the list lacks what it must have.
    """
    proto = _parse(model)
    order = vocabulary.order_tokens(tokens, special)
    known = {piece.piece: piece for piece in proto.pieces}
    spec = proto.trainer_spec
    if spec.byte_fallback:
        _refuse_characters(tokens, {*known, *control})
    pieces = [_piece(tokens[i], known, special, control) for i in order[1:]]
    for piece in pieces:
        if piece.piece in words:
            piece.type = _Piece.USER_DEFINED
    pad = vocabulary.name_of_pad(special, {*tokens, *known})
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


def keep_ids(model: bytes) -> MappedModel:
    """Call map_ids() for a program that has the ids of the model itself.

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
    return map_ids(model, list(kinds), SpecialTokens(eos, unknown[0]))


def piece_names(model: bytes) -> list[str]:
    """Return the pieces of a serialized SentencePiece model by their ids.

    Raises:
        UserError: it is none.
    """
    return [piece.piece for piece in _parse(model).pieces]


def indispensable_ids(vocabulary: SentencePiece) -> set[int]:
    """Return the ids without which text might become unknown.

    They are those of single characters, bytes, tags and special pieces.
    """
    pieces = _parse(vocabulary.model).pieces
    texts = _Piece.NORMAL, _Piece.UNUSED
    return {
        i
        for i, piece in enumerate(pieces[: vocabulary.size])
        if piece.type not in texts or len(piece.piece) == 1
    } | vocabulary.tag_ids


def keep_pieces(
    vocabulary: SentencePiece, ids: Sequence[int]
) -> MappedSentencePiece:
    """Return a vocabulary with the pieces of some ids, in ascending order.

    The model keeps the others, as unused: a byte pair is made of what was
    merged before it, and then split again; a unigram is no candidate. So text
    without the others has the pieces of before.
    """
    proto = _parse(vocabulary.model)
    kept, spec = {*ids}, proto.trainer_spec
    others = [i for i in range(len(proto.pieces)) if i not in kept]
    for i in others:
        if i < vocabulary.size:  # else text with it is unknown already
            proto.pieces[i].type = _Piece.UNUSED
    pieces = [proto.pieces[i] for i in (*ids, *others)]
    spec.vocab_size, spec.unk_id = len(ids), ids.index(vocabulary.unknown)
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    kind = MappedSentencePiece
    if isinstance(vocabulary, MappedSentencePiece):
        kind = type(vocabulary)
    return kind(proto.SerializeToString(deterministic=True))


def vocabulary_type(model: bytes, size: int) -> str:
    """Return the name in registry.vocabularies of a model of our ids, V = size.

    Raises:
        UserError: it is not a model of a known algorithm.
    """
    proto = _parse(model)
    is_mapped = size != len(proto.pieces) or not any(
        piece.type == _Piece.BYTE for piece in proto.pieces
    )
    if is_mapped:
        return "mapped_sentence_piece"
    algorithm = _algorithm_of(proto.trainer_spec)
    if algorithm not in _ALGORITHMS:
        raise errors.UserError(
            f"A SentencePiece model of the type {algorithm} is none of "
            f"{', '.join(_ALGORITHMS)}."
        )
    return algorithm


def _algorithm_of(trainer_spec: Any) -> str:
    """Return "bpe", "unigram", "char" or "word" of a model's settings."""
    return trainer_spec.ModelType.Name(trainer_spec.model_type).lower()


def _reason(error: Exception) -> str:
    """Return the reason of "INTERNAL: src/x.cc(744) [(condition)] Reason.".

    It is without advice on options of SentencePiece's own command.
    """
    reason = str(error).rpartition("] ")[2] or str(error)
    reason = reason.partition(" Increase vocab_size or")[0].rstrip(".")
    return "It is empty" if "sentences_.empty()" in reason else reason


def _parse(model):
    try:
        proto = _Proto.FromString(model)
    except Exception as error:  # DecodeError, of a private module
        raise _no_model(model, error) from error
    # Of a damaged file, a piece may be bytes that are not UTF-8.
    names = [piece.piece for piece in proto.pieces]
    if not names or not all(isinstance(name, str) for name in names):
        raise _no_model(model, "it has no pieces of text")
    return proto


def _no_model(model, reason):
    return errors.UserError(
        f"This is not a SentencePiece model ({len(model)} bytes): {reason}."
    )


def _piece(token, known, special, control):
    if token == special.eos or token in control:
        return _Piece(piece=token, type=_Piece.CONTROL)
    if token == special.unknown:
        return _Piece(piece=token, type=_Piece.UNKNOWN)
    if piece := known.get(token):
        if piece.type == _Piece.UNKNOWN:
            piece.type = _Piece.CONTROL
        return piece
    # Never read from text, but an output may have it.
    return _Piece(piece=token, type=_Piece.UNUSED, score=_UNUSED_SCORE)


def _refuse_characters(tokens, known):
    """Refuse characters of the list that a model with bytes lacks.

    Releases of SentencePiece differ in whether such a character is read as an
    unused piece, or as bytes.
    """
    others = [t for t in tokens if len(t) == 1 and t not in known]
    if others:
        raise errors.UserError(
            "The vocabulary has characters that the SentencePiece model "
            f"spells by bytes: {' '.join(others[:10])}. Only a model without "
            "pieces for bytes may lack them."
        )
