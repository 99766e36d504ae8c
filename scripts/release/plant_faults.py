"""Mutation testing: plants known faults in a copy of the project.

The program checks that the tests still find faults after tests were removed or
made faster. Each fault of planted_faults.txt changes one place of the library.
The tests that should notice it run until the first failure:

    python -m scripts.release.plant_faults --jobs=2
    python -m scripts.release.plant_faults --only="causal mask|/decoding/"

A fault is caught if a test fails. A test process that ends in any other way
does not count. Tests marked slow run only if the others have not caught it.
The result is meaningful only if all tests pass without the faults.
"""

import collections
import concurrent.futures
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from scripts.benchmarks import harness
from scripts.benchmarks.harness import ROOT

FAULTS = pathlib.Path(__file__).with_name("planted_faults.txt")
# Exit codes of pytest.
FAILED, NO_TESTS = 1, 5
COLLECTED = ("not slow", "slow")  # values of -m, in turn


class Fault(NamedTuple):
    """A change of one file, and the tests that should notice it."""

    name: str
    file: str  # relative to the project
    old: str
    new: str
    tests: list[str]  # arguments of pytest


class Result(NamedTuple):
    """Outcome of the tests on a copy with a fault."""

    name: str
    caught: bool
    by: str  # the first test that failed, or how the tests ended
    seconds: float


def read_faults(text: str) -> list[Fault]:
    """Parse blocks that are separated by blank lines.

    A block is a name, a file, lines "- " of the old text, lines "+ " of the
    new text, and lines with the arguments of pytest. A line "#" is a comment.
    """
    faults = []
    for block in re.split(r"\n{2,}", text.strip()):
        lines = [one for one in block.split("\n") if not one.startswith("#")]
        if not lines:
            continue
        parts = collections.defaultdict(list)
        for line in lines[2:]:
            changed = line[:2] in ("- ", "+ ")
            parts[line[0] if changed else "tests"].append(
                line[2:] if changed else line.strip()
            )
        old, new = ("\n".join(parts[sign]) for sign in "-+")
        tests = " ".join(parts["tests"]).split()
        faults.append(Fault(lines[0], lines[1].strip(), old, new, tests))
    return faults


def find_misfits(faults: list[Fault], root: pathlib.Path) -> list[str]:
    """Return a message for each fault that does not fit the project."""
    names = collections.Counter(fault.name for fault in faults)
    found = [f"{name}: given {n} times" for name, n in names.items() if n > 1]
    for fault in faults:
        path = root / fault.file
        count = path.read_text().count(fault.old) if path.is_file() else 0
        if not fault.old or count != 1:
            found.append(
                f"{fault.name}: {fault.file} has the old text {count} times, "
                "where 1 is needed"
            )
        for test in fault.tests:
            if not (root / test.partition("::")[0]).exists():
                found.append(f"{fault.name}: there is no {test}")
    return found


def copy_project(target: pathlib.Path) -> None:
    """Copy all files that git tracks or would add."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():  # not a file that was deleted since
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


class ProjectCopy(NamedTuple):
    """A copy of the project in which faults are planted and removed."""

    root: pathlib.Path
    limit: float  # seconds after which a test process is killed

    def try_fault(self, fault: Fault) -> Result:
        """Plant a fault, run its tests, and remove the fault."""
        path = self.root / fault.file
        whole = path.read_text()
        path.write_text(whole.replace(fault.old, fault.new))
        start = time.monotonic()
        try:
            caught, by = self._run(fault.tests)
        finally:
            path.write_text(whole)
        seconds = round(time.monotonic() - start, 1)
        return Result(fault.name, caught, by, seconds)

    def _run(self, tests):
        """Return whether a test failed, and which, or how the tests ended."""
        by = "no test ran"
        for marked in COLLECTED:
            code, output = self._pytest([*tests, "-m", marked])
            if code == NO_TESTS:
                continue
            failures = re.findall(
                "^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE
            )
            if code == FAILED and failures:
                return True, failures[0] + " (slow)" * (marked == "slow")
            if code:
                return False, f"pytest ended with {code}: {output[-300:]}"
            by = "all tests passed"
        return False, by

    def _pytest(self, arguments):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no"]
        command += ["-p", "no:cacheprovider", *arguments]
        environment = os.environ | {
            "PYTHONPATH": str(self.root),
            # Two faults may follow each other within a second, which is all
            # that the cache of bytecode distinguishes.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=self.limit,
            )
        except subprocess.TimeoutExpired:
            return "a timeout", f"more than {self.limit:g} s"
        return done.returncode, done.stdout


def try_faults(faults, jobs, limit):
    """Yield a Result for each fault, `jobs` of them at a time."""
    with tempfile.TemporaryDirectory() as folder:
        idle_copies = queue.SimpleQueue()
        for number in range(jobs):
            root = pathlib.Path(folder, str(number))
            copy_project(root)
            idle_copies.put(ProjectCopy(root, limit))

        def try_fault(fault):
            project = idle_copies.get()
            try:
                return project.try_fault(fault)
            finally:
                idle_copies.put(project)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            tried = [pool.submit(try_fault, fault) for fault in faults]
            for done in concurrent.futures.as_completed(tried):
                yield done.result()


def expression(text):
    """Compile a regular expression; argparse reports a ValueError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError from error


def main():
    parser = harness.argument_parser(__doc__)
    add = parser.add_argument
    add(
        "--only",
        type=expression,
        default="",
        help="regular expression of names and files",
    )
    add("--jobs", type=int, default=1, help="test processes at a time")
    add("--limit", type=float, default=900, help="seconds of a test process")
    given = parser.parse_args()
    faults = read_faults(FAULTS.read_text())
    if wrong := find_misfits(faults, ROOT):
        sys.exit("\n".join(wrong))
    faults = [
        fault
        for fault in faults
        if given.only.search(f"{fault.name} {fault.file}")
    ]
    if not faults:
        parser.error(
            f"No fault has {given.only.pattern!r} in its name or file."
        )
    caught = 0
    results = try_faults(faults, given.jobs, given.limit)
    for number, result in enumerate(results, 1):
        caught += result.caught
        print(
            f"{number:3}/{len(faults)} {result.seconds:6.1f} s "
            f"{'caught' if result.caught else 'NOT CAUGHT':10} "
            f"{result.name}: {result.by}",
            flush=True,
        )
    print(f"{caught} of {len(faults)} faults are caught.")
    sys.exit(caught < len(faults))


if __name__ == "__main__":
    main()
