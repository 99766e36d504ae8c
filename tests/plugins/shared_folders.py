"""Plugin for --dist=loadfile: one worker runs all files of some folders.

Their session fixtures train or export a model; each worker would build its own.
"""

import pytest

SHARED_FOLDERS = ("tests/commands/", "tests/serving/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Return a scheduler that keeps folders together; None: xdist's own."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SharedFolderScheduling(LoadFileScheduling):
        """Scheduler whose scopes are files, or whole folders."""

        def _split_scope(self, nodeid):
            for folder in SHARED_FOLDERS:
                if nodeid.startswith(folder):
                    return folder
            return super()._split_scope(nodeid)

    return SharedFolderScheduling(config, log)
