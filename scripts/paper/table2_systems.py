"""Table 2 of the paper on any problem: ours beside the published systems.

    python -m scripts.paper.table2_systems \\
        --problem=wmt14_ende --output_dir=FOLDER

trains base and big one after the other (on wmt14_enfr big with its own dropout,
section 6.1), averages their last checkpoints, and scores the test set. It is
resumed and reduced as table3.py is.
"""

from absl import flags

from scripts.paper import table_jobs, table_layout, table_rows, table_runs
from t2t_repro import common_flags
from t2t_repro.reports import paper

BASE = "base"


def main():
    problem = common_flags.problem()
    pair = language_pair(problem)
    names = {"base": "base", "big": "big_enfr" if pair == "enfr" else "big"}
    score = table_layout.convention(problem)
    table_runs.run_all(
        table_rows.Table(names, BASE),
        table_jobs.job(split="test", averaged=True),
        lambda results: summary(results, score),
        lambda results: layout(results, pair, score),
    )


def language_pair(problem) -> str:
    """ "ende" of English to German."""
    return problem.source_language + problem.target_language


def summary(results, score) -> list[dict]:
    """Means and ranges, a dict a row."""
    return [
        {
            "row": name,
            "seeds": [result["seed"] for result in of_row],
            **table_layout.of_seeds(of_row, score),
            **_sacrebleu(of_row, table_layout.of_seeds, {}),
            "training_flops": of_row[0]["figures"]["training_flops"],
        }
        for name, of_row in table_layout.by_row(results).items()
    ]


def layout(results, pair, score) -> str:
    """Published systems of the language pair, then ours, in Markdown.

    Args:
        results: of all rows.
        pair: of language_pair().
        score: of table_layout.convention().
    """
    heading = table_layout.heading(score)
    published = [
        (name, str(row.bleu), "", flops(row.flops))
        for name, row in paper.TABLE_2.get(pair, {}).items()
    ]
    ours = [
        (
            f"ours: {name}",
            _spread(of_row, score),
            _sacrebleu(of_row, _spread, ""),
            flops(of_row[0]["figures"]["training_flops"]),
        )
        for name, of_row in table_layout.by_row(results).items()
    ]
    lines = (
        table_layout.markdown(
            ("model", heading, "sacreBLEU", "training FLOPs"), published + ours
        ),
        table_layout.provenance(results, score),
        f"The {heading} column of ours is {score}. Published: newstest2014, as "
        "the paper's Table 2 has it; of its conventions only that of the "
        "Transformers' en-de is known, bleu_compound_split of plain quotes. "
        "FLOPs of ours are counted; the published are time x GPUs x what a GPU "
        "sustains.",
    )
    return "\n\n".join(lines) + "\n"


def _spread(of_row, score):
    return table_layout.spread(table_layout.figures(of_row, score), 2)


def _sacrebleu(of_row, measure, missing):
    """A function of the row's "bleu"; `missing` where its problem has none."""
    named = "bleu" in of_row[0]["figures"]["scores"]
    return measure(of_row, "bleu") if named else missing


def flops(count: float | None) -> str:
    """As in the paper: 3.3e+18, or nothing."""
    return "" if count is None else f"{count:.1e}"


if __name__ == "__main__":
    table_rows.define_flags()
    flags.adopt_module_key_flags(table_rows)
    common_flags.run(main)
