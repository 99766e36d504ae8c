"""A sample of lines, drawn in one pass over text of any size."""

import math
from collections.abc import Sequence

import numpy as np


class LineSample:
    """At most `size` of the lines offered, each as likely as any other.

    It takes one pass, and the memory of the lines that it keeps: Vitter's
    reservoir, algorithm R.
    """

    def __init__(self, size: int, longest: float = math.inf, seed: int = 0):
        """Start without lines.

        Args:
            size: most lines to keep.
            longest: characters of the longest line that is not passed over.
            seed: of the random numbers.
        """
        self.lines: list[str] = []
        self.num_seen = 0
        self._size = size
        self._longest = longest
        self._random = np.random.Generator(np.random.Philox(key=seed))

    def add(self, lines: Sequence[str]):
        """Draw from the next lines."""
        lines = [line for line in lines if len(line) <= self._longest]
        numbers = self.num_seen + np.arange(len(lines))
        places = self._random.integers(numbers + 1)
        self.num_seen += len(lines)
        for line, place in zip(lines, places.tolist(), strict=True):
            if len(self.lines) < self._size:
                self.lines.append(line)
            elif place < self._size:
                self.lines[place] = line
