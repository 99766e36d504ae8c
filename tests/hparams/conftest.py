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
        old = dataclasses.asdict(build(parent))
        new = dataclasses.asdict(build(name))
        return {key: new[key] for key in new if new[key] != old[key]}

    return differ
