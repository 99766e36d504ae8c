"""Reference trainings: packed and bucketed, float32 and bfloat16, some seeds.

    python -m scripts.paper.reference_runs --problem=number_words_ende \\
        --hparams_set=tiny --output_dir=FOLDER --seed=1 --seed=2 --seed=3

reference_curves compares other runs with them: with --record each row becomes
a file in scripts/results/reference_curves/. The program also compares bucketed
with packed batches, and bfloat16 with float32: scores, their difference from
the first row, perplexities, padding. --rows=packed_float32,bucketed_float32
leaves out bfloat16, for a CPU without it. table3_variations describes how to
resume.
"""

from absl import flags

from scripts.paper import (
    reference_curves,
    row_files,
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
    verdicts,
)
from t2t_repro.cli import command_line

BASE = "packed_float32"
ROWS = {
    f"{batching}_{precision}": table_rows.Variant(
        {"batching": batching}, precision
    )
    for precision in ("float32", "bfloat16")
    for batching in ("packed", "bucketed")
}


def main():
    table = table_rows.Variants(ROWS, BASE)
    job = table_jobs.job(split="test", averaged=True)
    score = flags.FLAGS.score or job.problem.suite.headline
    table_runs.run_all(
        table,
        job,
        lambda results: table_layout.summarize(results, score),
        lambda results: lay_out(results, score),
        score=score,
    )
    if flags.FLAGS.record:
        for name in table_rows.select(ROWS, flags.FLAGS.rows):
            print(f"Recorded {record(name, table, job)}.")


def record(name, table, job):
    """Write the reference of a row; return the path of its file."""
    return reference_curves.record(
        f"{job.problem.requested_name}_{name}",
        [
            table_runs.training_folder(table.row(name, seed), job)
            for seed in flags.FLAGS.seed
        ],
        row_files.command_line(),
        job.machine,
    )


def lay_out(results, score) -> str:
    """Format the table in Markdown, with intervals of the differences."""
    rows = table_layout.by_row(results)
    heading = table_layout.heading(score)
    intervals = intervals_from_base(rows, score)
    lines = [
        (
            name,
            table_layout.spread_of_seeds(row_results, score, 2),
            intervals.get(name, ""),
            table_layout.spread_of_seeds(row_results, "perplexity", 3),
            f"{row_results[0]['figures']['padding']:.1%}",
        )
        for name, row_results in rows.items()
    ]
    columns = (
        "row",
        heading,
        f"{heading} − {BASE}, 95% interval",
        "perplexity",
        "padding",
    )
    return (
        f"{table_layout.markdown(columns, lines)}\n\n"
        f"{table_layout.provenance(results, score)}\n"
    )


def intervals_from_base(rows, score) -> dict[str, str]:
    """Return {row: difference from the base row, with its interval}.

    Args:
        rows: {name: results of its seeds}.
        score: name of the score.
    """
    ours = {
        name: verdicts.Row(table_layout.values_of_seeds(row_results, score))
        for name, row_results in rows.items()
    }
    others = {name: 0.0 for name in ours if name != BASE}
    seeds = sum(len(row.scores) - 1 for row in ours.values())
    if BASE not in ours or not others or not seeds:
        return {}
    judged = verdicts.judge(ours, BASE, others)
    return {
        name: f"{v.difference:+.2f} ({v.interval[0]:+.2f} to "
        f"{v.interval[1]:+.2f}): {v.verdict} with no difference"
        for name, v in judged.items()
    }


if __name__ == "__main__":
    flags.DEFINE_string(
        "score", None, "Score of the table (default: the headline metric)."
    )
    flags.DEFINE_bool(
        "record", False, "Write the references that reference_curves reads."
    )
    table_rows.define_flags()
    command_line.run(main)
