"""Phrases that outputs must have: lexical constraints.

A hypothesis needs a number of further subwords until it has all phrases, where
phrases may overlap. A subword after which too few places are left is excluded,
so that an output has all phrases if any output within its limit can. Beams are
shared between hypotheses by this number, so that those with more of the phrases
do not compete with those with fewer: dynamic beam allocation (Post and Vilar
2018), in the vectorized form of Hu et al. (2019).
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import rules
from t2t_repro.text import parallel_files
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary

MAX_PHRASES = 8  # of a sentence: tables have 2^MAX_PHRASES rows
_MANY = 1 << 20


class _State(NamedTuple):
    """Phrases of hypotheses; K of at most S subwords."""

    phrases: tf.Tensor  # [B, W, K, S] int32, PAD after
    begun: tf.Tensor  # [B, W, K, S] bool: the first s + 1 are the last subwords
    met: tf.Tensor  # [B, W, K] bool
    # [B, W, 2^K, K] int32: subwords that are needed if the phrases of a set are
    # met, of the others this one comes first, and nothing of it is there yet.
    table: tf.Tensor
    total: tf.Tensor  # [B, W] int32: subwords needed at the start


class Require(rules.Rule):
    """Each phrase of a file, or of a sentence's side input, in each output."""

    name = "require"
    needs_beams = True

    def __init__(
        self, vocabulary: Vocabulary, file: str = "", side: bool | None = None
    ) -> None:
        """Read the file.

        Args:
            vocabulary: vocabulary of the outputs.
            file: phrases of all sentences, one on each line; empty: none.
            side: whether sentences have phrases as side inputs, separated by
                tabs; None: without a file.

        Raises:
            UserError: neither is named; or the file has no phrases, too many,
                or one with unknown characters.
        """
        self.needs_side = not file if side is None else side
        if not file and not self.needs_side:
            raise errors.UserError(
                "The search rule require has no phrases. Add file=NAME, or "
                "omit side=false."
            )
        self._vocabulary, self._phrases = vocabulary, None
        self._rows: list[list[int]] = []
        if file:
            lines = list(filter(str.strip, parallel_files.read_lines(file)))
            if not 0 < len(lines) <= MAX_PHRASES:
                raise errors.UserError(
                    f"The file {file} of the search rule require must have 1 "
                    f"to {MAX_PHRASES} phrases; got {len(lines)}."
                )
            self._rows = self._encode(lines)
            ragged = tf.ragged.constant(self._rows, tf.int32)
            # An array: an export contains it.
            self._phrases = ragged.to_tensor(PAD).numpy()

    def _encode(self, phrases):
        """Return ids of phrases; refuse unknown characters.

        A phrase is segmented as a line by itself, so it begins with a word.
        """
        rows = [row[:-1] for row in self._vocabulary.encode(phrases)]
        for phrase, row in zip(phrases, rows, strict=True):
            if self._vocabulary.unknown in row:
                raise errors.UserError(
                    f"The search rule require has the phrase {phrase!r}, which "
                    "the vocabulary of the outputs cannot spell. Remove it."
                )
        return rows

    def check(self, side: Sequence[str], limits: Sequence[int]) -> None:
        """Refuse side inputs that cannot be met; warn of those too long.

        Raises:
            UserError: there are too many phrases, or unknown characters.
        """
        for text, limit in zip(side, limits, strict=True):
            fields = text.split("\t") if self.needs_side else []
            if len(self._rows) + len(fields) > MAX_PHRASES:
                raise errors.UserError(
                    f"The search rule require has at most {MAX_PHRASES} phrases"
                    f" of a sentence; got {len(self._rows)} of its file, and "
                    f"{len(fields)} in the side input {text!r:.80}."
                )
            rows = self._rows + self._encode([f for f in fields if f.strip()])
            needed = sum(map(len, rows))
            if needed >= limit:
                warnings.warn(
                    f"The phrases that an output must have are {needed} "
                    f"subwords, and it has at most {limit - 1}: if they do not "
                    "fit, it is as without them. Set a larger extra_length.",
                    stacklevel=2,
                )

    def start(self, sentences: rules.Sentences, num_hypotheses: int) -> Any:
        """Return the state of no subwords."""
        phrases = self._phrases_of(sentences)
        begun, met = _read_each_other(phrases)
        overlaps = _matched(phrases[:, None], begun)  # [B, K, K]
        lengths = tf.reduce_sum(tf.cast(phrases != PAD, tf.int32), -1)
        order = tf.range(tf.shape(phrases)[1])
        # Phrases that are empty, or part of another one, need nothing.
        is_part = met & (order[:, None] != order)
        # Transposed in another dtype, oneDNN would log an error.
        mutual = tf.transpose(tf.cast(met, tf.float32), (0, 2, 1)) > 0
        is_part &= ~mutual | (order[:, None] < order)
        met = tf.reduce_any(is_part, 1) | (lengths == 0)
        table = _table(lengths, overlaps)
        begun = tf.zeros_like(phrases, tf.bool)
        total = _need(table, phrases, begun, met)
        return tf.nest.map_structure(
            lambda x: tf.repeat(x[:, None], num_hypotheses, 1),
            _State(phrases, begun, met, table, total),
        )

    def _phrases_of(self, sentences):
        """Return the phrases [B, K, S] of sentences; the last column is PAD."""
        parts = [sentences.side.phrases] if self.needs_side else []
        if self._phrases is not None:
            batch = tf.shape(sentences.limits)[0]
            parts.append(tf.repeat(self._phrases[None], batch, 0))
        size = tf.reduce_max([tf.shape(part)[2] for part in parts]) + 1
        parts = [
            tf.pad(part, [(0, 0), (0, 0), (0, size - tf.shape(part)[2])])
            for part in parts
        ]
        few = tf.debugging.assert_less_equal(
            sum(tf.shape(part)[1] for part in parts),
            MAX_PHRASES,
            "A sentence has too many phrases for the rule require.",
        )
        with tf.control_dependencies([few]):
            return tf.concat(parts, 1)

    def advance(self, step: rules.SearchStep, state: Any) -> Any:
        begun, met = _read(state.phrases, state.begun, state.met, step.previous)
        return state._replace(begun=begun, met=met)

    def score(
        self, logits: tf.Tensor, step: rules.SearchStep, state: Any
    ) -> tf.Tensor:
        need, left = _need_of(state), _left(step)
        is_bound = _is_bound(need, left)
        subwords = tf.reshape(
            state.phrases, tf.concat([tf.shape(state.met)[:2], [-1]], 0)
        )
        after = _need_after(state, subwords)  # [B, W, K * S]
        no_phrase = _need_of(state._replace(begun=tf.zeros_like(state.begun)))
        others_out = is_bound & (no_phrase > left)
        out = is_bound[..., None] & (after > left[..., None])
        if rules.may_be_greedy(logits, step):
            # Greedy search goes on with a phrase where it would end.
            ends = is_bound & (_beams(step) == 1)
            ends &= tf.argmax(logits, -1, tf.int32) == EOS
            others_out |= ends
            out |= ends[..., None] & (after >= need[..., None])
        values = tf.gather(logits, subwords, batch_dims=2)
        values = tf.where(out, rules.FORBIDDEN, values)
        logits = tf.where(others_out[..., None], rules.FORBIDDEN, logits)
        return rules.scatter(logits, subwords, values)

    def excluded(
        self, step: rules.SearchStep, state: Any
    ) -> Sequence[tf.Tensor]:
        return [tf.where(_is_bound(_need_of(state), _left(step)), EOS, PAD)]

    def wanted(self, step: rules.SearchStep, state: Any) -> tf.Tensor | None:
        matched = _matched(state.phrases, state.begun)
        following = tf.gather(state.phrases, matched, batch_dims=3)
        is_bound = _is_bound(_need_of(state), _left(step))
        return tf.where(is_bound[..., None] & ~state.met, following, PAD)

    def bank(
        self, step: rules.SearchStep, state: Any, subwords: tf.Tensor
    ) -> tf.Tensor | None:
        """Return the need after subwords, in at most as many banks as beams."""
        after = tf.cast(_need_after(state, subwords), tf.float32)
        total, beams = state.total[..., None], _beams(step)[..., None]
        banks = tf.minimum(total, beams - 1)
        share = after / tf.cast(tf.maximum(total, 1), tf.float32)
        bank = 1 + tf.cast(
            tf.math.ceil(share * tf.cast(banks, tf.float32)), tf.int32
        )
        bank = tf.where(subwords == EOS, 0, bank)
        is_free = (state.total == 0) | (_need_of(state) > _left(step) + 1)
        return tf.where(is_free[..., None] | (beams == 1), 0, bank)


def _beams(step):
    """Return the beams of each sentence, [B, 1], or [] of all."""
    settings = step.sentences.settings
    return settings.beam_sizes if settings else tf.shape(step.ids)[1]


def _left(step):
    """Return [B, 1]: how many subwords may follow the next one before EOS."""
    return (step.sentences.limits - step.position - 2)[:, None]


def _is_bound(need, left):
    """Return where phrases are missing and still fit; else all is allowed."""
    return (need > 0) & (need <= left + 1)


def _is_last(phrases):
    """Return where subwords of phrases [..., S] are their last."""
    following = tf.roll(phrases, -1, -1)  # the last column is PAD
    return (phrases != PAD) & (following == PAD)


def _read(phrases, begun, met, subwords):
    """Return begun [..., K, S] and met [..., K] after subwords [...]."""
    before = tf.concat([tf.ones_like(begun[..., :1]), begun[..., :-1]], -1)
    subwords = subwords[..., None, None]
    begun = before & (phrases == subwords) & (subwords != PAD)
    return begun, met | tf.reduce_any(begun & _is_last(phrases), -1)


def _matched(phrases, begun):
    """Return [..., K]: how much of a phrase, but not all, is there last."""
    lengths = tf.range(tf.shape(phrases)[-1]) + 1
    is_partial = begun & ~_is_last(phrases)
    return tf.reduce_max(tf.where(is_partial, lengths, 0), -1)


def _read_each_other(phrases):
    """Return begun [B, K, K, S] and met [B, K, K] after phrases [B, K, S]."""
    count = tf.shape(phrases)[1]
    none = tf.repeat(tf.zeros_like(phrases, tf.bool)[:, None], count, 1)

    def read(state, position):
        subwords = phrases[..., position]
        begun, met = _read(phrases[:, None], *state, subwords)
        is_over = (subwords == PAD)[..., None, None]
        return tf.where(is_over, state[0], begun), met

    positions = tf.range(tf.shape(phrases)[2])
    return tf.foldl(read, positions, (none, none[..., 0]))


def _table(lengths, overlaps):
    """Return _State.table [B, 2^K, K] of lengths [B, K], overlaps [B, K, K]."""
    bits = tf.bitwise.left_shift(1, tf.range(tf.shape(lengths)[1]))
    everything = tf.reduce_sum(bits)
    sets = tf.range(everything + 1)[:, None] | bits  # [2^K, K], with p
    is_there = (sets[..., None] & bits) != 0  # [2^K, K, K]
    table = tf.fill(
        (tf.shape(lengths)[0], everything + 1, tf.size(bits)), _MANY
    )

    def body(i, table):
        rest = tf.gather(table, sets, axis=1) - overlaps[:, None]
        rest = tf.reduce_min(tf.where(is_there, _MANY, rest), -1)
        rest = tf.where(sets == everything, 0, rest)
        return i + 1, tf.minimum(lengths[:, None] + rest, _MANY)

    return tf.while_loop(lambda i, _: i < tf.size(bits), body, (0, table))[1]


def _need(table, phrases, begun, met):
    """Return [...] or [..., C]: subwords needed until all phrases are met.

    `table` is [..., 2^K, K]; the others may have C before their K.
    """
    bits = tf.bitwise.left_shift(1, tf.range(tf.shape(met)[-1]))
    sets = tf.reduce_sum(tf.where(met, bits, 0), -1)
    rows = tf.gather(table, sets, batch_dims=table.shape.rank - 2)
    need = rows - _matched(phrases, begun)
    need = tf.reduce_min(tf.where(met, _MANY, need), -1)
    return tf.where(tf.reduce_all(met, -1), 0, need)


def _need_of(state):
    return _need(state.table, state.phrases, state.begun, state.met)


def _need_after(state, subwords):
    """Return the need [B, W, C] after each of `subwords`."""
    phrases = state.phrases[:, :, None]
    begun, met = _read(
        phrases, state.begun[:, :, None], state.met[:, :, None], subwords
    )
    return _need(state.table, phrases, begun, met)
