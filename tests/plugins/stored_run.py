"""The run of number words in tests/fixtures/run, and its export."""

import tarfile

import pytest
from processes import ROOT

FIXTURE = ROOT / "tests" / "fixtures" / "run"
RUN = FIXTURE / "run"  # it and FIXTURE are only to be read


@pytest.fixture(scope="session")
def stored_export(tmp_path_factory):
    """Return the folder of the export, only to be read."""
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(FIXTURE / "export.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "export"
