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
            longest: maximum number of bytes of a line in UTF-8; longer lines
                are ignored.
            seed: seed of the random numbers.
        """
        self.lines: list[str] = []
        self.num_seen = 0  # without those that are ignored
        self.num_ignored = 0
        self._size = size
        self.longest = longest
        self._random = np.random.Generator(np.random.Philox(key=seed))

    def add(self, lines: Sequence[str]) -> None:
        """Process the next lines of the text."""
        added = len(lines)
        lines = [line for line in lines if self._is_short(line)]
        self.num_ignored += added - len(lines)
        numbers = self.num_seen + np.arange(len(lines))
        indices = self._random.integers(numbers + 1)
        self.num_seen += len(lines)
        for line, index in zip(lines, indices.tolist(), strict=True):
            if len(self.lines) < self._size:
                self.lines.append(line)
            elif index < self._size:
                self.lines[index] = line

    def _is_short(self, line):
        # A character has at most 4 bytes.
        return (
            4 * len(line) <= self.longest or len(line.encode()) <= self.longest
        )
