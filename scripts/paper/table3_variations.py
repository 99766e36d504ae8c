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

from scripts.paper import table_rows, verdicts
from t2t_repro.cli import command_line
from t2t_repro.evaluation.published import TABLE_3
from t2t_repro.sweeps import significance, tables

NOTE = "PPL is per subword. The paper: newstest2013 en-de, tokenized BLEU."
RULE = (
    "Verdicts by the rule in scripts/paper/verdicts.py. Interval: 95%, "
    "corrected for the number of claims. Detectable: the difference that is "
    "found with a probability of 80%. Seeds needed: of each row, to find a "
    "difference as large as the paper's."
)


def main():
    variants = {n: table_rows.Variant(f"table3_{n}") for n in TABLE_3}
    table = table_rows.table(variants, "base")
    job = table_rows.job(split="validation", averaged=False)
    table_rows.run(table, job, table_rows.writer(job, summarize, lay_out))


def summarize(results, score) -> list[dict]:
    """Return means, ranges and the paper's results, a dict per row."""
    rows = tables.by_row(results)
    return [
        row
        | {
            "parameters": rows[row["row"]][0]["figures"]["parameters"],
            "paper": TABLE_3[row["row"]]._asdict(),
        }
        for row in tables.summarize(results, "perplexity", score)
    ]


def lay_out(results, score) -> str:
    """Format the table and its description in Markdown."""
    rows = tables.by_row(results)
    base, heading = rows.get("base"), tables.heading(score)
    ours = "PPL", heading, f"{heading} − base", "10⁶ parameters"
    columns = [name for column in ours for name in (column, "paper")]
    parts = [
        tables.markdown(
            ("row", "differs from base in", *columns),
            [_cells(name, row, base, score) for name, row in rows.items()],
        ),
        tables.provenance(results, score),
        NOTE,
    ]
    if base and len(rows) > 1:
        parts.append(describe_verdicts(rows, score))
    return "\n\n".join(parts) + "\n"


def _cells(name, row_results, base, score):
    """Format a row of the table."""
    published, number = TABLE_3[name], tables.number
    first = row_results[0]
    scores = tables.values_of_seeds(row_results, score)
    varied, gain = {}, None
    if base:
        others = tables.values_of_seeds(base, score)
        gain = statistics.fmean(scores) - statistics.fmean(others)
        varied = tables.varied(row_results, base)
    return (
        name,
        ", ".join(f"{key}={value}" for key, value in varied.items()),
        tables.spread_of_seeds(row_results, "perplexity", 2),
        number(published.perplexity, 2),
        tables.spread(scores, 1),
        number(published.bleu, 1),
        number(gain, 1, "+"),
        number(published.bleu - TABLE_3["base"].bleu, 1, "+"),
        number(first["figures"]["parameters"] / 1e6, 2),
        number(published.parameters and published.parameters / 1e6, 0),
    )


def describe_verdicts(rows, score) -> str:
    """Format the verdicts on the paper's differences from base, as a table."""
    ours = significance.rows_of(rows, score)
    if all(len(row.scores) == 1 for row in ours.values()):
        return "Verdicts need two seeds of a row at least: --seed=1 --seed=2."
    published, number = TABLE_3["base"].bleu, tables.number
    claims = {
        name: round(TABLE_3[name].bleu - published, 1)
        for name in rows
        if name != "base"
    }
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
    columns = f"{tables.heading(score)} − base", "paper", "ours"
    columns += "interval", "verdict", "detectable", "seeds needed"
    return f"{tables.markdown(columns, cells)}\n\n{RULE}"


if __name__ == "__main__":
    table_rows.define_flags()
    command_line.run(main)
