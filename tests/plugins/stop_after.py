"""The option --stop-after: tests that would begin later are skipped.

A machine that is half as fast then reports which tests it left out, and does
not exceed the time that a check of a change may take.
"""

import time

import pytest

_BEGAN = time.monotonic()


def pytest_addoption(parser):
    """Add the option."""
    parser.addoption(
        "--stop-after",
        type=float,
        metavar="SECONDS",
        help="Skip the tests that have not begun after so many seconds.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip a test if the time is up."""
    limit = item.config.getoption("stop_after")
    if limit is not None and time.monotonic() - _BEGAN > limit:
        pytest.skip(f"not begun within {limit:.0f} s")
