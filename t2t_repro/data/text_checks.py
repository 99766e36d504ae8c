"""Checks of text for data: empty sides, copies, and remains of web pages."""

from collections.abc import Iterable, Iterator
from typing import Any

from t2t_repro import errors
from t2t_repro.data import corpus, filtering
from t2t_repro.text.pair_filters import Web
from t2t_repro.text.parallel_files import Pair


class TextChecks:
    """Findings in the splits, of which "train" is read last."""

    def __init__(self, allow_empty_source: bool):
        """Begin; `allow_empty_source` is the setting of the data."""
        self._needed = slice(1 if allow_empty_source else 0, 2)  # sides
        self._held_out: dict[str, list[Pair]] = {}
        self._known: tuple[set[str], ...] = set(), set()  # lines of both sides
        self._met: tuple[set[str], ...] = set(), set()  # in training, too
        self._web = Web(None, ("", ""))
        self._remains: dict[str, dict[str, Any]] = {}

    def watch(self, split: str, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs of a split.

        Raises:
            UserError: pairs that are not for training have an empty side.
                Without them, lines would not be those of other translations.
        """
        held_out: list[Pair] = []
        for pair in pairs:
            text = pair[:2]
            if not self._web.keep(text):
                entry = {"pairs": 0, "example": filtering.shortened(pair)}
                self._remains.setdefault(split, entry)["pairs"] += 1
            if split != "train":
                held_out.append(text)
            else:
                for side, line in enumerate(text):
                    if line in self._known[side]:
                        self._met[side].add(line)
            yield pair
        if split != "train":
            self._hold_out(split, held_out)

    def _hold_out(self, split, pairs):
        """Check and remember the pairs of a split that is not for training."""
        self._require_text(split, pairs)
        self._held_out[split] = pairs
        for side, known in enumerate(self._known):
            known.update(pair[side] for pair in pairs if pair[side])

    def _require_text(self, split, pairs):
        empty = [
            i
            for i, pair in enumerate(pairs)
            if not all(map(str.strip, pair[self._needed]))
        ]
        if empty:
            raise errors.UserError(
                f"{len(empty):,} of {len(pairs):,} pairs of the split {split} "
                f"have an empty side; the first is pair {empty[0] + 1:,}: "
                f"{filtering.shortened(pairs[empty[0]])}. Scores need both "
                "sides: remove these lines of both languages, or choose other "
                "text."
            )

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return entries of the manifest for each split: what was found."""
        found = {name: {"web": entry} for name, entry in self._remains.items()}
        for split, pairs in self._held_out.items():
            counts = {
                name: sum(pair[side] in self._met[side] for pair in pairs)
                for side, name in enumerate(corpus.SIDES)
            }
            if any(counts.values()):
                found.setdefault(split, {})["in_training"] = counts
        return found
