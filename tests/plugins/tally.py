"""The fixture `tally`, and what was tallied at the end of a run."""

import collections
import json
import os
import pathlib

import pytest


@pytest.fixture
def tally(record_property):
    """A function of a fault, what it hit, how that ended, and how often."""

    def count(fault, subject, outcome, times=1):
        record_property("fault", (fault, subject, outcome, times))

    return count


def pytest_terminal_summary(terminalreporter):
    """What was tallied; with T2T_FAULTS=FILE it goes to that file, too."""
    counts = collections.Counter()
    for report in sum(terminalreporter.stats.values(), []):
        if getattr(report, "when", None) == "call":
            for name, value in report.user_properties:
                if name == "fault":
                    counts[tuple(value[:3])] += value[3]
    told = {}
    for (fault, subject, outcome), times in sorted(counts.items()):
        told.setdefault(fault, {}).setdefault(subject, {})[outcome] = times
    for fault, subjects in told.items():
        terminalreporter.section(fault)
        every = collections.Counter()
        for outcomes in subjects.values():
            every.update(outcomes)
        subjects["all"] = every
        for subject, outcomes in subjects.items():
            text = ", ".join(f"{n} {how}" for how, n in outcomes.items())
            terminalreporter.line(f"{subject}: {text}")
    if counts and "T2T_FAULTS" in os.environ:
        path = pathlib.Path(os.environ["T2T_FAULTS"])
        path.write_text(json.dumps(told, indent=2) + "\n")
