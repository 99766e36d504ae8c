"""A fixture that imports commands, one after another, in one process."""

import contextlib
import importlib
import sys

import pytest
from absl import flags


@pytest.fixture(scope="session")
def command():
    """Return a context of a command's module, which removes its flags.

    Modules of flags are removed, too: the next command defines them again.
    """

    @contextlib.contextmanager
    def load(name):
        # Their flags stay.
        from t2t_repro.cli import common_flags  # noqa: F401

        before = set(flags.FLAGS)
        made = importlib.import_module(f"t2t_repro.{name}")
        flags.FLAGS.mark_as_parsed()
        yield made
        added = set(flags.FLAGS) - before
        for module, found in flags.FLAGS.flags_by_module_dict().items():
            if added.intersection(flag.name for flag in found):
                del sys.modules[module]
                package, _, last = module.rpartition(".")
                delattr(sys.modules[package], last)
        for flag in added:
            delattr(flags.FLAGS, flag)

    return load
