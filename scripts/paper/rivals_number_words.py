"""The paper's rivals on number words: exact match and minutes.

    python -m scripts.paper.rivals_number_words --output_dir=FOLDER

Each model has its hparams set X_tiny, with all of its steps, and is scored on
numbers that do not occur in the training text. table3_variations describes how
to resume and the other flags.
"""

import statistics

from absl import flags

from scripts.paper import table_jobs, table_layout, table_rows, table_runs
from t2t_repro.cli import command_line

SCORE = "exact_match"
SETS = {
    "transformer": "tiny",
    "gnmt": "gnmt_tiny",
    "deep_att": "deep_att_tiny",
    "convs2s": "convs2s_tiny",
    "bytenet": "bytenet_tiny",
    "moe": "moe_tiny",
    "transformer_moe": "transformer_moe_tiny",
    "neural_gpu": "neural_gpu_tiny",
}
COLUMNS = (
    "model",
    "exact match: %",
    "perplexity",
    "10⁶ parameters",
    "steps",
    "FLOPs",
    "minutes",
)


def main():
    table_runs.run_all(
        table_rows.Table(SETS, "tiny"),
        table_jobs.job(split="test", averaged=True),
        summarize,
        lay_out,
        score=SCORE,
    )


def summarize(results) -> list[dict]:
    """Return means, ranges and costs, a dict per model."""
    return [
        {
            "row": name,
            "hparams_set": SETS[name],
            "seeds": [result["seed"] for result in row_results],
            **table_layout.statistics_of_seeds(
                row_results, SCORE, "perplexity"
            ),
            "minutes": [result["minutes"] for result in row_results],
        }
        for name, row_results in table_layout.by_row(results).items()
    ]


def lay_out(results) -> str:
    """Format the models in Markdown."""
    lines = []
    for name, row_results in table_layout.by_row(results).items():
        figures = row_results[0]["figures"]
        minutes = statistics.fmean(r["minutes"] for r in row_results)
        lines.append(
            (
                name,
                *(
                    table_layout.spread_of_seeds(row_results, figure, 2)
                    for figure in (SCORE, "perplexity")
                ),
                f"{figures['parameters'] / 1e6:.2f}",
                f"{figures['curve'][-1]['step']:,}",
                f"{figures['training_flops']:.2g}",
                f"{minutes:.0f}",
            )
        )
    return (
        f"{table_layout.markdown(COLUMNS, lines)}\n\n"
        f"{table_layout.provenance(results, SCORE)}\n"
    )


if __name__ == "__main__":
    table_rows.define_flags()
    flags.FLAGS.set_default("problem", "number_words_ende")
    command_line.run(main)
