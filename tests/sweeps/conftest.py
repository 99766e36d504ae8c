"""A table of two rows."""

import pytest
from micro_jobs import micro_job

from t2t_repro.sweeps import rows


@pytest.fixture
def micro_table(tmp_path):
    """A table of two rows, and its job."""
    changes = {"train_steps": 10, "save_checkpoints_steps": 2}
    variants = {name: rows.Variant(name, changes) for name in ("base", "big")}
    return rows.Table(variants, "base"), micro_job(tmp_path)
