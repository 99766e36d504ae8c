"""Flags of the programs that train rows."""

import types

import pytest

from scripts.paper import table_rows


@pytest.fixture
def values(monkeypatch):
    """Return the values of the flags, for tests to change."""
    values = types.SimpleNamespace(
        hparams_set=None,
        hparams="",
        divide_widths=1,
        divide_layers=1,
        rows=[],
        tuned=None,
    )
    monkeypatch.setattr(table_rows.flags, "FLAGS", values)
    return values
