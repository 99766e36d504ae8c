"""Registered hparams sets and their differences."""

import dataclasses

import pytest

from t2t_repro import registry


@pytest.fixture(scope="session")
def build():
    """A function of a name: the HParams of that set."""
    return registry.build_hparams


@pytest.fixture(scope="session")
def differences(build):
    """A function of two sets: {field: value} of the first where they differ."""

    def differ(name, parent):
        old = dataclasses.asdict(build(parent)) if parent else {}
        new = dataclasses.asdict(build(name))
        return {
            key: value
            for key, value in new.items()
            if key not in old or old[key] != value
        }

    return differ
