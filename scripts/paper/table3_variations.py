"""Table 3 of the paper on any problem: ours beside the paper's, row by row.

    python -m scripts.paper.table3_variations \\
        --problem=wmt14_ende --output_dir=FOLDER

trains the 20 rows one after the other, and scores the development set by beam
search with the last checkpoint: "no checkpoint averaging" (section 6.2). Killed
and started again it goes on; a finished row is a JSON file, and done. After
each row the table is written anew, as table.md and table.json.

On a CPU all rows shrink together, and with them the training:

    python -m scripts.paper.table3_variations \\
        --problem=multi30k_ende --output_dir=FOLDER \\
        --divide_widths=4 --divide_layers=2 --hparams=batching=packed,…

A row stays to base what it is in the paper, as table_rows.changes() says.
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
        lambda results: summary(results, score),
        lambda results: layout(results, score),
    )


def summary(results, score) -> list[dict]:
    """Means, ranges and the paper's figures, a dict a row.

    Args:
        results: of all rows.
        score: of table_layout.convention().
    """
    return [
        {
            "row": name,
            "seeds": [result["seed"] for result in of_row],
            **table_layout.of_seeds(of_row, "perplexity"),
            **table_layout.of_seeds(of_row, score),
            "parameters": of_row[0]["figures"]["parameters"],
            "paper": paper.TABLE_3[name]._asdict(),
        }
        for name, of_row in table_layout.by_row(results).items()
    ]


def layout(results, score) -> str:
    """The table and what it is of, in Markdown."""
    found = table_layout.by_row(results)
    base, heading = found.get("base"), table_layout.heading(score)
    ours = "PPL", heading, f"{heading} − base", "10⁶ parameters"
    columns = [name for column in ours for name in (column, "paper")]
    lines = (
        table_layout.markdown(
            ("row", "differs from base in", *columns),
            [_cells(name, row, base, score) for name, row in found.items()],
        ),
        table_layout.provenance(results, score),
        "PPL is per subword. The paper's: newstest2013 en-de, tokenized BLEU.",
        *(
            [agreement(summary(results, score), score)]
            if base and len(found) > 1
            else []
        ),
    )
    return "\n\n".join(lines) + "\n"


def _cells(name, of_row, base, score):
    """A row of the table."""
    theirs = paper.TABLE_3[name]
    scores = table_layout.figures(of_row, score)
    gain = base and statistics.fmean(scores) - statistics.fmean(
        table_layout.figures(base, score)
    )
    number, spread = table_layout.number, table_layout.spread
    return (
        name,
        about(of_row[0], base and base[0]),
        spread(table_layout.figures(of_row, "perplexity"), 2),
        number(theirs.perplexity, 2),
        spread(scores, 1),
        number(theirs.bleu, 1),
        number(gain, 1, "+"),
        number(theirs.bleu - paper.TABLE_3["base"].bleu, 1, "+"),
        number(of_row[0]["figures"]["parameters"] / 1e6, 2),
        number(theirs.parameters and theirs.parameters / 1e6, 0),
    )


def about(result, base) -> str:
    """What a row was trained with that base was not."""
    if not base:
        return ""
    return ", ".join(
        f"{key}={value}"
        for key, value in result["hparams"].items()
        if value != base["hparams"][key]
    )


def agreement(table, score) -> str:
    """Which rows are on the paper's side of base, by perplexity and BLEU.

    Rows that equal base in the paper have no side.
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
        other = [name for name, (ours, its) in gains.items() if ours * its < 0]
        equal = [n for n, (_, its) in gains.items() if not its and n != "base"]
        lines.append(
            f"{key}: {', '.join(other)} on the other side of base than in the "
            "paper"
            if other
            else f"{key}: every row on the paper's side of base"
        )
        if equal:
            lines[-1] += f" ({', '.join(equal)} equal to base in the paper)"
    return f"Beside base, by {'; by '.join(lines)}."


if __name__ == "__main__":
    table_rows.define_flags()
    flags.adopt_module_key_flags(table_rows)
    common_flags.run(main)
