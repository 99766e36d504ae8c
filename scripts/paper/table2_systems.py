"""Table 2 of the paper on any problem, with the published systems.

    python -m scripts.paper.table2_systems \\
        --problem=wmt14_ende --output_dir=FOLDER

It trains base and big one after the other, averages their last checkpoints, and
scores the test set. On wmt14_enfr big has its own dropout (section 6.1).
table3_variations describes how to resume and how to reduce the rows.
"""

from scripts.paper import table_jobs, table_layout, table_rows, table_runs
from t2t_repro.cli import command_line, common_flags
from t2t_repro.evaluation.published import TABLE_2

BASE = "base"


def main():
    problem = common_flags.problem()
    pair = language_pair(problem)
    names = {"base": "base", "big": "big_enfr" if pair == "enfr" else "big"}
    score = table_layout.convention(problem)
    table_runs.run_all(
        table_rows.Table(names, BASE),
        table_jobs.job(split="test", averaged=True),
        lambda results: summarize(results, score),
        lambda results: lay_out(results, pair, score),
    )


def language_pair(problem) -> str:
    """Return the pair of languages: "ende" for English to German."""
    return problem.source_language + problem.target_language


def summarize(results, score) -> list[dict]:
    """Return means, ranges and deviations, a dict per row."""
    return [
        {
            "row": name,
            "seeds": [result["seed"] for result in row_results],
            **table_layout.statistics_of_seeds(row_results, score),
            **_sacrebleu(row_results, table_layout.statistics_of_seeds, {}),
            "training_flops": row_results[0]["figures"]["training_flops"],
        }
        for name, row_results in table_layout.by_row(results).items()
    ]


def lay_out(results, pair, score) -> str:
    """Format the published systems and our rows in Markdown.

    Args:
        results: of all rows.
        pair: of language_pair().
        score: of table_layout.convention().
    """
    heading = table_layout.heading(score)
    published = [
        (name, str(row.bleu), "", flops(row.flops))
        for name, row in TABLE_2.get(pair, {}).items()
    ]
    ours = [
        (
            f"ours: {name}",
            _spread(row_results, score),
            _sacrebleu(row_results, _spread, ""),
            flops(row_results[0]["figures"]["training_flops"]),
        )
        for name, row_results in table_layout.by_row(results).items()
    ]
    lines = (
        table_layout.markdown(
            ("model", heading, "sacreBLEU", "training FLOPs"), published + ours
        ),
        table_layout.provenance(results, score),
        f"Our {heading} column is {score}. Published scores: newstest2014, "
        "from Table 2 of the paper; only the convention of the Transformer for "
        "en-de is known, bleu_compound_split with plain quotes. Our FLOPs are "
        "counted; the published ones are time x GPUs x sustained FLOP/s.",
    )
    return "\n\n".join(lines) + "\n"


def _spread(row_results, score):
    return table_layout.spread_of_seeds(row_results, score, 2)


def _sacrebleu(row_results, measure, missing):
    """Apply `measure` to "bleu", or return `missing` without that score."""
    named = "bleu" in row_results[0]["figures"]["scores"]
    return measure(row_results, "bleu") if named else missing


def flops(count: float | None) -> str:
    """Format FLOPs as in the paper: 3.3e+18. None is an empty string."""
    return "" if count is None else f"{count:.1e}"


if __name__ == "__main__":
    table_rows.define_flags()
    command_line.run(main)
