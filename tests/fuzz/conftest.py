"""A fixture that imports commands, one after another, in one process."""

import contextlib
import importlib
import sys

import pytest
from absl import flags


@pytest.fixture(scope="session")
def command():
    """Return a context of a command's module, which removes its flags."""

    @contextlib.contextmanager
    def load(name):
        from t2t_repro import common_flags  # noqa: F401, its flags stay

        before, module = set(flags.FLAGS), f"t2t_repro.{name}"
        made = importlib.import_module(module)
        flags.FLAGS.mark_as_parsed()
        yield made
        del sys.modules[module]
        for flag in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, flag)

    return load
