"""Whether one system is better than another: paired bootstrap tests."""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu import significance
from sacrebleu.metrics import CHRF

from t2t_repro.reports import bleu
from t2t_repro.text.test_sets import require_same_counts

SAMPLES = 1_000


class Difference(NamedTuple):
    """Of two systems on the same lines, in one metric."""

    metric: str  # a key of bleu.CONVENTIONS
    system: float
    baseline: float
    p_value: float  # of Koehn's test: about half that of a two-sided one

    def describe(self) -> str:
        """A line for people."""
        return (
            f"{self.metric} {self.system:.2f} against {self.baseline:.2f} of "
            f"the baseline, p = {self.p_value:.4f} (paired bootstrap, "
            f"{SAMPLES:,} samples)"
        )


def compare(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenized: bool = False,
) -> list[Difference]:
    """Tests the differences in BLEU and chrF to another system's output.

    BLEU is that of bleu.main_metric(); Koehn 2004's test, as
    ``sacrebleu REF -i BASELINE OUT -m bleu chrf --paired-bs -f text`` has it.

    Raises:
        UserError: the line counts differ.
    """
    require_same_counts(hypotheses, baseline, *references)
    convention, make_bleu = bleu.main_metric(tokenized)
    # sacreBLEU's names, by which it gives back what it finds.
    metrics = {"BLEU": make_bleu, "chrF2": CHRF}
    test = significance.PairedTest(
        [("baseline", list(baseline)), ("system", list(hypotheses))],
        {name: make(references=references) for name, make in metrics.items()},
        references=None,
        test_type="bs",
        n_samples=SAMPLES,
    )
    _, found = test()
    differences = []
    for before, after in (found[name] for name in metrics):
        # It counts differences above the observed one: of none, p = 0.001.
        same = after.score == before.score
        p_value = 1.0 if same else after.p_value
        differences.append((after.score, before.score, p_value))
    return [
        Difference(name, *difference)
        for name, difference in zip(
            (convention, "chrf"), differences, strict=True
        )
    ]
