"""Table 3 of the paper on any problem: ours beside the paper's, row by row.

    python scripts/table3.py --problem=wmt14_ende --output_dir=FOLDER

trains the 20 rows one after the other, and scores the development set by beam
search with the last checkpoint: "no checkpoint averaging" (section 6.2). Killed
and started again it goes on; a finished row is a JSON file, and done. After
each row the table is written anew, as table.md and table.json.

On a CPU all rows shrink together, and with them the training:

    python scripts/table3.py --problem=multi30k_ende --output_dir=FOLDER \\
        --divide_widths=4 --divide_layers=2 --hparams=batching=packed,…

A row stays to base what it is in the paper, as table_rows.changes() says.
"""

import statistics

import table_layout
import table_rows
import table_runs
from absl import flags

from t2t_repro import common_flags, files
from t2t_repro.reports import paper

BASE = "table3_base"
COLUMNS = (
    "row",
    "differs from base in",
    "PPL",
    "paper",
    "BLEU",
    "paper",
    "BLEU − base",
    "paper",
    "10⁶ parameters",
    "paper",
)


def main():
    names = {name: f"table3_{name}" for name in paper.TABLE_3}
    rows = table_rows.rows(names, BASE)
    job = table_runs.job(split="validation", averaged=False)
    results = []
    for done, row in enumerate(rows, 1):
        print(f"\nRow {done} of {len(rows)}: {row.name}, seed {row.seed}.")
        results.append(table_runs.run(row, job))
        files.write_json(job.results_dir / "table.json", summary(results))
        files.write_text(job.results_dir / "table.md", layout(results))
    print(f"\n{layout(results)}")


def by_row(results):
    """{row: its results, one for each seed}, in the paper's order."""
    found = {}
    for name in paper.TABLE_3:
        of_row = [result for result in results if result["row"] == name]
        if of_row:
            found[name] = of_row
    return found


def summary(results) -> list[dict]:
    """Means, ranges and the paper's figures, a dict a row."""
    table = []
    for name, of_row in by_row(results).items():
        perplexities = [r["figures"]["perplexity"] for r in of_row]
        scores = [r["figures"]["scores"]["bleu"] for r in of_row]
        row = {"row": name, "seeds": [r["seed"] for r in of_row]}
        for key, values in (("perplexity", perplexities), ("bleu", scores)):
            row[key] = statistics.fmean(values)
            row[f"{key}_range"] = [min(values), max(values)]
        row["parameters"] = of_row[0]["figures"]["parameters"]
        table.append(row | {"paper": paper.TABLE_3[name]._asdict()})
    return table


def layout(results) -> str:
    """The table and what it is of, in Markdown."""
    found = by_row(results)
    base = found.get("base")
    rows = [_cells(name, of_row, base) for name, of_row in found.items()]
    first = results[0]
    seeds = sorted({result["seed"] for result in results})
    lines = (
        table_layout.markdown(COLUMNS, rows),
        f"Ours: {first['problem']}, {first['split']} split, "
        f"{first['hparams']['train_steps']:,} steps of "
        f"{first['hparams']['batch_tokens']:,} tokens, "
        f"{first['hparams']['hidden_size']} wide in the first row; mean and "
        f"range of seeds {', '.join(map(str, seeds))}. PPL is per subword, "
        f"BLEU {first['figures']['scores']['signature']}.",
        "The paper's: newstest2013 en-de, tokenized BLEU.",
        *([agreement(summary(results))] if base and len(found) > 1 else []),
    )
    return "\n\n".join(lines) + "\n"


def _cells(name, of_row, base):
    """A row of the table."""
    theirs = paper.TABLE_3[name]
    scores = [r["figures"]["scores"]["bleu"] for r in of_row]
    gain = base and statistics.fmean(scores) - statistics.fmean(
        r["figures"]["scores"]["bleu"] for r in base
    )
    perplexities = [r["figures"]["perplexity"] for r in of_row]
    count = of_row[0]["figures"]["parameters"]
    their_count = theirs.parameters and theirs.parameters / 1e6
    return (
        name,
        about(of_row[0], base and base[0]),
        table_layout.spread(perplexities, 2),
        table_layout.number(theirs.perplexity, 2),
        table_layout.spread(scores, 1),
        table_layout.number(theirs.bleu, 1),
        table_layout.number(gain, 1, "+"),
        table_layout.number(theirs.bleu - paper.TABLE_3["base"].bleu, 1, "+"),
        table_layout.number(count / 1e6, 2),
        table_layout.number(their_count, 0),
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


def agreement(table) -> str:
    """Which rows are on the paper's side of base, by perplexity and BLEU."""
    by_name = {row["row"]: row for row in table}
    base, lines = by_name["base"], []
    for key in ("perplexity", "bleu"):
        other = [
            name
            for name, row in by_name.items()
            if (row[key] - base[key]) * (row["paper"][key] - base["paper"][key])
            < 0
        ]
        lines.append(
            f"{key}: {', '.join(other)} on the other side of base than in the "
            "paper"
            if other
            else f"{key}: every row on the paper's side of base"
        )
    return f"Of {len(by_name) - 1} rows beside base, by {'; by '.join(lines)}."


if __name__ == "__main__":
    table_rows.define_flags()
    flags.adopt_module_key_flags(table_rows)
    common_flags.run(main)
