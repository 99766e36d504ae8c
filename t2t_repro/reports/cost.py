"""Parameters and training cost of a model, which counts both itself."""

from typing import NamedTuple


class Spent(NamedTuple):
    """What a training has cost so far."""

    steps: int
    parameters: int
    counted: float | None  # FLOPs, of training_flops; None: unknown lengths
    seconds: float | None  # of the steps; None: not recorded
    sustained: float | None  # FLOP/s of all devices; None: not said

    @property
    def estimated(self) -> float | None:
        """FLOPs as Table 2 has them: time x devices x sustained FLOP/s."""
        if self.seconds is None or self.sustained is None:
            return None
        return self.seconds * self.sustained

    @property
    def rate(self) -> float | None:
        """Counted FLOPs in each second of all devices."""
        if not self.seconds or self.counted is None:
            return None
        return self.counted / self.seconds


def spent(
    model,
    batch_tokens: int,
    lengths: tuple[float, float] | None,
    steps: int,
    seconds: float | None,
    sustained: float | None,
) -> Spent:
    """Return the cost of a training so far; see Spent for what is not here.

    Args:
        model: models.seq2seq.Seq2Seq; its weights need no values.
        batch_tokens: target tokens of a step.
        lengths: mean subwords of a source and of a target; None: unknown.
        steps: that are done.
        seconds: of the steps.
        sustained: FLOP/s of all devices.
    """
    counted = None
    if lengths:
        counted = training_flops(model, batch_tokens * steps, *lengths)
    return Spent(steps, model.count_params(), counted, seconds, sustained)


def training_flops(
    model, tokens: int, source_length: float, target_length: float
) -> float:
    """Count multiplications and additions of a training.

    The backward pass costs twice the forward pass. Padding is left out.

    Args:
        model: models.seq2seq.Seq2Seq, which counts its forward pass.
        tokens: target tokens of all steps.
        source_length: mean subwords of an input, with EOS.
        target_length: mean subwords of a target, with EOS.
    """
    pair = 3.0 * model.flops(source_length, target_length)
    return pair * tokens / target_length
