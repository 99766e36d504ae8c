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
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from scipy import stats

from scripts.benchmarks import harness
from t2t_repro import errors
from t2t_repro.reports import curves
from t2t_repro.serving import client

# Measurements of a version of the package, by its commands.
#
# Flags, files and protocols are those that every version supports. Measurements
# of two versions use the same data and, except in training, the same weights.

PROBE = pathlib.Path(__file__).with_name("speed_probe.py")
PROBLEM = "number_words_ende"  # generated, so that nothing is downloaded
# Differences from the hparams set tiny.
SIZES = {
    "tiny": "hidden_size=128",
    "small": "hidden_size=256,filter_size=1024,num_hidden_layers=3",
}
CLIENTS = 16
_TIMEOUT = 120  # seconds for a request


class Measured(NamedTuple):
    """Value of one measurement."""

    value: float
    unit: str  # "s" of times, of which less is better


class Settings(NamedTuple):
    """Amounts of work, the same for both versions."""

    training_steps: int
    lines: int  # translated by each search, and sent to each server


class Version(NamedTuple):
    """A version of the package, and the files that it is measured with."""

    name: str
    code: pathlib.Path  # folder of t2t_repro/
    shared: pathlib.Path  # folder of data and run
    settings: Settings

    @property
    def run(self) -> pathlib.Path:
        """Folder of the trained run, which both versions read."""
        return self.shared / "run"

    @property
    def export(self) -> pathlib.Path:
        """Folder of this version's own export."""
        return self.shared / f"export-{self.name}"

    @property
    def messages(self) -> pathlib.Path:
        """File of what the last process of this version wrote to stderr."""
        return self.shared / f"messages-{self.name}.txt"

    @property
    def sentences(self) -> pathlib.Path:
        """File of sentences to translate."""
        return self.shared / "sentences.en"

    def python(self, *arguments) -> subprocess.Popen:
        """Start a Python that imports this version."""
        with self.messages.open("w") as messages:
            return subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                cwd=self.code,
                env=os.environ | {"PYTHONPATH": str(self.code)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=messages,
                encoding="utf-8",
            )

    def failure(self, what: str) -> errors.UserError:
        """Return an error with the end of the messages."""
        messages = self.messages.read_text("utf-8", errors="replace")
        return errors.UserError(
            f"The version {self.name} failed in {what}; it printed:\n"
            f"{messages[-2000:]}\nLeave out what it cannot do: --measures."
        )

    def finish(self, *arguments) -> str:
        """Run such a Python; return what it prints.

        Raises:
            UserError: it failed.
        """
        process = self.python(*arguments)
        output = process.communicate()[0]
        if process.returncode:
            raise self.failure(" ".join(map(str, arguments)))
        return output

    def command(self, name: str, **flags) -> None:
        """Run a command of this version."""
        self.finish(
            *("-m", "t2t_repro", name),
            *(f"--{flag}={value}" for flag, value in flags.items()),
        )

    def train(self, output_dir: pathlib.Path, steps: int, size: str) -> None:
        """Train on the shared data."""
        self.command(
            "trainer",
            problem=PROBLEM,
            hparams_set="tiny",
            hparams=SIZES[size],
            data_dir=self.shared / "data",
            output_dir=output_dir,
            train_steps=steps,
            eval_every=steps,
            eval_bleu_sentences=0,
        )


def prepare(old: Version, new: Version) -> None:
    """Train a run with the old version, and export it with both.

    A newer version reads what an older one wrote, but not conversely.
    """
    old.train(old.run, old.settings.training_steps, "tiny")
    text = old.shared / "data" / "downloads" / PROBLEM / "test.en"
    lines = text.read_text("utf-8").splitlines()[: old.settings.lines]
    old.sentences.write_text("\n".join([*lines, ""]), "utf-8")
    for version in (old, new):
        version.command(
            "exporter", output_dir=version.run, export_dir=version.export
        )


def training(version: Version) -> dict[str, Measured]:
    """Return target tokens per second, as the trainer records them."""
    measured = {}
    for size in SIZES:
        with tempfile.TemporaryDirectory() as name:
            output_dir = pathlib.Path(name) / "run"
            version.train(output_dir, version.settings.training_steps, size)
            curve = curves.read(output_dir)["train/tokens_per_second"]
        rate = statistics.median(value for _, value in curve)
        measured[f"training, {size}"] = Measured(rate, "tokens/s")
    return measured


def search(version: Version) -> dict[str, Measured]:
    """Return sentences per second of searches, without the start."""
    printed = version.finish(PROBE, version.run, version.sentences)
    rates = json.loads(printed.splitlines()[-1])
    return {
        f"search, {name}": Measured(rate, "sentences/s")
        for name, rate in rates.items()
    }


def start(version: Version) -> dict[str, Measured]:
    """Return seconds in which the decoder translates a file of one line."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        line = version.sentences.read_text("utf-8").splitlines()[0]
        (folder / "one.en").write_text(f"{line}\n", "utf-8")
        began = time.perf_counter()
        version.command(
            "decoder",
            output_dir=version.run,
            decode_from_file=folder / "one.en",
            decode_to_file=folder / "one.de",
        )
        return {"start": Measured(time.perf_counter() - began, "s")}


def serving(version: Version) -> dict[str, Measured]:
    """Return requests per second of clients that send one sentence each."""
    lines = version.sentences.read_text("utf-8").splitlines()
    with _served(version) as address:
        translator = client.PROTOCOLS["rest"](address, "t2t", _TIMEOUT)

        def request(line):
            return list(translator.translate([line]))

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(request, lines[:CLIENTS]))
            began = time.perf_counter()
            list(pool.map(request, lines))
            seconds = time.perf_counter() - began
    return {"serving": Measured(len(lines) / seconds, "requests/s")}


@contextlib.contextmanager
def _served(version):
    """Start a server of the version's export; give its address.

    Raises:
        UserError: it did not start.
    """
    process = version.python(
        *("-m", "t2t_repro", "serve", f"--export_dir={version.export}"),
        *("--rest_port=0", "--grpc_port=0"),
    )
    try:
        found = re.search(r"port (\d+)", process.stdout.readline())
        if not found:
            raise version.failure("serve")
        yield f"127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.communicate()


MEASURES = {
    "training": training,
    "search": search,
    "start": start,
    "serving": serving,
}


LEVEL = 0.05  # 1 - confidence

# One of MEASURES.
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
        default=",".join(MEASURES),
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
    if unknown := set(flags.measures) - set(MEASURES):
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
        prepare(*versions)
        comparisons = take_turns(
            versions,
            (MEASURES[name] for name in flags.measures),
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
