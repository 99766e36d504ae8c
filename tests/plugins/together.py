"""Test files that share dear fixtures stay with one worker."""

import pytest

# Files whose fixtures are dear, by the folder that has these: they stay with
# one of two workers, so that it alone makes them.
TOGETHER = {
    "commands": "bad_input decoder evaluate end_to_end serve",
    "faults": "clock commands_killed exports full_disk killed read_only",
    "serving": "attention client configs export page rest rpc versions "
    "without_python",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """loadfile, of files and of TOGETHER's groups where workers are two."""
    if config.getoption("dist") != "loadfile" or config.option.tx != 2 * [
        "popen"
    ]:
        return None
    from xdist.scheduler import LoadFileScheduling

    groups = {
        f"tests/{folder}/test_{name}.py": folder
        for folder, names in TOGETHER.items()
        for name in names.split()
    }

    class ByFixtures(LoadFileScheduling):
        """Units are files, or groups of them."""

        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return groups.get(file, file)

    return ByFixtures(config, log)
