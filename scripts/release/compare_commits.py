"""Comparison of the speed of two commits, in turns on this machine.

    python -m scripts.release.compare_commits v0.1.0 HEAD

Both are copied to a temporary folder and measured there by this checkout's
programs. In each turn both are measured once, the order alternates, and a turn
gives one ratio. A ratio above 1 means that the new commit is faster. Intervals
have 95% confidence, by Student's t of the logarithms. The last line is a JSON
list of {name, value, unit, peer, ratio, interval}. The exit status is 1 if an
interval lies below --threshold.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from scipy import stats

from scripts.benchmarks import harness
from scripts.release import speed_measures
from scripts.release.speed_measures import Measured, Settings, Version

LEVEL = 0.05  # 1 - confidence

# One of speed_measures.MEASURES.
Measure = Callable[[Version], dict[str, Measured]]


class Comparison(NamedTuple):
    """Two commits in one measurement."""

    name: str
    unit: str
    old: float  # median
    new: float  # median
    ratio: float  # of speeds, new to old: the geometric mean over turns
    interval: tuple[float, float]

    @property
    def verdict(self) -> str:
        """Which commit is faster, if any, by the confidence interval."""
        low, high = self.interval
        if low > 1:
            return "faster"
        return "slower" if high < 1 else "no difference found"

    def line(self) -> str:
        """Return a human-readable line."""
        low, high = self.interval
        return (
            f"{self.name}: {self.old:,.4g} -> {self.new:,.4g} {self.unit}, "
            f"{self.ratio:.3f} times the speed ({low:.3f} to {high:.3f}), "
            f"{self.verdict}"
        )

    def as_json(self) -> dict:
        """Return the entry of the JSON list."""
        return {
            "name": self.name,
            "value": self.new,
            "unit": self.unit,
            "peer": f"old ({self.old:,.4g})",
            "ratio": self.ratio,
            "interval": self.interval,
        }


def compare(
    name: str, old: Sequence[Measured], new: Sequence[Measured]
) -> Comparison:
    """Compare the measurements of two commits, turn by turn.

    Args:
        name: what was measured.
        old: a value for each turn, at least two.
        new: as many.
    """
    unit = old[0].unit
    sign = -1 if unit == "s" else 1  # less time is faster
    logs = [
        sign * math.log(after.value / before.value)
        for before, after in zip(old, new, strict=True)
    ]
    mean = statistics.mean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    half = stats.t.ppf(1 - LEVEL / 2, len(logs) - 1) * error
    return Comparison(
        name,
        unit,
        statistics.median(measured.value for measured in old),
        statistics.median(measured.value for measured in new),
        math.exp(mean),
        (math.exp(mean - half), math.exp(mean + half)),
    )


def take_turns(
    versions: Sequence[Version], measures: Iterable[Measure], turns: int
) -> list[Comparison]:
    """Measure two versions in turns, and show the progress.

    Args:
        versions: old and new.
        measures: what to measure.
        turns: number of measurements of each version, at least two.
    """
    found: dict[str, dict[Version, list[Measured]]] = {}
    measures = list(measures)
    for turn in range(turns):
        # Machines become slower or faster with time.
        order = versions if turn % 2 == 0 else versions[::-1]
        for measure in measures:
            for version in order:
                for name, measured in measure(version).items():
                    values = found.setdefault(name, {})
                    values.setdefault(version, []).append(measured)
                    print(
                        f"turn {turn + 1} of {turns}, {version.name}, {name}: "
                        f"{measured.value:,.4g} {measured.unit}",
                        flush=True,
                    )
    return [
        compare(name, *(values[version] for version in versions))
        for name, values in found.items()
    ]


def regressions(
    comparisons: Iterable[Comparison], threshold: float
) -> list[str]:
    """Return the names of those whose whole interval is below a threshold."""
    return [c.name for c in comparisons if c.interval[1] < threshold]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = harness.argument_parser(__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--turns", type=int, default=5, help="at least 2")
    parser.add_argument(
        "--measures",
        default=",".join(speed_measures.MEASURES),
        help="some of %(default)s",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=0.97,
        help="a ratio whose interval is below it is a regression",
    )
    parser.add_argument("--training_steps", type=int, default=300)
    parser.add_argument("--lines", type=int, default=300)
    flags = parser.parse_args(arguments)
    flags.measures = flags.measures.split(",")
    if unknown := set(flags.measures) - set(speed_measures.MEASURES):
        parser.error(f"unknown --measures: {', '.join(sorted(unknown))}")
    if flags.turns < 2:
        parser.error(f"--turns must be at least 2; got {flags.turns}")
    return flags


def main() -> int:
    flags = parse()
    print(harness.machine())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        settings = Settings(flags.training_steps, flags.lines)
        versions = []
        for label in ("old", "new"):
            code = folder / f"code-{label}"
            harness.copy_commit(getattr(flags, label), code)
            versions.append(Version(label, code, folder, settings))
        print("Preparing data, a run and exports.", flush=True)
        speed_measures.prepare(*versions)
        comparisons = take_turns(
            versions,
            (speed_measures.MEASURES[name] for name in flags.measures),
            flags.turns,
        )
    for comparison in comparisons:
        print(comparison.line())
    slower = regressions(comparisons, flags.threshold)
    print(f"regressions below {flags.threshold}: {', '.join(slower) or 'none'}")
    print(json.dumps([comparison.as_json() for comparison in comparisons]))
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
