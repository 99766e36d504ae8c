"""One model of six directions on Multi30k, beside six models of one each.

    python -m scripts.paper.multi30k_directions --hparams_set=small \\
        --output_dir=FOLDER --seed=1 --seed=2

The row `many` has as many steps as each of the six, `many_long` as many as all
together. All have the same hparams set and vocabulary size; --problem_args are
those of multi30k_many. They are scored on the test split by the averaged
checkpoints. table3_variations describes how to resume and the other flags.
"""

import statistics

from absl import flags

from scripts.paper import (
    row_files,
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
)
from scripts.paper.commands import Commands
from t2t_repro import fields, prepare, registry
from t2t_repro.cli import command_line
from t2t_repro.problem import build_problem

MANY = "multi30k_many"
# Rows of one direction -> their problems.
SINGLE = {
    "en-de": "multi30k_ende",
    "de-en": "multi30k_ende_rev",
    "en-fr": "multi30k_enfr",
    "fr-en": "multi30k_enfr_rev",
    "de-fr": "multi30k_defr",
    "fr-de": "multi30k_defr_rev",
}
ROWS = (*SINGLE, "many", "many_long")
SCORE = "bleu"
MEAN = "mean"


def main():
    job = table_jobs.job(split="test", averaged=True)
    table, jobs = build_table(), {name: job_of(name, job) for name in ROWS}
    rows = [(row, jobs[row.name]) for row in table.selected_rows()]
    # Before several trainings would wait for it; X and X_rev share data.
    for flags_of_data in dict.fromkeys(
        (*row_job.problem_flags, *row_job.datagen_flags) for _, row_job in rows
    ):
        Commands().run("datagen", *flags_of_data)

    def finished():
        return [
            result
            for name in ROWS
            for result in row_files.finished_rows(table, jobs[name])
            if result["row"] == name
        ]

    def write():
        results = finished()
        table_runs.write_table(job, summarize(results), lay_out(results))

    table_runs.run_queue(rows, measure, write)
    print(f"\n{lay_out(finished())}")


def build_table() -> table_rows.Variants:
    """Return the rows, of which the last has six times the steps."""
    values = flags.FLAGS
    hparams = fields.override(
        registry.build_hparams(values.hparams_set), values.hparams
    )
    rows = dict.fromkeys(ROWS, table_rows.Variant())
    rows["many_long"] = table_rows.Variant(
        {"train_steps": len(SINGLE) * hparams.train_steps}
    )
    return table_rows.Variants(rows, "many")


def job_of(name: str, job: table_jobs.Job) -> table_jobs.Job:
    """Return the job of a row: that of multi30k_many, or of one direction."""
    if name not in SINGLE:
        return job
    problem = build_problem(SINGLE[name])
    others = [
        flag
        for flag in job.problem_flags
        if not flag.startswith(("--problem=", "--problem_args="))
    ]
    return job._replace(
        problem=problem,
        data=prepare.data_folder(job.data.parent, problem),
        problem_flags=(f"--problem={SINGLE[name]}", *others),
    )


def measure(folder, stored) -> dict:
    """Return the figures of a training, with the score of each direction."""
    figures = table_runs.measure_training(folder, stored)
    if directions := stored.get("directions"):
        figures["directions"] = {
            name: scores[SCORE] for name, scores in directions.items()
        }
    return figures


def scores_of(results) -> dict[str, dict[str, list[float]]]:
    """Return {column: {direction: scores of the seeds}}, with means.

    The columns are "single", of models of one direction, and the other rows.
    """
    columns: dict[str, dict[str, list[float]]] = {}
    for name, row_results in table_layout.by_row(results).items():
        if name in SINGLE:
            values = table_layout.values_of_seeds(row_results, SCORE)
            columns.setdefault("single", {})[name] = values
            continue
        columns[name] = {
            direction: [
                r["figures"]["directions"][direction] for r in row_results
            ]
            for direction in row_results[0]["figures"]["directions"]
        }
    for column in columns.values():
        # Of all directions, each with the same number of seeds.
        if (
            column.keys() == SINGLE.keys()
            and len(set(map(len, column.values()))) == 1
        ):
            seeds = zip(*column.values(), strict=True)
            column[MEAN] = [statistics.fmean(values) for values in seeds]
    return columns


def summarize(results) -> list[dict]:
    """Return means and ranges over seeds, a dict per column and direction."""
    return [
        {"column": column, "direction": direction}
        | table_layout.statistics_of(SCORE, values)
        for column, directions in scores_of(results).items()
        for direction, values in directions.items()
    ]


def lay_out(results) -> str:
    """Format a row for each direction in Markdown, and the costs."""
    columns = scores_of(results)
    lines = [
        (
            direction,
            *(
                table_layout.spread(column.get(direction, []), 2)
                for column in columns.values()
            ),
        )
        for direction in (*SINGLE, MEAN)
    ]
    by_row = table_layout.by_row(results)
    costs = (
        f"{name} {row_results[0]['figures']['curve'][-1]['step']:,} steps, "
        f"{statistics.fmean(r['minutes'] for r in row_results):.0f} minutes"
        for name, row_results in by_row.items()
    )
    of_all = [result | {"problem": "Multi30k"} for result in results]
    return (
        f"{table_layout.markdown(('direction', *columns), lines)}\n\n"
        f"{'; '.join(costs)}.\n\n{table_layout.provenance(of_all, SCORE)}\n"
    )


if __name__ == "__main__":
    table_rows.define_flags()
    flags.FLAGS.set_default("problem", MANY)
    flags.FLAGS.set_default("hparams_set", "small")
    command_line.run(main)
