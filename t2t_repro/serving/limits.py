"""Limits of a server, and batches of a client that respect them."""

import dataclasses
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of t2t_repro.serve, and the default batches of `query`."""

    max_batch_size: int = 32  # sentences of a batch, and of a request
    # Bytes of a batch, and of a request, with each sentence padded to the
    # longest: 32 sentences of 2,048 bytes each. Such a batch takes seconds.
    max_batch_bytes: int = 64 << 10
    batch_timeout_ms: float = 5.0  # time for which a request waits for others
    max_waiting: int = 1024  # sentences in a queue
    timeout_secs: float = 30.0  # deadline of requests that have none
    load_secs: float = 600.0  # of a version, with its warm-up
    max_connections: int = 1000  # of each protocol
    max_in_flight: int = 1000  # requests of each protocol
    # Bytes of answers that clients have not read, of each protocol. Beyond
    # them, large answers are refused: those of `attention` may have 70 MB.
    max_unread_bytes: int = 256 << 20
    large_answer: int = 4096  # values; larger answers are large

    @property
    def max_request_bytes(self) -> int:
        r"""Bytes of a request, which is parsed before it can be checked.

        There is room for two inputs (signature score) with each byte written
        as \u0061, and for names and spaces.
        """
        return 2 * 6 * self.max_batch_bytes + (64 << 10)

    @property
    def max_waiting_bytes(self) -> int:
        """Bytes in a queue, with the sentences of a request padded.

        Such batches, of which each takes seconds, end within the timeout.
        """
        return 8 * self.max_batch_bytes

    @property
    def max_silence_secs(self) -> float:
        """Seconds without any answer of a model that has requests.

        By then the requests have had their error for a while.
        """
        return self.timeout_secs + 30.0

    def allow(self, size: int, longest: int) -> bool:
        """Return whether a batch may have this size.

        Args:
            size: number of sentences.
            longest: bytes of the longest sentence.
        """
        return (
            size <= self.max_batch_size
            and size * longest <= self.max_batch_bytes
        )

    def split(self, lines: Sequence[str]) -> Iterator[list[int]]:
        """Yield the indices of lines in order, in the largest batches allowed.

        A line that is longer than the limits forms a batch of its own.
        """
        batch: list[int] = []
        longest = 0
        for i, line in enumerate(lines):
            length = len(line.encode("utf-8"))
            if batch and not self.allow(len(batch) + 1, max(longest, length)):
                yield batch
                batch, longest = [], 0
            batch.append(i)
            longest = max(longest, length)
        if batch:
            yield batch
