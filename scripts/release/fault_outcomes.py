"""Sums of the outcomes of injected faults in a report of the tests.

    pytest -m "slow or not slow" --junitxml=FILE tests/faults
    python -m scripts.release.fault_outcomes FILE

The fixture count_outcome of tests/conftest.py records them, as properties
"fault/subject/outcome". scripts/results/faults.json is the output of a run.
"""

import json
from xml.etree import ElementTree

from scripts.benchmarks import harness


def count(path) -> dict[str, dict[str, dict[str, int]]]:
    """Return {fault: {subject: {outcome: times}}}, with a subject "all"."""
    found = {}
    for element in ElementTree.parse(path).iter("property"):
        fault, slash, rest = element.get("name").partition("/")
        if slash:
            subject, outcome = rest.split("/")
            for name in (subject, "all"):
                counts = found.setdefault(fault, {}).setdefault(name, {})
                times = int(element.get("value"))
                counts[outcome] = counts.get(outcome, 0) + times
    return {
        fault: dict(sorted(subjects.items(), key=lambda item: item[0] == "all"))
        for fault, subjects in found.items()
    }


def main():
    parser = harness.argument_parser(__doc__)
    parser.add_argument("path", help="XML file of pytest --junitxml")
    print(json.dumps(count(parser.parse_args().path), indent=2))


if __name__ == "__main__":
    main()
