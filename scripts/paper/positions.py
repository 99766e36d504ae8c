"""BLEU of sinusoids and learned positions beyond the training length.

    python -m scripts.paper.positions \\
        --problem=multi30k_ende --output_dir=FOLDER --hparams=max_length=16,…

"It may allow the model to extrapolate to sequence lengths longer than the ones
encountered during training", section 3.5 says of sinusoids. This program trains
both kinds on the pairs of at most max_length subwords per side. They translate
the whole test set, which is scored by the length of the source.
table3_variations describes how to resume and how to reduce the rows.
"""

import statistics

from scripts.paper import (
    row_files,
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
)
from t2t_repro import (
    command_line,
    common_flags,
    errors,
    prepare,
    run_json,
    runs,
)
from t2t_repro.data import manifest
from t2t_repro.metrics import scores
from t2t_repro.metrics.suite import Suite
from t2t_repro.text import parallel_files

BASE = "table3_base"
ROWS = {"sinusoids": BASE, "learned": "table3_e_learned_positions"}
SPLIT = "test"
# Upper ends of the length classes, as multiples of the training length.
ENDS = (0.5, 1.0, 1.25, 1.5, 2.0)


def main():
    job = table_jobs.job(SPLIT, averaged=False)
    table = table_rows.Table(ROWS, BASE)

    def check(rows):
        test_set = _test_set(job.problem, common_flags.data_dir())
        longest = test_set.lengths["inputs"].max()
        for row in rows:
            hparams = row_files.row_settings(row, job)["hparams"]
            require_longer(longest, hparams["max_length"])

    table_runs.run_all(table, job, summarize, lay_out, measure, check)


def require_longer(longest, trained):
    """Raise a UserError if no source is longer than the training length."""
    if longest <= trained:
        raise errors.UserError(
            f"No source is longer than the training length, "
            f"max_length={trained}: the longest has {longest} subwords. Lower "
            "--hparams=max_length=…."
        )


def _test_set(problem, data_dir):
    folder = prepare.data_folder(data_dir, problem)
    return manifest.open_corpus(folder, SPLIT, problem.reverse)


def measure(folder, stored) -> dict:
    """Return the figures of a training, and BLEU by source length."""
    run = runs.open_run(folder)
    corpus = _test_set(run.problem, run.settings["data_dir"])
    path = folder / run_json.TRANSLATIONS / f"{SPLIT}.txt"
    by_length = score_by_length(
        corpus.lengths["inputs"].tolist(),
        list(parallel_files.read_lines(path)),
        corpus.text("targets"),
        run.hparams.max_length,
    )
    return table_runs.measure_training(folder, stored) | {
        "by_length": by_length
    }


def length_classes(lengths, trained) -> dict[tuple[int, int | None], list[int]]:
    """Return {(shortest, longest): indices}, without empty classes.

    Args:
        lengths: of the sources, in subwords with EOS.
        trained: the longest length in training.
    """
    ends = [int(trained * end) for end in ENDS]
    bounds = zip([0, *ends], [*ends, None], strict=True)
    classes = {}
    for before, end in bounds:
        within = [
            i
            for i, length in enumerate(lengths)
            if before < length and (end is None or length <= end)
        ]
        if within:
            classes[before + 1, end] = within
    return classes


def score_by_length(lengths, hypotheses, references, trained) -> list[dict]:
    """Return BLEU of each class of source lengths.

    Args:
        lengths: of the sources, in subwords with EOS.
        hypotheses: [sentences].
        references: [sentences].
        trained: the longest length in training.
    """
    table = []
    for (first, last), chosen in length_classes(lengths, trained).items():
        scored = scores.score(
            Suite(("bleu",)),
            [hypotheses[i] for i in chosen],
            [[references[i] for i in chosen]],
        )
        table.append(
            {
                "first": first,
                "last": last,
                "sentences": len(chosen),
                "bleu": scored["bleu"].value,
                "signature": scored["bleu"].signature,
            }
        )
    return table


def summarize(results) -> list[dict]:
    """Return statistics over seeds, a dict per class of lengths."""
    table = []
    for name, row_results in table_layout.by_row(results).items():
        tables = [result["figures"]["by_length"] for result in row_results]
        for same in zip(*tables, strict=True):
            shape = {k: same[0][k] for k in ("first", "last", "sentences")}
            bleu = [entry["bleu"] for entry in same]
            table.append(
                {"row": name} | shape | table_layout.statistics_of("bleu", bleu)
            )
    return table


def lay_out(results) -> str:
    """Format the table in Markdown, with a row per class of lengths."""
    rows = table_layout.by_row(results)
    trained = results[0]["hparams"]["max_length"]
    tables = {
        name: list(
            zip(*(r["figures"]["by_length"] for r in row_results), strict=True)
        )
        for name, row_results in rows.items()
    }
    lines = []
    for same in zip(*tables.values(), strict=True):
        bleu = [[entry["bleu"] for entry in seeds] for seeds in same]
        shape = same[0][0]
        cells = [table_layout.spread(values, 1) for values in bleu]
        if len(bleu) == 2:
            gain = statistics.fmean(bleu[0]) - statistics.fmean(bleu[1])
            cells.append(table_layout.number(gain, 1, "+"))
        lines.append((_name(shape, trained), str(shape["sentences"]), *cells))
    titles = [f"BLEU, {name}" for name in tables]
    more = ["sinusoids − learned"] if len(tables) == 2 else []
    columns = ["source subwords", "sentences", *titles, *more]
    provenance = table_layout.provenance(results)
    return f"{table_layout.markdown(columns, lines)}\n\n{provenance}\n"


def _name(shape, trained):
    last = "…" if shape["last"] is None else shape["last"]
    beyond = ", beyond training" if shape["first"] > trained else ""
    return f"{shape['first']}–{last}{beyond}"


if __name__ == "__main__":
    table_rows.define_flags()
    command_line.run(main)
