"""Plugin that counts how commands survive faults, and prints JSON of the sums.

scripts/results/faults.json has what this printed:

    pytest -m "slow or not slow" tests/faults tests/data/test_killed.py
"""

import collections
import json

import pytest


@pytest.fixture
def count_outcome(record_property):
    """Return a function that counts the outcomes of injected faults.

    Its arguments are the fault, the damaged thing, the outcome and the count.
    """

    def count(fault, subject, outcome, times=1):
        record_property(f"{fault}/{subject}/{outcome}", times)

    return count


def pytest_terminal_summary(terminalreporter):
    """Print {fault: {subject: {outcome: times}}}, with a subject "all"."""
    counts = collections.Counter()
    for report in sum(terminalreporter.stats.values(), []):
        if getattr(report, "when", None) == "call":
            for name, times in report.user_properties:
                fault, subject, outcome = name.split("/")
                counts[fault, subject, outcome] += times
                counts[fault, "all", outcome] += times
    found = {}
    for key in sorted(counts, key=lambda key: key[1] == "all"):
        fault, subject, outcome = key
        subjects = found.setdefault(fault, {})
        subjects.setdefault(subject, {})[outcome] = counts[key]
    if found:
        terminalreporter.section("outcomes of faults")
        terminalreporter.line(json.dumps(found))
