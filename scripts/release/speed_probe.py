"""Process of compare_commits that measures the search of a version.

    python speed_probe.py RUN FILE

Only the public interface for Python is used, which every version has. It prints
one JSON object of sentences per second: in batches, and one at a time.
"""

import json
import pathlib
import sys
import time

import t2t_repro

SINGLE = 20  # sentences that are translated one at a time


def rate(translate, count):
    """Return sentences per second of a second call, after a first one."""
    translate()
    start = time.perf_counter()
    translate()
    return count / (time.perf_counter() - start)


def main():
    run, file = sys.argv[1:]
    model = t2t_repro.load(run)
    lines = pathlib.Path(file).read_text("utf-8").splitlines()
    single = lines[:SINGLE]
    measured = {
        "batch": rate(lambda: model.translate(lines), len(lines)),
        "single": rate(
            lambda: [model.translate([line]) for line in single], len(single)
        ),
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
