"""What a server takes on, and requests of a client that it takes."""

import dataclasses
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True)
class Limits:
    """Of t2t_repro.serve, and what `query` asks for by default."""

    max_batch_size: int = 32  # sentences; no request may have more
    # Of a batch and of a request, each sentence padded to the longest: a batch
    # of these takes seconds, and 32 sentences may have 2,048 bytes each.
    max_batch_bytes: int = 64 << 10
    batch_timeout_ms: float = 5.0  # the first of a batch waits for others
    max_waiting: int = 1024  # sentences in a queue
    max_request_bytes: int = 4 << 20  # gRPC's own default
    timeout_secs: float = 60.0  # of requests that name no deadline

    def allow(self, size: int, longest: int) -> bool:
        """Whether so many sentences, of at most so many bytes, may be one."""
        return (
            size <= self.max_batch_size
            and size * longest <= self.max_batch_bytes
        )


def split(lines: Sequence[str], limits: Limits) -> Iterator[list[str]]:
    """Lines in order, as many together as `limits` hold.

    A line that is too long for them comes alone.
    """
    part, longest = [], 0
    for line in lines:
        length = len(line.encode("utf-8"))
        if part and not limits.allow(len(part) + 1, max(longest, length)):
            yield part
            part, longest = [], 0
        part.append(line)
        longest = max(longest, length)
    if part:
        yield part
