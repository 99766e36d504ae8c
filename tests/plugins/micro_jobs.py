"""What the rows of a table share, in tests that train none."""

from t2t_repro.problem import build_problem
from t2t_repro.sweeps import rows


def micro_job(folder):
    """Return a job whose data, trainings and results are below a folder."""
    return rows.Job(
        build_problem("multi30k_ende", {}),
        "validation",
        averaged=False,
        data=folder / "data",
        output_dir=folder / "rows",
        options=rows.Options(results_dir=str(folder / "results")),
    )
