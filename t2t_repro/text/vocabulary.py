"""The interface of vocabularies, and lists of tokens of other programs.

    @vocabularies.register("characters")
    class Characters(Vocabulary):
        ...

A vocabulary must have `learn`, `size`, `encode`, `join` and `pieces`. It may
have `graph_class`, which does the same in an exported graph, and
`sampling_hparam` with `scored_pieces`, which let training sample segmentations.

PAD is 0 and EOS is 1 in every vocabulary; there is no BOS. An instance is made
from the bytes of its file, whose checksum identifies it.
"""

import collections
import functools
import hashlib
import json
import math
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import languages

PAD = 0
EOS = 1
# A model may spell line ends and tabs, which become spaces.
LINE_ENDS = {ord("\n"): " ", ord("\r"): " "}
SPACES = LINE_ENDS | {ord("\t"): " "}
_UNKNOWN = "<unk>"
# Names of padding in lists of other programs; the last is OpenNMT's.
_PAD_NAMES = ("<pad>", "<blank>")


class Vocabulary:
    """Base class of vocabularies: text to ids that end in EOS, and back."""

    # "package.module.Class" of a serving.graph_vocabulary.GraphVocabulary,
    # which the exporter imports; "": none.
    graph_class = ""
    # Hparam that samples segmentations in training; "": none can.
    sampling_hparam = ""
    # Whether learn() takes tags, words with which sources begin, and never
    # splits them.
    learns_tags = False
    # Rules of normalization that learn() takes; the first is the default.
    normalizations: tuple[str, ...] = ()
    # Whether the first id of a source with a tag is no part of it: the target
    # language, with which its output begins.
    leads_outputs = False
    # What becomes of line ends and tabs in translations.
    spaces: Mapping[int, str] = SPACES
    # Id of text that cannot be spelled; None: any text can be spelled.
    unknown: int | None = None
    # Words with which sources may begin, each of which is one id.
    tags: frozenset[str] = frozenset()
    # Maximum length of a line that learn() can read, in characters.
    max_line_length: float = math.inf

    def __init__(self, model: bytes):
        """Create a vocabulary from the content of its file.

        Raises:
            UserError: it is not a vocabulary of this type.
        """
        self.model = model

    @classmethod
    def load(cls, path: str | pathlib.Path) -> "Vocabulary":
        """Read a vocabulary file.

        Raises:
            UserError: the file cannot be read or used.
        """
        path = pathlib.Path(path)
        try:
            return cls(path.read_bytes())
        except OSError as error:
            reason = f"Cannot read the vocabulary {path}: {error.strerror}."
            raise errors.UserError(reason) from error
        except errors.UserError as error:
            reason = f"Cannot use the vocabulary {path}. {error}"
            raise errors.UserError(reason) from error

    def __reduce__(self) -> tuple:
        """Serialize to the content of the file alone, for pickle."""
        return type(self), (self.model,)

    def split_tag(self, line: str) -> tuple[str, str]:
        """Split a line into its tag, "" if it has none, and its text."""
        return languages.split_known_tag(line, self.tags)

    @functools.cached_property
    def tag_ids(self) -> frozenset[int]:
        """Ids of `tags`."""
        if not self.tags:
            return frozenset()
        rows = self.encode(sorted(self.tags))
        return frozenset(i for row in rows for i in row[:-1])

    def has_text(self, ids: Iterable[int]) -> bool:
        """Return whether ids are more than tags, EOS and PAD."""
        return any(i not in self.no_text for i in ids)

    @functools.cached_property
    def no_text(self) -> frozenset[int]:
        """Ids of tags, EOS and PAD."""
        return self.tag_ids | {PAD, EOS}

    @property
    def sha256(self) -> str:
        """Checksum that identifies the vocabulary."""
        return hashlib.sha256(self.model).hexdigest()

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Convert ids to lines; ignore PAD, and ids after the first EOS.

        Line ends become spaces, so each result is one line, and so do tabs
        unless the vocabulary keeps them.
        """
        lines = self.join([_text_ids(row) for row in ids])
        return [line.translate(self.spaces) for line in lines]

    # Subclasses implement the methods below.

    def scored_pieces(self) -> dict[int, tuple[str, float]]:
        """Return text and score of the pieces that sampling may use, by id.

        Only vocabularies with a `sampling_hparam` have it.
        """
        raise self._lacks("scored_pieces")

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        split_by_unicode_script: bool = True,
    ) -> "Vocabulary":
        """Learn a vocabulary from text, deterministically.

        There are more arguments where a class says so: `tags`, if `learns_tags`
        is set, and `normalization`, one of `normalizations`.

        Args:
            lines: text.
            vocab_size: maximum number of ids, including PAD and EOS.
            split_by_unicode_script: whether pieces never mix letters and
                signs. Vocabularies without such a rule ignore it.

        Raises:
            UserError: no vocabulary of this size fits the text.
        """
        raise cls._lacks("learn")

    @property
    def size(self) -> int:
        """V, the number of ids."""
        raise self._lacks("size")

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Convert lines to ids that end in EOS; an empty line is EOS alone."""
        raise self._lacks("encode")

    def join(self, rows: list[list[int]]) -> list[str]:
        """Convert ids of lines, without PAD and EOS, to lines."""
        raise self._lacks("join")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id, including PAD and EOS."""
        raise self._lacks("pieces")

    @classmethod
    def _lacks(cls, name: str) -> errors.UserError:
        return errors.UserError(
            f"The vocabulary {cls.__name__} has no {name}: see the vocabulary "
            f"of your own in {errors.page('problems.md')}."
        )


class Imported(Vocabulary):
    """Base class of vocabularies that only importers make."""

    @classmethod
    def learn(cls, *arguments: Any, **settings: Any) -> NoReturn:
        raise errors.UserError(
            f"{cls.__name__} cannot be learned: its ids are those of another "
            "program. Import a model, and name its vocabulary file: "
            "--problem_args=vocabulary=…."
        )


def _text_ids(row: Sequence[int]) -> list[int]:
    """Return the ids of a text: [5, 6, 1, 0, 0] -> [5, 6]."""
    ids = [int(i) for i in row]
    if EOS in ids:
        ids = ids[: ids.index(EOS)]
    return [i for i in ids if i != PAD]


# Lists of tokens of other programs


class TokenList(Vocabulary):
    """Base class of vocabularies whose file lists their tokens.

    A token's place in the list is its id; the first is PAD, the second EOS.
    """

    text_ids: dict[str, int]  # of the tokens that text may have
    _tokens: list[str]

    @property
    def size(self) -> int:
        return len(self._tokens)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._tokens[i] for i in ids]

    def _ids_of(self, tokens):
        """Return the ids of a line's tokens, and EOS."""
        return [*(self.text_ids.get(t, self.unknown) for t in tokens), EOS]

    def _load(self, kind: str, *texts: str, remedy: str = "") -> dict:
        """Return the JSON of the file: "tokens", "unknown", and the texts.

        Raises:
            UserError: it is no such file, whose kind and form the error names;
                or a token occurs twice, or that of unknown text is missing.
        """
        try:
            content = json.loads(self.model.decode("utf-8", "surrogatepass"))
            shape = {"tokens": list, **dict.fromkeys(("unknown", *texts), str)}
            if difference := files.json_difference(content, shape):
                raise ValueError(difference)
            tokens = content["tokens"]
            if not all(isinstance(token, str) for token in tokens):
                raise ValueError('"tokens" must be a list of texts')
            "".join(tokens).encode()  # an error for half of a surrogate pair
        except (ValueError, RecursionError) as error:
            raise errors.UserError(
                f"This is not {kind} ({len(self.model)} bytes): {error}."
                f"{remedy}"
            ) from error
        for token, count in collections.Counter(tokens).most_common(1):
            if count > 1:
                raise errors.UserError(
                    f"Each token must occur once; {token!r} occurs {count} "
                    "times."
                )
        self._tokens = tokens
        self.text_ids = {t: i for i, t in enumerate(tokens) if i > EOS}
        self.unknown = self.text_ids.get(content["unknown"])
        if self.unknown is None:
            raise errors.UserError(
                f"The unknown token, {content['unknown']!r}, must be in the "
                f"list, after PAD and EOS, the first two; these are "
                f"{tokens[:2]}."
            )
        return content


def dump_tokens(content: Mapping[str, Any]) -> bytes:
    """Return the JSON of a file with tokens, of which each has a line."""
    text = json.dumps(content, ensure_ascii=False, indent=0)
    return text.encode("utf-8", "surrogatepass")


class SpecialTokens(NamedTuple):
    """Names of special tokens in another program's list."""

    eos: str
    unknown: str
    pad: str | None = None  # None: the program has none


def order_tokens(tokens: Sequence[str], special: SpecialTokens) -> list[int]:
    """Return the program's id of each of our ids: PAD, EOS, then the others.

    A token's place is its id there; that of a PAD that it lacks is -1.

    Raises:
        UserError: the list lacks a special token.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    for name in (special.eos, special.unknown, special.pad):
        if name is not None and name not in ids:
            raise errors.UserError(
                f"The vocabulary of {len(tokens):,} tokens lacks {name!r}."
            )
    pad = -1 if special.pad is None else ids[special.pad]
    first = [pad, ids[special.eos]]
    return first + [i for i in range(len(tokens)) if i not in first]


def name_of_pad(special: SpecialTokens, taken: Collection[str]) -> str:
    """Return the name of PAD; one that is not taken if the program has none."""
    return unused_name("<pad>", taken) if special.pad is None else special.pad


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken: <pad>, <<pad>>, and so on."""
    while name in taken:
        name = f"<{name}>"
    return name


class WhitespaceTokens(TokenList):
    """Tokens that stand between spaces, and one for all that are unknown.

    Other programs split text into words or subwords beforehand, and their
    models have an id for each. The file is JSON:

        {"unknown": "<unk>", "tokens": ["<pad>", "</s>", "<unk>", "a", …]}

    Runs of ASCII whitespace separate the tokens of a line, and one space those
    of an output. Text in which the name of a special token occurs has an
    unknown token there.
    """

    graph_class = "t2t_repro.serving.graph_vocabularies.TokenTable"

    def __init__(self, model: bytes):
        super().__init__(model)
        self._load(
            "a list of tokens",
            remedy=' It must be {"unknown": "<unk>", "tokens": ["<pad>", '
            '"</s>", …]}.',
        )

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        split_by_unicode_script: bool = True,
    ) -> "WhitespaceTokens":
        """Take the most frequent tokens of the text, at most `vocab_size`."""
        special = ["<pad>", "</s>", _UNKNOWN]
        if vocab_size <= len(special):
            raise errors.UserError(
                f"Cannot learn a vocabulary of {vocab_size} tokens: "
                f"{len(special)} are special."
            )
        counts = collections.Counter(
            t for line in lines for t in split_tokens(line)
        )
        for name in special:
            del counts[name]
        if not counts:
            raise errors.UserError(
                "Cannot learn a vocabulary of this text: it is empty."
            )
        ordered = sorted(counts, key=lambda token: (-counts[token], token))
        kept = ordered[: vocab_size - len(special)]
        return cls(_dump_token_list([*special, *kept], _UNKNOWN))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [self._ids_of(split_tokens(line)) for line in lines]

    def join(self, rows: list[list[int]]) -> list[str]:
        return [" ".join(self.pieces(row)) for row in rows]


def split_tokens(line: str) -> list[str]:
    """Split a line at ASCII whitespace, as tf.strings.split() does."""
    return re.findall(r"\S+", line, re.ASCII)


def _dump_token_list(tokens: Sequence[str], unknown: str) -> bytes:
    """Return the content of a file, with one token on each line."""
    content = {"unknown": unknown, "tokens": list(tokens)}
    return dump_tokens(content) + b"\n"


def map_ids(
    tokens: Sequence[str], special: SpecialTokens
) -> tuple[bytes, list[int]]:
    """Return the file of a list with our ids, and order_tokens() of it.

    A list without PAD gets one.

    Raises:
        UserError: the list lacks a special token, or has a token twice.
    """
    order = order_tokens(tokens, special)
    pad = name_of_pad(special, tokens)
    ours = [pad, *(tokens[i] for i in order[1:])]
    model = _dump_token_list(ours, special.unknown)
    WhitespaceTokens(model)  # UserError if a token occurs twice
    return model, order


def pad_name(tokens: Iterable[str]) -> str | None:
    """Return the name of padding in a list of tokens; None: it has none."""
    known = set(tokens)
    return next((name for name in _PAD_NAMES if name in known), None)
