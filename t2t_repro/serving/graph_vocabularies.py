"""Vocabularies and tags of languages in an exported graph."""

import importlib
import sys
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text

from t2t_repro import errors
from t2t_repro.text import byte_pair_encoding, languages, t2t_subwords
from t2t_repro.text.byte_pair_encoding import ByteLevel
from t2t_repro.text.sentence_piece import (
    CODE,
    SPACE,
    MappedSentencePiece,
    MultilingualPieces,
    SentencePiece,
)
from t2t_repro.text.vocabulary import PAD, Vocabulary, WhitespaceTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

# Python's spaces, in RE2's syntax.
_SPACES = r"[\s\pZ\x0b\x1c-\x1f\x{85}]"
# A tag of the target alone, with the groups of DIRECTED.
_TAGGED = rf"(?s)^{_SPACES}*<()2([\pL\pN_]+)>(?:{_SPACES}+(.*))?$"
_BLANK = f"{_SPACES}*"


def is_blank(lines: tf.Tensor) -> tf.Tensor:
    """Return which lines [B] have only spaces, bool [B]."""
    return tf.strings.regex_full_match(lines, _BLANK)


class GraphVocabulary(tf.Module):
    """Base class of vocabularies in a graph; Vocabulary.graph_class names one.

    Its results equal those of the Vocabulary that it is built from. Attributes
    hold its tables and variables, so that a SavedModel contains them.
    """

    def __init__(self, vocabulary: Vocabulary):
        """Build what the graph needs of a vocabulary."""
        super().__init__()

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Convert strings [B] to ragged ids [B, None] int32, without EOS."""
        raise self._lacks("encode")

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Convert ragged ids [N, None], without PAD and EOS, to strings [N]."""
        raise self._lacks("decode")

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Convert ids [B, L] to strings [B, L], PAD and EOS included."""
        raise self._lacks("pieces")

    def _lacks(self, name):
        return errors.UserError(
            f"{type(self).__name__} has no {name}: "
            "serving/graph_vocabularies.py lists the methods of a vocabulary "
            "in a graph."
        )


def build(vocabularies: Vocabularies) -> Sequence[GraphVocabulary]:
    """Build the graph's vocabularies of source and target.

    Raises:
        UserError: names a vocabulary that has no form in a graph.
    """
    if vocabularies.is_shared:
        return [_build(vocabularies.source)] * 2
    return [_build(vocabulary) for vocabulary in vocabularies]


def _build(vocabulary):
    name = type(vocabulary).__name__
    if not vocabulary.graph_class:
        raise errors.UserError(
            f"The vocabulary {name} has no graph_class, and without it no "
            "SavedModel can read text. Translate with decoder, or give "
            f"{name} one: serving/graph_vocabularies.py lists its methods."
        )
    module, _, class_name = vocabulary.graph_class.rpartition(".")
    graph_class = getattr(importlib.import_module(module), class_name)
    if not issubclass(graph_class, GraphVocabulary):
        raise errors.UserError(
            f"graph_class of the vocabulary {name} must be a subclass of "
            "t2t_repro.serving.graph_vocabularies.GraphVocabulary; got "
            f"{vocabulary.graph_class!r}."
        )
    return graph_class(vocabulary)


# SentencePiece vocabularies in a graph: operations of TF Text.

_PERIOD = "<0x2E>"  # the piece of a byte


class SentencePieceGraph(GraphVocabulary):
    """A SentencePiece model, which TF Text's operations read."""

    out_type = tf.int32  # of the segmentation: ids

    def __init__(self, vocabulary: SentencePiece):
        super().__init__(vocabulary)
        # A loaded graph finds the model by the name of the operation that
        # created it: under TF Text's default name, a second vocabulary would
        # be the first one.
        self.tokenizer = tensorflow_text.SentencepieceTokenizer(
            vocabulary.model,
            out_type=self.out_type,
            name=f"vocabulary_{vocabulary.sha256}",
        )
        self._guard = None
        if vocabulary.drops_one_space:
            pieces = vocabulary.pieces(range(vocabulary.num_pieces))
            self._guard = pieces.index(_PERIOD) if _PERIOD in pieces else None

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        return self.tokenizer.tokenize(lines)

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        if self._guard is None:
            return self.tokenizer.detokenize(ids)
        # TF Text drops all spaces that begin a text. They are behind a period,
        # which is removed with the one that SentencePiece drops. (For tf.concat
        # of integers of ragged tensors, oneDNN would log an error.)
        rows, count = ids.value_rowids(), ids.nrows()
        guards = tf.fill([tf.size(rows, rows.dtype) + count], self._guard)
        places = tf.range(tf.size(rows, rows.dtype)) + rows + 1
        guarded = tf.RaggedTensor.from_row_lengths(
            tf.tensor_scatter_nd_update(guards, places[:, None], ids.values),
            ids.row_lengths() + 1,
        )
        texts = self.tokenizer.detokenize(guarded)
        padded = tf.concat([ids.values, [PAD]], axis=0)  # of an empty last row
        first = self.pieces(tf.gather(padded, ids.row_starts()))
        return tf.where(
            tf.strings.regex_full_match(first, f"{SPACE}.*"),
            tf.strings.regex_replace(texts, r"\A\. ?", ""),
            tf.strings.substr(texts, 1, -1),
        )

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        return self.tokenizer.id_to_string(ids)


class MappedPieceGraph(SentencePieceGraph):
    """A MappedSentencePiece: ids of pieces by their text."""

    out_type = tf.string

    def __init__(self, vocabulary: MappedSentencePiece):
        super().__init__(vocabulary)
        self._size, self._unknown = vocabulary.size, vocabulary.unknown
        self._reads_codes = vocabulary.reads_codes
        self._is_unread = None
        if vocabulary.unread:
            ids = range(vocabulary.num_pieces)
            self._is_unread = tf.constant([i in vocabulary.unread for i in ids])

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        segment = self._with_codes if self._reads_codes else self._segment
        pieces = segment(lines)
        ids = self.tokenizer.string_to_id(pieces.flat_values)
        known = tf.where(ids < self._size, ids, self._unknown)
        return pieces.with_flat_values(known)

    def _segment(self, lines):
        """Return pieces, of which runs of unknown text are one."""
        pieces = super().encode(lines)
        if self._is_unread is None:
            return pieces
        texts, rows = pieces.flat_values, pieces.value_rowids()
        ids = self.tokenizer.string_to_id(texts)
        is_unread = tf.gather(self._is_unread, ids)
        joins = is_unread[1:] & is_unread[:-1] & (rows[1:] == rows[:-1])
        begins = tf.concat([tf.ones_like(is_unread[:1]), ~joins], axis=0)
        runs = tf.RaggedTensor.from_value_rowids(
            texts, tf.cumsum(tf.cast(begins, tf.int64)) - 1
        )
        return tf.RaggedTensor.from_value_rowids(
            tf.strings.reduce_join(runs, axis=1),
            tf.boolean_mask(rows, begins),
            pieces.nrows(),
        )

    def _with_codes(self, lines):
        """Return pieces: the code at the beginning of a line, then its text."""
        texts = tf.strings.regex_replace(lines, CODE, "", replace_global=False)
        has_code = tf.not_equal(lines, texts)
        ends = tf.strings.length(lines) - tf.strings.length(texts)
        codes = tf.boolean_mask(
            tf.strings.substr(lines, 0 * ends, ends), has_code
        )
        return tf.concat(
            [
                tf.RaggedTensor.from_row_lengths(
                    codes, tf.cast(has_code, tf.int64)
                ),
                self._segment(texts),
            ],
            axis=1,
        )


class MultilingualGraph(MappedPieceGraph):
    """A MultilingualPieces: the tokens of a tag's languages, then the text."""

    def __init__(self, vocabulary: MultilingualPieces):
        super().__init__(vocabulary)
        self._languages = tf.constant(sorted(vocabulary.tag_ids))

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        names = tf.stack(
            [
                tf.strings.regex_replace(lines, languages.DIRECTED, rf"<2\{i}>")
                for i in (2, 1)
            ],
            axis=1,
        )  # [B, 2], of the target first
        ids = self.tokenizer.string_to_id(names)
        is_known = tf.reduce_any(ids[..., None] == self._languages, axis=-1)
        has_tag = tf.reduce_all(is_known, axis=-1)
        texts = tf.strings.regex_replace(lines, languages.DIRECTED, r"\3")
        texts = super().encode(tf.where(has_tag, texts, lines))
        tags = tf.RaggedTensor.from_row_lengths(
            tf.reshape(tf.boolean_mask(ids, has_tag), [-1]),
            2 * tf.cast(has_tag, tf.int64),
        )
        return tf.concat([tags, texts], axis=1)


_BETWEEN = b"\xff"  # words; no part of UTF-8


class ByteLevelGraph(SentencePieceGraph):
    """The ByteLevel, for lines that are valid UTF-8."""

    def __init__(self, vocabulary: ByteLevel):
        super().__init__(vocabulary)
        characters = byte_pair_encoding.byte_characters()
        self._characters = tf.constant([*map(ord, characters)])
        bytes_of = {ord(char): byte for byte, char in enumerate(characters)}
        self._bytes = tf.constant(
            [bytes([bytes_of.get(i, 0)]) for i in range(max(bytes_of) + 1)]
        )
        self._before = tf.constant(vocabulary.before, tf.int32)
        self._special = tf.constant(sorted(vocabulary.special))

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        space = byte_pair_encoding.SPACES
        marked = tf.strings.regex_replace(
            lines, f"([{space}]+)([{space}][^{space}])", rb"\1%b\2" % _BETWEEN
        )
        marked = tf.strings.regex_replace(
            marked,
            f"({byte_pair_encoding.byte_level_words()})",
            rb"\1%b" % _BETWEEN,
        )
        words = tf.strings.split(marked, _BETWEEN)
        words = tf.ragged.boolean_mask(words, words != "")
        codes = tf.strings.unicode_decode(words.flat_values, "ISO-8859-1")
        texts = tf.strings.unicode_encode(
            tf.gather(self._characters, codes), "UTF-8"
        )
        nested = words.with_flat_values(self.tokenizer.tokenize(texts))
        count = tf.where(lines == "", 0, tf.size(self._before))
        before = tf.tile(self._before[None], (tf.size(lines), 1))
        before = tf.RaggedTensor.from_tensor(before, count)
        return tf.concat([before, nested.merge_dims(1, 2)], axis=1)

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        is_text = tf.reduce_all(ids.flat_values[:, None] != self._special, 1)
        ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(is_text))
        text = tf.strings.reduce_join(self.pieces(ids), axis=1)
        codes = tf.strings.unicode_decode(text, "UTF-8")
        text = tf.strings.reduce_join(tf.gather(self._bytes, codes), axis=1)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")


# tensor2tensor's subwords in a graph.
#
# The longest subword first is the rule of TF Text's WordpieceTokenizer, here
# without its sign of a continuation.

_MAX_BYTES = 2**31 - 1  # of a word
_ESCAPED = r"\\u|\\\\|\\[0-9]+;"
_NO_CHARACTER = 0x3013
_MAX_DIGITS = 7  # of a code point
_SPACE, _BACKSLASH, _UNDERSCORE = map(ord, " \\_")


class T2TSubwordsGraph(GraphVocabulary):
    """The T2TSubwords, for lines that are valid UTF-8."""

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        pieces = vocabulary.pieces(range(vocabulary.size))
        self._pieces = tf.constant(pieces)
        ids = {piece: i for i, piece in enumerate(pieces) if piece}
        entries = tf.lookup.KeyValueTensorInitializer(
            tf.constant(list(ids)), tf.constant(list(ids.values()), tf.int64)
        )
        self._table = tf.lookup.StaticHashTable(entries, -1)
        self._tokenizer = tensorflow_text.WordpieceTokenizer(
            self._table,
            suffix_indicator="",
            max_bytes_per_word=_MAX_BYTES,
            max_chars_per_token=max(map(len, ids)),
        )
        alphabet = t2t_subwords.alphabet(ids)
        self._alphabet = tf.constant(sorted(map(ord, alphabet)))
        self._ranges = tf.constant(t2t_subwords.alphanumeric_ranges())
        spaces = "".join(
            f"\\x{{{code:x}}}"
            for code in range(sys.maxunicode + 1)
            if chr(code).isspace()
        )
        self._around = rf"\A[{spaces}]+|[{spaces}]+\z"

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        lines = tf.strings.regex_replace(lines, self._around, "")
        codes = tf.strings.unicode_decode(lines, "UTF-8")
        rows, codes = codes.value_rowids(), codes.flat_values
        changes = self._changes(rows, self._is_alphanumeric(codes))
        words = tf.RaggedTensor.from_value_rowids(
            self._escape(codes), tf.cumsum(tf.cast(changes, tf.int64)) - 1
        )
        is_space = tf.boolean_mask(codes, changes) == _SPACE
        is_word = (words.row_lengths() > 1) | ~is_space
        escaped = tf.strings.reduce_join(words, axis=1) + "_"
        ids = self._tokenizer.tokenize(tf.boolean_mask(escaped, is_word))
        row_of_word = tf.boolean_mask(tf.boolean_mask(rows, changes), is_word)
        nested = tf.RaggedTensor.from_value_rowids(
            ids, row_of_word, tf.size(lines, tf.int64)
        )
        return tf.cast(nested.merge_dims(1, 2), tf.int32)

    def _is_alphanumeric(self, codes):
        return tf.searchsorted(self._ranges, codes, side="right") % 2 == 1

    @staticmethod
    def _changes(rows: tf.Tensor, kinds: tf.Tensor) -> tf.Tensor:
        """Return where a word begins, bool [N]."""
        differs = (rows[1:] != rows[:-1]) | (kinds[1:] != kinds[:-1])
        return tf.concat([tf.ones_like(kinds[:1]), differs], axis=0)

    def _escape(self, codes):
        """Return characters [N] as they are written within a word."""
        indices = tf.searchsorted(self._alphabet, codes)
        indices = tf.minimum(indices, tf.size(self._alphabet) - 1)
        is_known = tf.gather(self._alphabet, indices) == codes
        is_known &= codes != ord("\n")
        escaped = tf.where(
            is_known,
            tf.strings.unicode_encode(codes[:, None], "UTF-8"),
            tf.strings.join(["\\", tf.strings.as_string(codes), ";"]),
        )
        escaped = tf.where(codes == _BACKSLASH, "\\\\", escaped)
        return tf.where(codes == _UNDERSCORE, "\\u", escaped)

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        joined = tf.strings.reduce_join(tf.gather(self._pieces, ids), axis=1)
        words = tf.strings.split(joined, sep="_")
        words = tf.ragged.boolean_mask(words, words != "")
        rows, texts = words.value_rowids(), self._unescape(words.flat_values)
        first = tf.strings.unicode_decode(texts, "UTF-8")[:, :1].flat_values
        kinds = self._is_alphanumeric(first)
        is_apart = (rows[1:] == rows[:-1]) & kinds[1:] & kinds[:-1]
        is_apart = tf.concat([tf.zeros_like(kinds[:1]), is_apart], axis=0)
        texts = tf.strings.join([tf.where(is_apart, " ", ""), texts])
        lines = tf.RaggedTensor.from_value_rowids(texts, rows, words.nrows())
        return tf.strings.reduce_join(lines, axis=1)

    @staticmethod
    def _unescape(words: tf.Tensor) -> tf.Tensor:
        """Return words [N] without escapes."""
        parts = tensorflow_text.regex_split(words, _ESCAPED, _ESCAPED)
        flat = parts.flat_values
        is_number = tf.strings.regex_full_match(flat, r"\\[0-9]+;")
        digits = tf.strings.regex_replace(flat, r"\A\\0*([0-9]+);\z", r"\1")
        is_number_short = is_number & (tf.strings.length(digits) <= _MAX_DIGITS)
        codes = tf.strings.to_number(
            tf.where(is_number_short, digits, "9999999"), tf.int32
        )
        is_surrogate = (codes >= 0xD800) & (codes < 0xE000)
        is_character = (codes <= sys.maxunicode) & ~is_surrogate
        codes = tf.where(is_character, codes, _NO_CHARACTER)
        characters = tf.strings.unicode_encode(codes[:, None], "UTF-8")
        flat = tf.where(is_number, characters, flat)
        flat = tf.where(parts.flat_values == "\\u", "_", flat)
        flat = tf.where(parts.flat_values == "\\\\", "\\", flat)
        return tf.strings.reduce_join(parts.with_flat_values(flat), axis=1)

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._pieces, ids)


# WhitespaceTokens in a graph: a split and a hash table.


class TokenTable(GraphVocabulary):
    """Table from tokens to ids, and back."""

    def __init__(self, vocabulary: WhitespaceTokens):
        super().__init__(vocabulary)
        self._tokens = tf.constant(vocabulary.pieces(range(vocabulary.size)))
        ids = vocabulary.text_ids
        entries = tf.lookup.KeyValueTensorInitializer(
            tf.constant(list(ids)), tf.constant(list(ids.values()), tf.int32)
        )
        self._table = tf.lookup.StaticHashTable(entries, vocabulary.unknown)

    def encode(self, lines: tf.Tensor) -> tf.RaggedTensor:
        tokens = tf.strings.split(lines)
        return tokens.with_flat_values(self._table[tokens.flat_values])

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        tokens = tf.gather(self._tokens, ids)
        return tf.strings.reduce_join(tokens, axis=1, separator=" ")

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._tokens, ids)


class GraphTagger:
    """A tagger of languages.py for tensors: it adds tags to lines, or checks.

    Lines may also be given their languages beside the text, one for each.
    """

    def __init__(self, tagger: languages.Tagger):
        source, _, target = tagger.language.rpartition("-")
        self._defaults = [target]
        self._pattern = _TAGGED
        if tagger.source is not None:
            self._defaults.append(source or tagger.source)
            self._pattern = languages.DIRECTED
        self._known = tagger.languages
        self.names = [languages.TARGET, languages.SOURCE][: len(self._defaults)]

    def __call__(self, lines: tf.Tensor, *languages: tf.Tensor) -> tf.Tensor:
        """Return lines [B] with tags; blank ones without a text.

        Args:
            lines: strings [B].
            *languages: strings [B] for each of `names`; "": that of the tag,
                or else the default.

        Raises:
            InvalidArgumentError: a language is missing, or the model does not
                know it.
        """
        # A pattern matches no line with bytes that are not UTF-8.
        lines = tf.strings.unicode_transcode(lines, "UTF-8", "UTF-8")
        if not languages:
            languages = tuple(tf.fill(tf.shape(lines), "") for _ in self.names)
        chosen = [
            tf.where(given == "", default, given)
            for given, default in zip(languages, self._defaults, strict=True)
        ]
        has_tag = tf.strings.regex_full_match(lines, self._pattern)
        own = [self._group(lines, i) for i in (2, 1)][: len(chosen)]
        # With a target, an unknown tag is text, as in "<2nd> place".
        is_known = tf.reduce_all(
            [self._is_known(each) | (each == "") for each in own], axis=0
        )
        has_tag &= is_known | (chosen[0] == "")
        texts = tf.where(has_tag, self._group(lines, 3), lines)
        blank = is_blank(texts)
        codes = [
            tf.where(has_tag & (tag != ""), tag, other)
            for tag, other in zip(own, chosen, strict=True)
        ]
        checks = [
            self._require_known(name, code, blank)
            for name, code in zip(self.names, codes, strict=True)
        ]
        source = codes[1] if len(codes) > 1 else ""
        with tf.control_dependencies(checks):
            tagged = tf.strings.join(["<", source, "2", codes[0], "> ", texts])
            return tf.where(blank, "", tagged)

    def _group(self, lines, number):
        """Return a group of the pattern in lines [B] that match it."""
        return tf.strings.regex_replace(lines, self._pattern, rf"\{number}")

    def _is_known(self, codes):
        return tf.reduce_any(codes[:, None] == tf.constant(self._known), axis=1)

    def _require_known(self, name, codes, is_blank):
        is_wrong = ~(self._is_known(codes) | is_blank)
        return tf.debugging.Assert(
            ~tf.reduce_any(is_wrong),
            [
                f"The {name} of a sentence, in a tag or an input of its own, "
                "must be one that the model knows; got",
                tf.boolean_mask(codes, is_wrong),
            ],
        )
