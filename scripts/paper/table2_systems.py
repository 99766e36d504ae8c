"""Table 2 of the paper on any problem, with the published systems.

    python -m scripts.paper.table2_systems \\
        --problem=wmt14_ende --output_dir=FOLDER

It trains base and big one after the other, averages their last checkpoints, and
scores the test set. On wmt14_enfr big has its own dropout (section 6.1).
table3_variations describes how to resume and how to reduce the rows.
"""

import functools

from scripts.paper import table_rows
from t2t_repro.cli import command_line, common_flags
from t2t_repro.evaluation.published import TABLE_2
from t2t_repro.sweeps import tables


def main():
    problem = common_flags.problem()
    pair = problem.source_language + problem.target_language
    variants = {
        "base": table_rows.Variant("base"),
        "big": table_rows.Variant("big_enfr" if pair == "enfr" else "big"),
    }
    table_rows.run(
        table_rows.table(variants, "base"),
        table_rows.job(split="test", averaged=True),
        summarize,
        functools.partial(lay_out, pair),
    )


def summarize(results, score) -> list[dict]:
    """Return means, ranges and deviations, a dict per row."""
    scores = dict.fromkeys((score, *_sacrebleu(results)))
    rows = tables.by_row(results)
    return [
        row | {"training_flops": _flops(rows[row["row"]])}
        for row in tables.summarize(results, *scores)
    ]


def lay_out(pair, results, score) -> str:
    """Format the published systems of "ende" or "enfr" and our rows."""
    heading = tables.heading(score)
    rows = [
        (
            name,
            str(row.bleu),
            "",
            "" if row.flops is None else f"{row.flops:.1e}",
        )
        for name, row in TABLE_2.get(pair, {}).items()
    ]
    for name, ours in tables.by_row(results).items():
        scores = [
            tables.spread_of_seeds(ours, each, 2)
            for each in (score, *_sacrebleu(results))
        ]
        scores += [""] * (2 - len(scores))
        rows.append((f"ours: {name}", *scores, f"{_flops(ours):.1e}"))
    columns = "model", heading, "sacreBLEU", "training FLOPs"
    return (
        f"{tables.markdown(columns, rows)}\n\n"
        f"{tables.provenance(results, score)}\n\n"
        f"Our {heading} column is {score}. Published scores: newstest2014, "
        "from Table 2 of the paper; only the convention of the Transformer for "
        "en-de is known, bleu_compound_split with plain quotes. Our FLOPs are "
        "counted; the published ones are time x GPUs x sustained FLOP/s.\n"
    )


def _sacrebleu(results):
    """Return the names of sacreBLEU's scores: none of parses."""
    return ["bleu"] if "bleu" in results[0]["figures"]["scores"] else []


def _flops(results):
    return results[0]["figures"]["training_flops"]


if __name__ == "__main__":
    table_rows.define_flags()
    command_line.run(main)
