"""Fixtures: registered definitions, and models that importers compare with."""

import pytest

from t2t_repro import registry


@pytest.fixture(scope="session")
def definitions():
    """Load the definitions, as commands do."""
    registry.load_definitions()


@pytest.fixture(scope="module", autouse=True)
def _kept_abstract_models(kept_abstract_models):
    """Keep the models whose shapes an importer compares with."""
