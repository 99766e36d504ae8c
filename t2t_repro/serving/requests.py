"""Requests to an exported model: their limits, and what they may have."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_BOUNDS = "request_bounds"  # key of the model card
_MAX_ALPHA = 10.0  # of a request


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
    # Of each protocol; as many calls of gRPC may be in flight. A connection of
    # REST has one request at a time.
    max_connections: int = 1000
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
        """Return whether `size` sentences of `longest` bytes may be a batch."""
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


class OptionalInput(NamedTuple):
    """Input of the signatures `translate` and `subwords` beside the text.

    All have a row for each sentence. A SavedModel requires every input of a
    signature; but each of these has a value that stands for no wish, which is
    its default in the SignatureDef. Our server and clients fill in what a
    request omits. TensorFlow Serving does so only over gRPC without batching,
    so that clients send all. If a search rule reads side inputs, `side` is one
    more input, without a default.
    """

    dtype: str
    default: str | int | float  # stands for what the export has
    lowest: float = 0  # of numbers
    highest: float = 0

    @property
    def range_text(self) -> str:
        """Values that a request may have."""
        text = f"from {self.lowest:g} to {self.highest:g}"
        if self.lowest <= float(self.default) <= self.highest:
            return text
        return f"{text}, or {self.default:g} for that of the export"

    def allows(self, value: Any) -> Any:
        """Return whether a request may have a number, or each of a tensor."""
        in_range = (value >= self.lowest) & (value <= self.highest)
        return in_range | (value == self.default)


def optional_inputs(max_beam_size: int) -> dict[str, OptionalInput]:
    """Return the optional inputs of an export with --max_beam_size, by name."""
    return {
        "prefixes": OptionalInput("string", ""),
        "beam_size": OptionalInput("int32", 0, 1, max_beam_size),
        # 0: all beams
        "n_best": OptionalInput("int32", 1, 0, max_beam_size),
        "alpha": OptionalInput("float32", -1.0, 0, _MAX_ALPHA),
    }


# Of any export: a client of a server does not know the bounds.
OPTIONAL = optional_inputs(0)


def input_dtype(name: str) -> str:
    """Return the dtype of an input, whatever the signature."""
    return OPTIONAL[name].dtype if name in OPTIONAL else "string"


def bounds_entry(max_beam_size: int) -> dict[str, Any]:
    """Return the entry of the model card about the numbers."""
    bounds = {
        name: {"default": found.default, "range": [found.lowest, found.highest]}
        for name, found in optional_inputs(max_beam_size).items()
        if found.dtype != "string"
    }
    return {_BOUNDS: bounds}


def fault(
    columns: Mapping[str, Sequence[Any]], card: Mapping[str, Any]
) -> str | None:
    """Return what is wrong with the numbers of a request; None: nothing.

    Args:
        columns: a row for each sentence, by the name of the input.
        card: model card of the export; one without bounds takes all.
    """
    for name, bound in card.get(_BOUNDS, {}).items():
        found = OptionalInput(
            input_dtype(name), bound["default"], *bound["range"]
        )
        for i, value in enumerate(columns.get(name, ())):
            if not found.allows(value):
                return (
                    f"{name}[{i}] must be {found.range_text}; got {value:.10g}."
                )
    own = card.get("decode_hparams", {}).get("beam_size", 0)
    pairs = zip(
        columns.get("n_best", ()), columns.get("beam_size", ()), strict=False
    )
    for i, (count, beams) in enumerate(pairs):
        if own and count > (beams or own):
            return (
                f"n_best[{i}] must be at most beam_size, {beams or own}; got "
                f"{count}."
            )
    return None
