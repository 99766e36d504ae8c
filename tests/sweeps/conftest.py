"""A table of two rows."""

import pytest

from t2t_repro.problem import build_problem
from t2t_repro.sweeps import rows


@pytest.fixture
def micro_table(tmp_path):
    """A table of two rows, and its job."""
    changes = {"train_steps": 10, "save_checkpoints_steps": 2}
    job = rows.Job(
        build_problem("multi30k_ende", {}),
        "validation",
        averaged=False,
        data=tmp_path / "data",
        output_dir=tmp_path / "rows",
        options=rows.Options(results_dir=str(tmp_path / "results")),
    )
    variants = {name: rows.Variant(name, changes) for name in ("base", "big")}
    return rows.Table(variants, "base"), job
