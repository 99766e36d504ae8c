"""Lists of tokens of other programs, and our ids of the tokens in them."""

import collections
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from t2t_repro import errors

_PAD = "<pad>"


class Special(NamedTuple):
    """Names of special tokens in another program's list."""

    eos: str
    unknown: str
    pad: str | None = None  # None: the program has none


def order(tokens: Sequence[str], special: Special) -> list[int]:
    """Return the program's id of each of our ids: PAD, EOS, then the others.

    Args:
        tokens: the list; a token's place is its id there.
        special: names of special tokens in it. Without `pad`, the first id of
            the result is -1.

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


def name_of_pad(special: Special, taken: Collection[str]) -> str:
    """Return the name of PAD; a new one if the program has none.

    Args:
        special: names of special tokens.
        taken: names that a new one must not have.
    """
    return unused_name(_PAD, taken) if special.pad is None else special.pad


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken: <pad>, <<pad>>, and so on."""
    while name in taken:
        name = f"<{name}>"
    return name


def require_distinct(tokens: Iterable[str]) -> None:
    """Raise a UserError if a token occurs twice."""
    for token, count in collections.Counter(tokens).most_common(1):
        if count > 1:
            raise errors.UserError(
                f"Each token must occur once; {token!r} occurs {count} times."
            )
