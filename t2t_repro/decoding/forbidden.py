"""Words and phrases that outputs must not have, however they are segmented.

An automaton reads the text that subwords spell, character by character (Aho
and Corasick 1975). Where letters begin or end, it also reads a boundary, "":

    "the cat." is "" t h e "" " " "" c a t "" .

so that the word "cat", which is "" c a t "", is a part of this text, and not
of that of "cats". All of it is computed once, in Python; a search looks up the
next state of a hypothesis by its last subword.

A word ends only where the next subword begins, or the text ends. The hypothesis
is then blocked: its next subword must go on with a letter. `need` is how many
subwords a state, or a subword that leads to it, needs before the text may end.

The words of each sentence are too many for automata. A hypothesis carries the
hash of its last word instead, which is compared where that word ends.
"""

import collections
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import rules
from t2t_repro.text import parallel_files
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary

_KINDS = _SPACE, _SIGN, _LETTER = range(3)  # of characters
_BOUNDARY = ""
_UNKNOWN = "\ufffd"  # character of bytes that no phrase has
_BYTE = re.compile("<0x([0-9A-F]{2})>")  # piece of SentencePiece
_NEVER = 1 << 30  # `need` of a subword that completes a phrase
_MOST_ENTRIES = 1 << 26  # of a table
# Base of the hashes of words, modulo 2^64 (Karp and Rabin 1987). 0: no word.
_BASE = 0x9E3779B97F4A7C15


def forbid(
    vocabulary: Vocabulary,
    file: str = "",
    whole_words: bool = True,
    ignore_case: bool = False,
) -> rules.Rule:
    """Build Forbid with a file, and ForbidWords without; see these.

    Raises:
        UserError: also if side inputs shall be parts of words.
    """
    if file:
        return Forbid(vocabulary, file, whole_words, ignore_case)
    if not whole_words:
        raise errors.UserError(
            "The search rule forbid has whole words as side inputs; got "
            "whole_words=false. Add file=NAME, or omit it."
        )
    return ForbidWords(vocabulary, ignore_case)


class Forbid(rules.Rule):
    """No word or phrase of a file, whatever the segmentation into subwords."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        file: str,
        whole_words: bool = True,
        ignore_case: bool = False,
    ) -> None:
        """Read the file, and build the automaton.

        Args:
            vocabulary: vocabulary of the outputs.
            file: a word or phrase on each line.
            whole_words: whether the words of a phrase are whole words; else it
                may begin and end within a word, too.
            ignore_case: whether capitals are equal to small letters.

        Raises:
            UserError: the file has no text, or is too long; or the text of the
                vocabulary's subwords depends on their neighbours.
        """
        fold = str.casefold if ignore_case else str
        texts = list(map(fold, spell(vocabulary)))
        lines = list(filter(str.strip, parallel_files.read_lines(file)))
        if not lines:
            raise errors.UserError(
                f"The file {file} of the search rule forbid has no text. Write "
                "a word or phrase on each line, or omit the rule."
            )
        rows = vocabulary.encode(lines)
        lines += [  # as the vocabulary spells them
            line
            for line, row in zip(vocabulary.decode(rows), rows, strict=True)
            if vocabulary.unknown not in row and line.strip()
        ]
        automaton = _Automaton(map(fold, lines), whole_words)
        self._size = vocabulary.size
        self._tables = _build_tables(automaton, texts)

    def start(self, sentences: rules.Sentences, num_hypotheses: int) -> Any:
        """Return the state of the automaton [B, W], after no text."""
        shape = tf.shape(sentences.limits)[0], num_hypotheses
        return tf.zeros(shape, tf.int32)

    def advance(self, step: rules.SearchStep, state: Any) -> Any:
        tables = self._tables
        last = step.previous
        size = tf.constant(self._size, tf.int64)
        key = tf.cast(state, tf.int64) * size + tf.cast(last, tf.int64)
        flat = tf.reshape(key, [-1])
        index = tf.reshape(tf.searchsorted(tables.keys, flat), tf.shape(key))
        plain = tf.gather_nd(
            tables.next, tf.stack([tf.gather(tables.group, state), last], -1)
        )
        following = tf.where(
            tf.gather(tables.keys, index) == key,
            tf.gather(tables.values, index),
            plain,
        )
        return tf.where(step.position > 0, following, state)

    def score(
        self, logits: tf.Tensor, step: rules.SearchStep, state: Any
    ) -> tf.Tensor:
        tables = self._tables
        need = rules.scatter(
            tf.gather(tables.need, tf.gather(tables.group, state)),
            tf.gather(tables.subwords, state),
            tf.gather(tables.needs, state),
            tf.tensor_scatter_nd_max,
        )
        # The last subword is EOS, and this one takes a place, too.
        left = tf.maximum(step.sentences.limits - 2 - step.position, 0)
        return tf.where(need > left[:, None, None], rules.FORBIDDEN, logits)


class _Words(NamedTuple):
    hashes: tf.Tensor  # [B, W] int64, of the last word of each hypothesis
    forbidden: tf.Tensor  # [B, W, M] int64, hashes of a sentence's words


class ForbidWords(rules.Rule):
    """No word of a sentence's side input, whatever the segmentation.

    A subword changes the hash h of the last word to factor * h + addend.
    """

    name = "forbid"
    needs_side = True

    def __init__(self, vocabulary: Vocabulary, ignore_case: bool) -> None:
        """Compute the hashes of subwords; the arguments are those of Forbid."""
        fold = str.casefold if ignore_case else str
        self._vocabulary = vocabulary
        self._texts = texts = list(map(fold, spell(vocabulary)))
        changes, spelled = [], []
        ended = [(EOS, 0, 0)]  # words that end within subwords
        for i, text in enumerate(texts):
            change = whole = 1, 0
            for character in text:
                if _is_letter(character):
                    change, whole = (
                        (factor * _BASE, addend * _BASE + ord(character))
                        for factor, addend in (change, whole)
                    )
                    continue
                ended += [(i, *change)] * (change[1] > 0)
                change = 0, 0
            changes.append(change)
            spelled.append(whole)
        self._change, self._spelled = map(_int64, (changes, spelled))
        self._ended_in, *self._ended = _int64(ended)
        # Whether the word before a subword ends there.
        closes = [text != "" and not _is_letter(text[0]) for text in texts]
        self._closes = np.array(closes) | (np.arange(len(texts)) == EOS)

    def check(self, side: Sequence[str], limits: Sequence[int]) -> None:
        """Refuse side inputs that are no words, or spelled in bytes."""
        for field in "\t".join(side).split("\t"):
            (row,) = self._vocabulary.encode([field])
            spelled = "".join(self._texts[i] for i in row)
            if not all(map(_is_letter, field.strip() + spelled.strip())):
                raise errors.UserError(
                    "The search rule forbid has words as side inputs, between "
                    "tabs, of letters that subwords spell, not bytes; got "
                    f"{field!r}. "
                    "Omit it, or forbid phrases in all lines with file=NAME."
                )

    def start(self, sentences: rules.Sentences, num_hypotheses: int) -> Any:
        """Return the state of no subwords."""
        phrases = sentences.side.phrases  # type: ignore[union-attr]
        # XLA folds no axis of length 0, as without any word. PAD has no text.
        padded = tf.pad(phrases, [(0, 0), (0, 0), (0, 1)], constant_values=PAD)
        words = tf.foldl(
            lambda hashes, i: _read(hashes, padded[..., i], self._spelled),
            tf.range(tf.shape(padded)[2]),
            tf.zeros(tf.shape(phrases)[:2], tf.int64),
        )
        words = tf.repeat(words[:, None], num_hypotheses, 1)
        return _Words(tf.zeros_like(words[..., 0]), words)

    def advance(self, step: rules.SearchStep, state: Any) -> Any:
        hashes = _read(state.hashes, step.previous, self._change)
        return state._replace(hashes=hashes)

    def score(
        self, logits: tf.Tensor, step: rules.SearchStep, state: Any
    ) -> tf.Tensor:
        def are_forbidden(factor, addend):
            hashes = factor * state.hashes[..., None] + addend  # [B, W, N]
            equal = hashes[..., None] == state.forbidden[:, :, None]
            return tf.reduce_any(equal & (hashes[..., None] != 0), -1)

        # Transposed in another dtype, oneDNN would log an error.
        ends = tf.cast(are_forbidden(*self._ended), tf.float32)
        is_ended = tf.math.unsorted_segment_max(  # [V, B, W] of [N, B, W]
            tf.transpose(ends, (2, 0, 1)), self._ended_in, len(self._closes)
        )
        out = tf.transpose(is_ended, (1, 2, 0)) > 0
        out |= are_forbidden(1, [0]) & self._closes
        # Whether the next subword is the last one before EOS.
        is_last = (step.sentences.limits - 2 <= step.position)[:, None, None]
        out |= is_last & tf.cond(
            tf.reduce_any(is_last),
            lambda: are_forbidden(*self._change),
            lambda: tf.zeros_like(out),
        )
        return tf.where(out, rules.FORBIDDEN, logits)


def _read(hashes, subwords, changes):
    """Return hashes after subwords, both of one shape, by changes [2, V]."""
    factor, addend = (tf.gather(change, subwords) for change in changes)
    return factor * hashes + addend


def _int64(rows):
    """Return the columns of rows of whole numbers, modulo 2^64."""
    array = np.array([[x % (1 << 64) for x in row] for row in rows], np.uint64)
    return array.T.view(np.int64)


def _is_letter(character):
    return _kind(character) == _LETTER


def spell(vocabulary: Vocabulary) -> list[str]:
    """Return the text that each subword adds to a line.

    Repeated spaces count as one. PAD and EOS add nothing; a byte that is no
    character adds chr(0xdc00 + byte), as Python's "surrogateescape" does.

    Raises:
        UserError: the text depends on the subwords beside it.
    """
    ids = [i for i in range(vocabulary.size) if i not in (PAD, EOS)]
    anchor, text = _anchor(vocabulary, ids)
    lines = vocabulary.decode([[anchor, i, anchor] for i in ids])
    texts = [""] * vocabulary.size
    for i, line, piece in zip(ids, lines, vocabulary.pieces(ids), strict=True):
        between = line[len(text) : len(line) - len(text)]
        byte = _BYTE.fullmatch(piece)
        if byte and _UNKNOWN in between:
            between = chr(0xDC00 + int(byte[1], 16))
        texts[i] = re.sub(r"\s", " ", between)
    plain = [
        i for i in ids if _UNKNOWN not in texts[i] and texts[i].isprintable()
    ]
    rows = np.random.default_rng(1).choice(plain or [EOS], (64, 16)).tolist()
    for row, line in zip(rows, vocabulary.decode(rows), strict=True):
        if line.split() != "".join(texts[i] for i in row).split():
            raise errors.UserError(
                "The search rule forbid needs subwords whose text does not "
                "depend on those beside them. The vocabulary "
                f"{type(vocabulary).__name__} spells {line!r:.80} otherwise. "
                "Omit the rule, or translate with another vocabulary."
            )
    return texts


def _anchor(vocabulary, ids):
    """Return a subword and its text, to which others can be joined."""
    alone = vocabulary.decode([[i] for i in ids])
    twice = vocabulary.decode([[i, i] for i in ids])
    for separator in ("", " "):
        for i, text, both in zip(ids, alone, twice, strict=True):
            is_word = text.split() == [text] and _UNKNOWN not in text
            if is_word and both == text + separator + text:
                return i, text
    return EOS, ""


class _State(NamedTuple):
    """State of the automaton, after a text."""

    node: int = 0  # of the tree of phrases: the longest end that begins one
    kind: int = _SPACE  # of the last character
    part: bytes = b""  # the first bytes of a character


class _Automaton:
    """Automaton that reads characters, and knows when a phrase is complete."""

    def __init__(self, phrases: Iterable[str], whole_words: bool) -> None:
        self._whole_words = whole_words
        self._children: list[dict[str, int]] = [{}]
        self._fail, self._ends, characters = [0], set(), set()
        for phrase in phrases:
            node = 0
            for symbol in self._symbols(" ".join(phrase.split())):
                characters.add(symbol)
                if symbol not in self._children[node]:
                    self._children[node][symbol] = len(self._children)
                    self._children.append({})
                    self._fail.append(0)
                node = self._children[node][symbol]
            self._ends.add(node)
        # Of each node, the symbols with which it or a shorter end goes on.
        self.symbols: list[set[str]] = [set() for _ in self._children]
        queue = collections.deque(self._children[0].values())
        while queue:
            node = queue.popleft()
            fail = self._fail[node]
            if fail in self._ends:
                self._ends.add(node)
            self.symbols[node] = {*self._children[node], *self.symbols[fail]}
            for symbol, child in self._children[node].items():
                self._fail[child] = self.follow(fail, symbol)
                queue.append(child)
        encoded = [character.encode() for character in characters]
        self._parts = {c[:i] for c in encoded for i in range(1, len(c))}
        self._encoded = set(encoded)

    def _symbols(self, phrase: str) -> Iterator[str]:
        last = _SPACE
        for character in phrase:
            kind = _kind(character)
            if self._is_boundary(last, kind):
                yield _BOUNDARY
            yield character
            last = kind
        if self._is_boundary(last, _SPACE):
            yield _BOUNDARY

    def _is_boundary(self, last, kind):
        return self._whole_words and (last == _LETTER) != (kind == _LETTER)

    def follow(self, node: int, symbol: str) -> int:
        while node and symbol not in self._children[node]:
            node = self._fail[node]
        return self._children[node].get(symbol, 0)

    def read(self, state: _State, character: str) -> tuple[_State, bool]:
        """Return the state after a character, and if a phrase is complete.

        After a phrase, the automaton begins again.
        """
        if _is_byte(character):
            part = state.part + bytes([ord(character) - 0xDC00])
            if part in self._parts:
                return state._replace(part=part), False
            if part in self._encoded:
                return self.read(state._replace(part=b""), part.decode())
            if not state.part:
                return self.read(state, _UNKNOWN)
        if state.part:
            state, is_first = self.read(state._replace(part=b""), _UNKNOWN)
            state, is_second = self.read(state, character)
            return state, is_first or is_second
        kind, node, is_complete = _kind(character), state.node, False
        if kind == state.kind == _SPACE:
            return state, False
        symbols = [_BOUNDARY] * self._is_boundary(state.kind, kind)
        for symbol in (*symbols, character):
            node = self.follow(node, symbol)
            if node in self._ends:
                node, is_complete = 0, True
        return _State(node, kind), is_complete

    def beginnings(self, state: _State) -> set[str]:
        """Return the characters with which a phrase that has begun goes on.

        After others, except bytes, it is as if no phrase had begun before.
        """
        node = self.read(state, _UNKNOWN)[0].node if state.part else state.node
        found = self.symbols[node] | self.symbols[self.follow(node, _BOUNDARY)]
        return found | {" "} if state.kind == _SPACE else found


def _is_byte(character):
    return "\udc80" <= character <= "\udcff"


def _kind(character):
    if character == " ":
        return _SPACE
    is_mark = unicodedata.category(character).startswith("M")
    is_letter = character.isalnum() or character == "_" or is_mark
    return _LETTER if is_letter else _SIGN


class _Tables(NamedTuple):
    """The automaton's states, by number, and V subwords.

    States of a group differ from each other only where `keys` or `subwords`
    say so.
    """

    group: np.ndarray  # [S] int32
    next: np.ndarray  # [groups, V] int32, state after a subword
    need: np.ndarray  # [groups, V] int32, of a subword
    keys: np.ndarray  # [N] int64, state * V + subword, ascending
    values: np.ndarray  # [N] int32, state after such a subword
    subwords: np.ndarray  # [S, M] int32 with a greater need, PAD after
    needs: np.ndarray  # [S, M] int32, their need


class _Tree:
    """Tree of the texts of subwords."""

    def __init__(self) -> None:
        self.ids: list[int] = []  # subwords whose text ends here
        self.children: dict[str, _Tree] = {}

    def add(self, i: int, text: str) -> None:
        node = self
        for character in text:
            node = node.children.setdefault(character, _Tree())
        node.ids.append(i)


def _differences(
    automaton: _Automaton, tree: _Tree, state: _State, like: _State
) -> Iterator[tuple[int, _State, bool]]:
    """Yield subwords, the state after each, and if it completes a phrase.

    Only those for which this differs from `like`; all if that is the state.
    """

    def read(found, character):
        after, is_complete = automaton.read(found[0], character)
        return after, is_complete or found[1]

    first = [*tree.children]
    if state != like:
        special = automaton.beginnings(state)
        first = [c for c in first if c in special or _is_byte(c)]
    stack = [(tree, first, (state, False), (like, False))]
    while stack:
        node, characters, found, other = stack.pop()
        for i in node.ids:
            yield i, *found
        for character in characters:
            after, other_after = read(found, character), read(other, character)
            if after != other_after or state == like:
                child = node.children[character]
                stack.append((child, [*child.children], after, other_after))


def _build_tables(automaton: _Automaton, texts: Sequence[str]) -> _Tables:
    """Build the tables of the states that subwords can reach."""
    tree = _Tree()
    for i, text in enumerate(texts):
        if i not in (PAD, EOS):
            tree.add(i, text)
    states = [_State(kind=kind) for kind in _KINDS]
    numbers = {state: number for number, state in enumerate(states)}
    entries, group = [], []
    for number, state in enumerate(states):  # which grow
        kind = _SIGN if state.part else state.kind
        is_blocked = automaton.read(state, _UNKNOWN)[1]
        group.append(3 * kind + (1 + bool(state.part)) * is_blocked)
        for i, after, is_complete in _differences(
            automaton, tree, state, states[kind]
        ):
            if after not in numbers:
                numbers[after] = len(states)
                states.append(after)
            entries.append((number, i, numbers[after], is_complete))
    return _of_entries(
        np.array(entries, np.int64).reshape(-1, 4), np.array(group), texts
    )


def _needs(entries, group, following, never):
    """Return [S]: the number of subwords before the text may end."""
    number, subword, after, is_complete = entries.T
    needs = np.where(group % 3, _NEVER, 0)
    before = None
    while not np.array_equal(before, needs):
        before = needs.copy()
        for state in np.flatnonzero(group % 3):  # blocked
            row, dead = following[group[state]].copy(), never[group[state]] > 0
            dead[[PAD, EOS]] = True
            own = slice(*np.searchsorted(number, [state, state + 1]))
            row[subword[own]] = after[own]
            dead[subword[own]] |= is_complete[own] > 0
            best = np.where(dead, _NEVER, needs[row]).min()
            needs[state] = min(needs[state], best + 1)
    return needs


def _of_entries(
    entries: np.ndarray, group: np.ndarray, texts: Sequence[str]
) -> _Tables:
    """Build tables of [N, 4]: state, subword, next state, is it complete."""
    size, num_states = len(texts), len(group)
    number, subword, after, is_complete = entries[entries[:, 0] < 3].T
    following, never = np.zeros((2, 3, size), np.int32)
    following[number, subword], never[number, subword] = after, is_complete
    # What a blocked state excludes: signs, or all but bytes; and EOS.
    excluded = np.zeros((3, size), np.int32)
    for i, text in enumerate(texts):
        is_plain = text != "" and not _is_byte(text[0])
        excluded[1, i] = is_plain and _kind(text[0]) != _LETTER
        excluded[2, i] = is_plain
    excluded[1:, EOS] = 1
    following = np.repeat(following, 3, 0)
    never = np.repeat(never, 3, 0) | np.tile(excluded, (3, 1))

    entries = entries[entries[:, 0] >= 3]
    entries = entries[np.lexsort((entries[:, 1], entries[:, 0]))]
    number, subword, after, is_complete = entries.T
    needs = _needs(entries, group, following, never)
    need = np.where(never, _NEVER, needs[following])
    need[:, EOS] = never[:, EOS] * _NEVER
    keys = number * size + subword
    greater = np.where(is_complete, _NEVER, needs[after])
    is_greater = greater > need[group[number], subword]
    number, subword = number[is_greater], subword[is_greater]
    column = np.arange(len(number)) - np.searchsorted(number, number)
    shape = num_states, int(column.max(initial=-1)) + 1
    if np.prod(shape) > _MOST_ENTRIES:
        raise errors.UserError(
            f"The search rule forbid needs a table of {shape[0]:,} states and "
            f"{shape[1]:,} subwords, of at most {_MOST_ENTRIES:,} entries. "
            "Shorten its file."
        )
    subwords, own_needs = np.zeros((2, *shape), np.int32)
    subwords[number, column] = subword
    own_needs[number, column] = greater[is_greater]
    return _Tables(
        group.astype(np.int32),
        following,
        need.astype(np.int32),
        # A key that no state has, so that each search ends at one.
        np.append(keys, num_states * size),
        np.append(after, 0).astype(np.int32),
        subwords,
        own_needs,
    )
