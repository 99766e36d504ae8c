"""Table 3 of the paper on any problem, with the paper's results.

    python -m scripts.paper.table3_variations \\
        --problem=wmt14_ende --output_dir=FOLDER

It trains the 20 rows one after the other, and scores the development set by
beam search with the last checkpoint: "no checkpoint averaging" (section 6.2).
Run it again to resume; a row with a JSON file is finished. After each row the
program writes the whole table, as table.md and table.json.

For a CPU, all rows and the training can be reduced:

    python -m scripts.paper.table3_variations \\
        --problem=multi30k_ende --output_dir=FOLDER \\
        --divide_widths=4 --divide_layers=2 --hparams=batching=packed,…

A row keeps its ratio to base, as table_rows.changes() describes.
"""

import statistics

from absl import flags

from scripts.paper import table_jobs, table_layout, table_rows, table_runs
from t2t_repro import common_flags
from t2t_repro.reports import paper

BASE = "table3_base"


def main():
    names = {name: f"table3_{name}" for name in paper.TABLE_3}
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
            **table_layout.mean_of_seeds(row_results, "perplexity"),
            **table_layout.mean_of_seeds(row_results, score),
            "parameters": row_results[0]["figures"]["parameters"],
            "paper": paper.TABLE_3[name]._asdict(),
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
        *(
            [agreement(summarize(results, score), score)]
            if base and len(rows) > 1
            else []
        ),
    )
    return "\n\n".join(lines) + "\n"


def _cells(name, row_results, base, score):
    """Format a row of the table."""
    published = paper.TABLE_3[name]
    scores = table_layout.values_of_seeds(row_results, score)
    gain = base and statistics.fmean(scores) - statistics.fmean(
        table_layout.values_of_seeds(base, score)
    )
    number, spread = table_layout.number, table_layout.spread
    return (
        name,
        variation(row_results[0], base and base[0]),
        spread(table_layout.values_of_seeds(row_results, "perplexity"), 2),
        number(published.perplexity, 2),
        spread(scores, 1),
        number(published.bleu, 1),
        number(gain, 1, "+"),
        number(published.bleu - paper.TABLE_3["base"].bleu, 1, "+"),
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


def agreement(table, score) -> str:
    """Describe which rows differ from base in the same direction as published.

    Rows that equal base in the paper have no direction.
    """
    by_name = {row["row"]: row for row in table}
    base, lines = by_name["base"], []
    for key, paper_key in (("perplexity", "perplexity"), (score, "bleu")):
        gains = {
            name: (
                row[key] - base[key],
                row["paper"][paper_key] - base["paper"][paper_key],
            )
            for name, row in by_name.items()
        }
        opposite = [name for name, (a, b) in gains.items() if a * b < 0]
        equal = [
            n for n, (_, gain) in gains.items() if not gain and n != "base"
        ]
        lines.append(
            f"{key}: {', '.join(opposite)} on the other side of base than in "
            "the paper"
            if opposite
            else f"{key}: every row on the same side of base as in the paper"
        )
        if equal:
            lines[-1] += f" ({', '.join(equal)} equal to base in the paper)"
    return f"Relative to base, by {'; by '.join(lines)}."


if __name__ == "__main__":
    table_rows.define_flags()
    flags.adopt_module_key_flags(table_rows)
    common_flags.run(main)
