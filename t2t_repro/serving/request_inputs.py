"""Optional inputs of an export's signatures, and what values they take.

The signatures `translate` and `subwords` have inputs beside the text, all with
a row for each sentence. A SavedModel requires every input of a signature; but
each of these has a value that stands for no wish, which is its default in the
SignatureDef. Our server and clients fill in what a request omits. TensorFlow
Serving does so only over gRPC without batching, so that clients send all. If a
search rule reads side inputs, `side` is one more input, without a default.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MAX_ALPHA = 10.0
BOUNDS = "request_bounds"  # key of the model card


class OptionalInput(NamedTuple):
    """Input that a request may omit."""

    dtype: str
    default: str | int | float  # stands for what the export has
    lowest: float = 0  # of numbers
    highest: float = 0

    @property
    def range_text(self) -> str:
        """Values that a request may have."""
        return (
            f"from {self.lowest:g} to {self.highest:g}, or {self.default:g} "
            "for that of the export"
        )

    def allows(self, value: Any) -> Any:
        """Return whether a request may have a number, or each of a tensor."""
        in_range = (value >= self.lowest) & (value <= self.highest)
        return in_range | (value == self.default)


def of_export(max_beam_size: int) -> dict[str, OptionalInput]:
    """Return the optional inputs of an export, by name.

    Args:
        max_beam_size: most beams that a request may name.
    """
    return {
        "prefixes": OptionalInput("string", ""),
        "beam_size": OptionalInput("int32", 0, 1, max_beam_size),
        # 0: all beams
        "n_best": OptionalInput("int32", 1, 0, max_beam_size),
        "alpha": OptionalInput("float32", -1.0, 0, MAX_ALPHA),
    }


# Of any export: a client of a server does not know the bounds.
OPTIONAL = of_export(0)


def dtype(name: str) -> str:
    """Return the dtype of an input, whatever the signature."""
    return OPTIONAL[name].dtype if name in OPTIONAL else "string"


def bounds(max_beam_size: int) -> dict[str, Any]:
    """Return what the model card says of the numbers."""
    return {
        name: {"default": found.default, "range": [found.lowest, found.highest]}
        for name, found in of_export(max_beam_size).items()
        if found.dtype != "string"
    }


def fault(
    columns: Mapping[str, Sequence[Any]], card: Mapping[str, Any]
) -> str | None:
    """Return what is wrong with the numbers of a request; None: nothing.

    Args:
        columns: a row for each sentence, by the name of the input.
        card: model card of the export; one without bounds takes all.
    """
    for name, bound in card.get(BOUNDS, {}).items():
        found = OptionalInput(dtype(name), bound["default"], *bound["range"])
        for i, value in enumerate(columns.get(name, ())):
            if not found.allows(value):
                return f"{name}[{i}] must be {found.range_text}; got {value:g}."
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
