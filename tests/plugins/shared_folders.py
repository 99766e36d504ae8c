"""Plugin for --dist=loadfile: one worker runs all files of some folders.

Their session fixtures train or export a model; each worker would build its own.
"""

import pytest

# Each row is run by one worker.
SHARED_FOLDERS = [("tests/commands/",), ("tests/serving/", "tests/server/")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Return a scheduler that keeps folders together; None: xdist's own."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SharedFolderScheduling(LoadFileScheduling):
        """Scheduler whose scopes are files, or whole folders."""

        def _split_scope(self, nodeid):
            for folders in SHARED_FOLDERS:
                if nodeid.startswith(folders):
                    return folders[0]
            return super()._split_scope(nodeid)

    return SharedFolderScheduling(config, log)
