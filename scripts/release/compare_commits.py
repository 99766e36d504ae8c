"""Comparison of the speed of two commits, in turns on this machine.

    python -m scripts.release.compare_commits v0.1.0 HEAD

Both are copied to a temporary folder and measured there by this checkout's
programs. In each turn both are measured once, the order alternates, and a turn
gives one ratio. A ratio above 1 means that the new commit is faster. Intervals
have 95% confidence, by Student's t of the logarithms. The last line is a JSON
list of {name, value, unit, peer, ratio, interval}. The exit status is 1 if an
interval lies below --threshold.
"""

import collections
import concurrent.futures
import io
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from scripts.benchmarks import harness
from t2t_repro import errors
from t2t_repro.reports import curves
from t2t_repro.serving import client, connection

# Measurements of a version of the package, by its commands.
#
# Flags, files and protocols are those that every version supports. Measurements
# of two versions use the same data and, except in training, the same weights.

# A process that searches by the interface for Python, which every version has.
SEARCH = """
import json, sys, time
import t2t_repro

run, file = sys.argv[1:]
model = t2t_repro.load(run)
lines = open(file, encoding="utf-8").read().splitlines()

def rate(batches):
    for _ in range(2):
        start = time.perf_counter()
        for batch in batches:
            model.translate(batch)
    return sum(map(len, batches)) / (time.perf_counter() - start)

one_at_a_time = [[line] for line in lines[:20]]
print(json.dumps({"batch": rate([lines]), "single": rate(one_at_a_time)}))
"""
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


class Version:
    """A version of the package, and the files that it is measured with."""

    def __init__(self, name, code, shared, steps, lines):
        """Describe a version.

        Args:
            name: "old" or "new".
            code, shared: folders of t2t_repro/, and of data and run.
            steps: of each training.
            lines: sentences for each search and each server.
        """
        self.name, self.steps, self.lines = name, steps, lines
        self._code, self.shared = code, shared
        self.run = shared / "run"
        self.sentences = shared / "sentences.en"
        self.export = shared / f"export-{name}"
        self._messages = shared / f"messages-{name}.txt"  # of the last process

    def python(self, *arguments) -> subprocess.Popen:
        """Start a Python that imports this version."""
        with self._messages.open("w") as messages:
            return subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                cwd=self._code,
                env=os.environ | {"PYTHONPATH": str(self._code)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=messages,
                encoding="utf-8",
            )

    def failure(self, what: str) -> errors.UserError:
        """Return an error with the end of the messages."""
        messages = self._messages.read_text("utf-8", errors="replace")
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

    def train(self, output_dir: pathlib.Path, size: str) -> None:
        """Train on the shared data."""
        self.command(
            "trainer",
            problem=PROBLEM,
            hparams_set="tiny",
            hparams=SIZES[size],
            data_dir=self.shared / "data",
            output_dir=output_dir,
            train_steps=self.steps,
            eval_every=self.steps,
            eval_bleu_sentences=0,
        )


def prepare(old: Version, new: Version) -> None:
    """Train a run with the old version, and export it with both.

    A newer version reads what an older one wrote, but not conversely.
    """
    old.train(old.run, "tiny")
    text = old.shared / "data" / "downloads" / PROBLEM / "test.en"
    lines = text.read_text("utf-8").splitlines()[: old.lines]
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
            run = pathlib.Path(name) / "run"
            version.train(run, size)
            curve = curves.read(run)["train/tokens_per_second"]
        rate = statistics.median(value for _, value in curve)
        measured[f"training, {size}"] = Measured(rate, "tokens/s")
    return measured


def search(version: Version) -> dict[str, Measured]:
    """Return sentences per second of searches, without the start."""
    printed = version.finish("-c", SEARCH, version.run, version.sentences)
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
    """Return requests per second of clients that send one sentence each.

    Raises:
        UserError: the server did not start.
    """
    lines = version.sentences.read_text("utf-8").splitlines()
    process = version.python(
        *("-m", "t2t_repro", "serve", f"--export_dir={version.export}"),
        *("--rest_port=0", "--grpc_port=0"),
    )
    try:
        found = re.search(r"port (\d+)", process.stdout.readline())
        if not found:
            raise version.failure("serve")
        remote = client.connect(
            f"http://127.0.0.1:{found[1]}",
            connection.Options(timeout_secs=_TIMEOUT),
        )

        def request(line):
            return remote.translate([line])

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(request, lines[:CLIENTS]))
            began = time.perf_counter()
            list(pool.map(request, lines))
            seconds = time.perf_counter() - began
    finally:
        process.terminate()
        process.communicate()
    return {"serving": Measured(len(lines) / seconds, "requests/s")}


MEASURES = {
    function.__name__: function
    for function in (training, search, start, serving)
}
LEVEL = 0.05  # 1 - confidence


class Comparison(NamedTuple):
    """Two commits in one measurement."""

    name: str
    value: float  # median of the new one
    unit: str
    peer: str  # with the median of the old one
    ratio: float  # of speeds, new to old: the geometric mean over turns
    interval: tuple[float, float]

    @property
    def verdict(self) -> str:
        """Faster commit, if any, by the confidence interval."""
        low, high = self.interval
        if low > 1:
            return "faster"
        return "slower" if high < 1 else "no difference found"

    def __str__(self):
        low, high = self.interval
        return (
            f"{self.name}: {self.value:,.4g} {self.unit}, {self.ratio:.3f} "
            f"times the speed of {self.peer} ({low:.3f} to {high:.3f}), "
            f"{self.verdict}"
        )


def compare(name, old: Sequence[Measured], new: Sequence[Measured]):
    """Return the Comparison of the values of two turns or more."""
    unit = old[0].unit
    sign = -1 if unit == "s" else 1  # less time is faster
    before, after = ([each.value for each in side] for side in (old, new))
    logs = sign * np.log(np.divide(after, before))
    half = stats.t.ppf(1 - LEVEL / 2, len(logs) - 1) * stats.sem(logs)
    low, ratio, high = np.exp(logs.mean() + [-half, 0, half]).tolist()
    value, peer = statistics.median(after), statistics.median(before)
    peer = f"old ({peer:,.4g})"
    return Comparison(name, value, unit, peer, ratio, (low, high))


def take_turns(versions, measures, turns: int) -> list[Comparison]:
    """Measure old and new in turns by functions, and show the progress."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for turn in range(turns):
        # Machines become slower or faster with time.
        order = versions if turn % 2 == 0 else versions[::-1]
        for measure, version in itertools.product(measures, order):
            for name, measured in measure(version).items():
                found[name][version].append(measured)
                print(
                    f"turn {turn + 1} of {turns}, {version.name}, {name}: "
                    f"{measured.value:,.4g} {measured.unit}",
                    flush=True,
                )
    return [
        compare(name, *(values[version] for version in versions))
        for name, values in found.items()
    ]


def regressions(comparisons, threshold: float) -> list[str]:
    """Return the names of those whose whole interval is below a threshold."""
    return [c.name for c in comparisons if c.interval[1] < threshold]


def copy_commit(commit: str, folder: pathlib.Path) -> None:
    """Copy the files of a commit to a new folder.

    Raises:
        UserError: git does not know the commit.
    """
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit],
        cwd=harness.ROOT,
        capture_output=True,
    )
    if archive.returncode:
        raise errors.UserError(
            f"Expected a commit of {harness.ROOT}; got {commit!r}: "
            f"{archive.stderr.decode().strip()}. `git log` lists commits."
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def main() -> int:
    parser = harness.argument_parser(__doc__)
    add = parser.add_argument
    add("old")
    add("new")
    add("--turns", type=int, default=5, choices=range(2, 1_000), metavar="N")
    add("--measures", default=",".join(MEASURES), help="default: %(default)s")
    add("--threshold", type=float, default=0.97)
    add("--training_steps", type=int, default=300)
    add("--lines", type=int, default=300)
    flags = parser.parse_args()
    names = flags.measures.split(",")
    if unknown := [name for name in names if name not in MEASURES]:
        parser.error(
            f"--measures are {', '.join(MEASURES)}; got {', '.join(unknown)}."
        )
    measures = [MEASURES[name] for name in names]
    print(harness.machine())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        versions = []
        for label in ("old", "new"):
            code = folder / f"code-{label}"
            copy_commit(getattr(flags, label), code)
            versions.append(
                Version(label, code, folder, flags.training_steps, flags.lines)
            )
        print("Preparing data, a run and exports.", flush=True)
        prepare(*versions)
        comparisons = take_turns(versions, measures, flags.turns)
    print(*comparisons, sep="\n")
    slower = regressions(comparisons, flags.threshold)
    print(f"regressions below {flags.threshold}: {', '.join(slower) or 'none'}")
    print(json.dumps([found._asdict() for found in comparisons]))
    return bool(slower)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.UserError as error:
        sys.exit(f"Error: {error}")
