"""Fixture: registered definitions, which an imported run names."""

import pytest

from t2t_repro import registry


@pytest.fixture(scope="session")
def definitions():
    """Load the definitions, as commands do."""
    registry.load_definitions()
