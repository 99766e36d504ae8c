"""Table 3 of the paper on any problem, with the paper's results.

    python -m scripts.paper.table3_variations \\
        --problem=wmt14_ende --output_dir=FOLDER

It trains the 20 rows, and scores the development set by beam search with the
last checkpoint: "no checkpoint averaging" (section 6.2). Run it again to
resume; a row with a JSON file is finished. After each row the program writes
the whole table, as table.md and table.json. With several --seed it judges the
paper's differences from base; --processes trains several rows at a time.

For a CPU, all rows and the training can be reduced:

    python -m scripts.paper.table3_variations \\
        --problem=multi30k_ende --output_dir=FOLDER \\
        --divide_widths=4 --divide_layers=2 --hparams=batching=packed,…

A row keeps its ratio to base, as table_rows.changes() describes.
"""

import statistics

from scripts.paper import (
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
    verdicts,
)
from t2t_repro.cli import command_line, common_flags
from t2t_repro.evaluation.published import TABLE_3

BASE = "table3_base"


def main():
    names = {name: f"table3_{name}" for name in TABLE_3}
    score = table_layout.convention(common_flags.problem())
    table_runs.run_all(
        table_rows.Table(names, BASE),
        table_jobs.job(split="validation", averaged=False),
        lambda results: summarize(results, score),
        lambda results: lay_out(results, score),
    )


def summarize(results, score) -> list[dict]:
    """Return means, ranges and the paper's results, a dict per row.

    Args:
        results: of all rows.
        score: of table_layout.convention().
    """
    return [
        {
            "row": name,
            "seeds": [result["seed"] for result in row_results],
            **table_layout.statistics_of_seeds(
                row_results, "perplexity", score
            ),
            "parameters": row_results[0]["figures"]["parameters"],
            "paper": TABLE_3[name]._asdict(),
        }
        for name, row_results in table_layout.by_row(results).items()
    ]


def lay_out(results, score) -> str:
    """Format the table and its description in Markdown."""
    rows = table_layout.by_row(results)
    base, heading = rows.get("base"), table_layout.heading(score)
    ours = "PPL", heading, f"{heading} − base", "10⁶ parameters"
    columns = [name for column in ours for name in (column, "paper")]
    lines = (
        table_layout.markdown(
            ("row", "differs from base in", *columns),
            [_cells(name, row, base, score) for name, row in rows.items()],
        ),
        table_layout.provenance(results, score),
        "PPL is per subword. The paper: newstest2013 en-de, tokenized BLEU.",
        *([describe_verdicts(rows, score)] if base and len(rows) > 1 else []),
    )
    return "\n\n".join(lines) + "\n"


def _cells(name, row_results, base, score):
    """Format a row of the table."""
    published = TABLE_3[name]
    scores = table_layout.values_of_seeds(row_results, score)
    gain = base and statistics.fmean(scores) - statistics.fmean(
        table_layout.values_of_seeds(base, score)
    )
    number = table_layout.number
    return (
        name,
        variation(row_results[0], base and base[0]),
        table_layout.spread_of_seeds(row_results, "perplexity", 2),
        number(published.perplexity, 2),
        table_layout.spread(scores, 1),
        number(published.bleu, 1),
        number(gain, 1, "+"),
        number(published.bleu - TABLE_3["base"].bleu, 1, "+"),
        number(row_results[0]["figures"]["parameters"] / 1e6, 2),
        number(published.parameters and published.parameters / 1e6, 0),
    )


def variation(result, base) -> str:
    """Format the hparams of a row that differ from base."""
    if not base:
        return ""
    return ", ".join(
        f"{key}={value}"
        for key, value in result["hparams"].items()
        if value != base["hparams"][key]
    )


def describe_verdicts(rows, score) -> str:
    """Format the verdicts on the paper's differences from base, as a table.

    Args:
        rows: {name: results of its seeds}.
        score: of table_layout.convention().
    """
    ours = {
        name: verdicts.Row(
            table_layout.values_of_seeds(row_results, score),
            table_layout.converged(row_results),
        )
        for name, row_results in rows.items()
    }
    if all(len(row.scores) == 1 for row in ours.values()):
        return "Verdicts need two seeds of a row at least: --seed=1 --seed=2."
    published = TABLE_3["base"].bleu
    claims = {
        name: round(TABLE_3[name].bleu - published, 1)
        for name in rows
        if name != "base"
    }
    heading = table_layout.heading(score)
    number = table_layout.number
    cells = [
        (
            name,
            number(verdict.paper, 1, "+"),
            number(verdict.difference, 1, "+"),
            "{:+.1f} to {:+.1f}".format(*verdict.interval),
            verdict.verdict
            + ("" if ours[name].converged else ", not converged"),
            number(verdict.detectable, 1),
            str(verdict.seeds_needed or ""),
        )
        for name, verdict in verdicts.judge(ours, "base", claims).items()
    ]
    columns = (
        f"{heading} − base",
        "paper",
        "ours",
        "interval",
        "verdict",
        "detectable",
        "seeds needed",
    )
    return (
        f"{table_layout.markdown(columns, cells)}\n\n"
        "Verdicts by the rule in scripts/paper/verdicts.py. Interval: 95%, "
        "corrected for the number of claims. Detectable: the difference that "
        "is found with a probability of 80%. Seeds needed: of each row, to "
        "find a difference as large as the paper's."
    )


if __name__ == "__main__":
    table_rows.define_flags()
    command_line.run(main)
