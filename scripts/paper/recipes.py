"""Selection of the hparams sets small and medium among alternatives.

    python -m scripts.paper.recipes --problem=multi30k_ende \\
        --hparams_set=multi30k_tiny --output_dir=FOLDER --seed=1 --seed=2 \\
        --rows=narrow,small_batches
    python -m scripts.paper.recipes --problem=parallel_text --raw_dir=… \\
        --problem_args=name=tatoeba,languages=en-de,vocab_size=8000 \\
        --hparams_set=multi30k_tiny --output_dir=FOLDER --seed=1 --seed=2 \\
        --rows=small_batches,wide,long

Each row is a recipe, trained to its last step: recipes differ in width, depth
and size of the batches, and in steps, so that all but long take about as long
on two CPU cores. They are compared on the validation split, by the averaged
checkpoints. table3_variations describes how to resume and the other flags.
"""

import statistics

from scripts.paper import (
    reference_runs,
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
)
from t2t_repro.cli import command_line

# 4 + 4 layers of width 128, of which the others vary something.
NARROW = {
    "layer_prepostprocess_dropout": 0.1,
    "batch_tokens": 4_096,
    "learning_rate_constant": 0.1,  # peak 0.1 / sqrt(1000) = 0.0032
    "learning_rate_warmup_steps": 1_000,
    "train_steps": 3_000,
    "save_checkpoints_steps": 100,
}
# Twice the updates, on half as many tokens each.
SMALL_BATCHES = NARROW | {
    "batch_tokens": 2_048,
    "train_steps": 6_000,
    "save_checkpoints_steps": 200,
}
RECIPES = {
    "narrow": NARROW,
    "small_batches": SMALL_BATCHES,
    # For a corpus of more pairs: twice the time.
    "long": SMALL_BATCHES | {"train_steps": 12_000},
    # Four times the weights of the layers, on half as many tokens each.
    "wide": NARROW
    | {
        "hidden_size": 256,
        "filter_size": 1_024,
        "num_hidden_layers": 3,
        "learning_rate_constant": 0.05,  # peak 0.0016
        "batch_tokens": 2_048,
        "train_steps": 2_000,
    },
}
BASE = "narrow"


def main():
    job = table_jobs.job(split="validation", averaged=True)
    score = job.problem.suite.headline
    table_runs.run_all(
        table_rows.Variants(
            {name: table_rows.Variant(r) for name, r in RECIPES.items()}, BASE
        ),
        job,
        lambda results: reference_runs.summarize(results, score),
        lambda results: lay_out(results, score),
        score=score,
    )


def lay_out(results, score) -> str:
    """Format the recipes in Markdown, the best score first."""
    rows = table_layout.by_row(results)
    heading = table_layout.heading(score)

    def mean(name):
        return statistics.fmean(table_layout.values_of_seeds(rows[name], score))

    lines = [
        (
            name,
            table_layout.spread_of_seeds(rows[name], score, 2),
            table_layout.spread_of_seeds(rows[name], "perplexity", 3),
            f"{rows[name][0]['figures']['parameters'] / 1e6:.2f}",
            ", ".join(f"{result['minutes']:.0f}" for result in rows[name]),
        )
        for name in sorted(rows, key=lambda name: -mean(name))
    ]
    columns = "recipe", heading, "perplexity", "10⁶ parameters", "minutes"
    return (
        f"{table_layout.markdown(columns, lines)}\n\n"
        f"{table_layout.provenance(results, score)}\n"
    )


if __name__ == "__main__":
    table_rows.define_flags()
    command_line.run(main)
