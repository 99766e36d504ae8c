"""Training cost of a model, by its own counts of parameters and FLOPs."""

from typing import NamedTuple

from t2t_repro.models.seq2seq import Seq2Seq


class TrainingCost(NamedTuple):
    """Cost of a run so far; None is an unknown figure."""

    steps: int
    parameters: int
    counted_flops: float | None  # None: unknown lengths
    seconds: float | None  # time of the steps; None: not recorded
    sustained_flops_per_second: float | None  # None: not given

    @property
    def estimated_flops(self) -> float | None:
        """FLOPs as in Table 2: time x devices x sustained FLOP/s."""
        if self.seconds is None or self.sustained_flops_per_second is None:
            return None
        return self.seconds * self.sustained_flops_per_second

    @property
    def counted_flops_per_second(self) -> float | None:
        """Counted FLOPs in each second, of all devices together."""
        if not self.seconds or self.counted_flops is None:
            return None
        return self.counted_flops / self.seconds


def training_cost(
    model: Seq2Seq,
    batch_tokens: int,
    lengths: tuple[float, float] | None,
    steps: int,
    seconds: float | None,
    sustained_flops_per_second: float | None,
) -> TrainingCost:
    """Return the cost of a run so far.

    Args:
        model: a model, whose weights need no values.
        batch_tokens: number of target tokens in a step.
        lengths: mean numbers of subwords of a source and of a target; None:
            unknown.
        steps: number of finished steps.
        seconds: time of these steps; None: unknown.
        sustained_flops_per_second: sustained rate of all devices together;
            None: unknown.
    """
    counted = None
    if lengths:
        counted = training_flops(model, batch_tokens * steps, *lengths)
    return TrainingCost(
        steps,
        model.count_params(),
        counted,
        seconds,
        sustained_flops_per_second,
    )


def training_flops(
    model: Seq2Seq, tokens: int, source_length: float, target_length: float
) -> float:
    """Count the multiplications and additions of a run.

    The backward pass costs twice the forward pass. Padding does not count.

    Args:
        model: a model, which counts its forward pass.
        tokens: number of target tokens in all steps.
        source_length: mean number of subwords of an input, with EOS.
        target_length: mean number of subwords of a target, with EOS.
    """
    pair = 3.0 * model.flops(source_length, target_length)
    return pair * tokens / target_length
