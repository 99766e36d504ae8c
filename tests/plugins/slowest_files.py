"""Plugin that prints the ten slowest files at the end of a test run."""

import collections

SHOWN = 10


def pytest_terminal_summary(terminalreporter):
    """Print the seconds of the slowest files, including their fixtures."""
    seconds = collections.Counter()
    for report in sum(terminalreporter.stats.values(), []):
        if hasattr(report, "duration") and hasattr(report, "nodeid"):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > SHOWN:
        terminalreporter.section(f"{SHOWN} slowest files")
        for file, total in seconds.most_common(SHOWN):
            terminalreporter.line(f"{total:7.1f} s {file}")
