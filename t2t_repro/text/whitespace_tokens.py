"""Vocabulary of tokens that stand between spaces, for tokenized text.

Other programs split text into words or subwords beforehand, and their models
have an id for each. The file is JSON:

    {"unknown": "<unk>", "tokens": ["<pad>", "</s>", "<unk>", "a", …]}

Runs of ASCII whitespace separate the tokens of a line, and one space those of
an output. Text in which the name of a special token occurs has an unknown token
there.
"""

import collections
import re
from collections.abc import Iterable, Sequence

from t2t_repro import errors
from t2t_repro.text import vocabulary
from t2t_repro.text.vocabulary import EOS, SpecialTokens

_PAD, _EOS, _UNKNOWN = "<pad>", "</s>", "<unk>"
# Names of padding in lists of other programs; the last is OpenNMT's.
_PAD_NAMES = ("<pad>", "<blank>")


class WhitespaceTokens(vocabulary.TokenList):
    """Tokens of tokenized text, and one for all that are unknown."""

    graph_class = "t2t_repro.serving.graph_vocabularies.TokenTable"
    _unknown: int

    def __init__(self, model: bytes):
        """Parse the list of tokens.

        Raises:
            UserError: it is not one, two tokens are the same, or a special
                token is missing.
        """
        super().__init__(model)
        content = vocabulary.load_tokens(
            model,
            "a list of tokens",
            "unknown",
            remedy=' It must be {"unknown": "<unk>", "tokens": ["<pad>", '
            '"</s>", …]}.',
        )
        self._tokens, unknown = content["tokens"], content["unknown"]
        if len(self._tokens) <= EOS + 1:
            raise errors.UserError(
                f"It has {len(self._tokens)} tokens; the least is three: PAD, "
                "EOS and an unknown one."
            )
        ids = {token: i for i, token in enumerate(self._tokens)}
        self._unknown = ids.get(unknown, -1)
        if self._unknown <= EOS:
            raise errors.UserError(
                f"The unknown token, {unknown!r}, must be a token after the "
                f"first two, PAD and EOS; these are {self._tokens[:2]}."
            )
        # The tokens that text may have.
        self.text_ids = {token: i for token, i in ids.items() if i > EOS}

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        split_by_unicode_script: bool = True,
    ) -> "WhitespaceTokens":
        """Take the most frequent tokens of the text, at most `vocab_size`."""
        special = [_PAD, _EOS, _UNKNOWN]
        if vocab_size <= len(special):
            raise errors.UserError(
                f"Cannot learn a vocabulary of {vocab_size} tokens: "
                f"{len(special)} are special."
            )
        counts = collections.Counter(t for line in lines for t in split(line))
        for name in special:
            del counts[name]
        if not counts:
            raise errors.UserError(
                "Cannot learn a vocabulary of this text: it is empty."
            )
        ordered = sorted(counts, key=lambda token: (-counts[token], token))
        kept = ordered[: vocab_size - len(special)]
        return cls(serialize([*special, *kept], _UNKNOWN))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        ids = self.text_ids
        return [
            [*(ids.get(token, self._unknown) for token in split(line)), EOS]
            for line in lines
        ]

    def join(self, rows: list[list[int]]) -> list[str]:
        return [" ".join(self.pieces(row)) for row in rows]


def split(line: str) -> list[str]:
    """Split a line at ASCII whitespace, as tf.strings.split() does."""
    return re.findall(r"\S+", line, re.ASCII)


def serialize(tokens: Sequence[str], unknown: str) -> bytes:
    """Return the content of a file, with one token on each line."""
    content = {"unknown": unknown, "tokens": list(tokens)}
    return vocabulary.dump_tokens(content) + b"\n"


def map_ids(
    tokens: Sequence[str], special: SpecialTokens
) -> tuple[bytes, list[int]]:
    """Give the tokens of another program's list our ids: PAD, EOS, the rest.

    Args:
        tokens: the list; a token's place is its id there.
        special: names of special tokens in it. A list without `pad` gets one.

    Returns:
        content of the file; the program's id of each of our ids, -1 for a PAD
        that it lacks.

    Raises:
        UserError: the list lacks a special token, or has a token twice.
    """
    order = vocabulary.order_tokens(tokens, special)
    pad = vocabulary.name_of_pad(special, tokens)
    ours = [pad, *(tokens[i] for i in order[1:])]
    model = serialize(ours, special.unknown)
    WhitespaceTokens(model)  # UserError if a token occurs twice
    return model, order


def pad_name(tokens: Iterable[str]) -> str | None:
    """Return the name of padding in a list of tokens; None: it has none."""
    known = set(tokens)
    return next((name for name in _PAD_NAMES if name in known), None)
