"""A random sample of lines, drawn in one pass over text of any size."""

import math
from collections.abc import Sequence

import numpy as np


class LineSample:
    """A uniform sample of at most `size` lines: reservoir sampling.

    This is Vitter's algorithm R. It holds only the sampled lines in memory.
    """

    def __init__(self, size: int, longest: float = math.inf, seed: int = 0):
        """Create an empty sample.

        Args:
            size: maximum number of lines to keep.
            longest: maximum number of characters of a line; longer lines
                are ignored.
            seed: seed of the random numbers.
        """
        self.lines: list[str] = []
        self.num_seen = 0
        self._size = size
        self._longest = longest
        self._random = np.random.Generator(np.random.Philox(key=seed))

    def add(self, lines: Sequence[str]) -> None:
        """Process the next lines of the text."""
        lines = [line for line in lines if len(line) <= self._longest]
        numbers = self.num_seen + np.arange(len(lines))
        indices = self._random.integers(numbers + 1)
        self.num_seen += len(lines)
        for line, index in zip(lines, indices.tolist(), strict=True):
            if len(self.lines) < self._size:
                self.lines.append(line)
            elif index < self._size:
                self.lines[index] = line
