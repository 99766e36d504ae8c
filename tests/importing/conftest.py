"""A fixture: models whose shapes importers compare with."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _kept_abstract_models(kept_abstract_models):
    """Keep the models whose shapes an importer compares with."""
