"""Table 3 of the paper on any problem, with the paper's results.

    python -m scripts.paper.table3_variations \\
        --problem=wmt14_ende --output_dir=FOLDER

It trains the 20 rows, and scores the development set by beam search with the
last checkpoint: "no checkpoint averaging" (section 6.2). Run it again to
resume; a row with a JSON file is finished. After each row the program writes
the whole table, as `t2t sweep` does. With several --seed it judges the
paper's differences from base; --processes trains several rows at a time.

For a CPU, all rows and the training can be reduced:

    python -m scripts.paper.table3_variations \\
        --problem=multi30k_ende --output_dir=FOLDER \\
        --divide_widths=4 --divide_layers=2 --hparams=batching=packed,…

A row keeps its ratio to base, as table_rows.changes() describes.
"""

from scripts.paper import table_rows, verdicts
from t2t_repro.cli import command_line
from t2t_repro.evaluation.published import TABLE_3
from t2t_repro.sweeps import rows, tables


def main():
    variants = {n: rows.Variant(f"table3_{n}") for n in TABLE_3}
    table = table_rows.table(variants, "base")
    job = table_rows.job(split="validation", averaged=False)
    compared = Table3(job.results_dir, job.score, "base", verdicts.MARGIN)
    table_rows.run(table, job, compared.write)


class Table3(verdicts.Judged):
    """Our rows beside the paper's, and verdicts on its differences."""

    def claims(self, names) -> dict[str, float]:
        """Return the paper's differences in BLEU from its base row."""
        return {
            name: round(TABLE_3[name].bleu - TABLE_3["base"].bleu, 1)
            for name in names
            if name != "base"
        }

    def summarize(self, results) -> tables.Results:
        """Return the summary with the paper's results and verdicts on them."""
        summary = super().summarize(results)
        for entry in summary:
            entry["paper"] = TABLE_3[entry["row"]]._asdict()
        return summary

    def cells(self, row) -> dict[str, str]:
        """Return the cells of our row and of the paper's."""
        paper, number = TABLE_3[row["row"]], tables.number
        parameters = paper.parameters and paper.parameters / 1e6
        claim = row.get("claim", {})
        return super().cells(row) | {
            "paper: perplexity": number(paper.perplexity, 2),
            "paper: BLEU": number(paper.bleu, 1),
            "paper: BLEU − base": number(
                paper.bleu - TABLE_3["base"].bleu, 1, "+"
            ),
            "paper: 10⁶ parameters": number(parameters, 0),
            "paper's difference": claim.get("verdict", ""),
            "detectable": number(claim.get("detectable"), 1),
            "seeds needed": str(claim.get("seeds_needed") or ""),
        }

    def describe(self, results) -> str:
        """Describe the columns of the paper, too."""
        return (
            f"{super().describe(results)} The paper: newstest2013 en-de, "
            "tokenized BLEU; verdicts on its differences by the rule in "
            "scripts/paper/verdicts.py. Detectable: the difference that is "
            "found with a probability of 80%. Seeds needed: of each row, to "
            "find a difference as large as the paper's."
        )


if __name__ == "__main__":
    table_rows.define_flags()
    command_line.run(main)
