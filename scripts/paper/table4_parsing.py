"""A parser's row of Table 4, with the paper's and a trivial parser's rows.

    python -m scripts.paper.table4_parsing OUTPUT_DIR

OUTPUT_DIR is a training of wsj_parsing or wsj_parsing_semi, after ``evaluate
--split=test``. The program prints a table, and one JSON line at the end.
"""

import json
import sys

from scripts.benchmarks import harness
from t2t_repro import errors, prepare, registry
from t2t_repro.data import manifest
from t2t_repro.evaluation import published
from t2t_repro.metrics import parsing, scores
from t2t_repro.runs.run import Run
from t2t_repro.sweeps import tables
from t2t_repro.text import trees
from t2t_repro.text.trees import Span, Tree

COLUMNS = {  # metrics of parses, and their columns
    "bracketing_f1": "F1",
    "bracketing_precision": "precision",
    "bracketing_recall": "recall",
    "bracketing_exact_match": "exact match",
    "unbalanced_trees": "unbalanced",
    "miscounted_trees": "miscounted",
}


def main(output_dir):
    registry.load_definitions()
    run = Run.open(output_dir)
    if run.problem.requested_name not in published.PARSERS:
        raise errors.UserError(
            f"{output_dir} is a training of {run.problem.requested_name}; "
            f"Table 4 is of {' and '.join(published.PARSERS)}."
        )
    if (stored := run.stored_scores().get("test")) is None:
        raise errors.UserError(
            f"There are no scores of the test set in {run.translations_folder}."
            " Run evaluate with --split=test first."
        )
    row = _row(run, stored)
    print(lay_out(row))
    print(json.dumps(row))


def _row(run, stored):
    """Return the JSON row of a training."""
    folder = prepare.data_folder(run.settings["data_dir"], run.problem)
    corpus = manifest.open_corpus(folder, "test")
    baseline = right_branching_scores(
        run.problem.suite, corpus.text("inputs"), corpus.text("targets")
    )
    return {
        "problem": run.problem.requested_name,
        "hparams_set": run.settings["hparams_set"],
        "checkpoints": stored["checkpoints"],
        "decode_hparams": stored["decode_hparams"],
        "test_trees": len(corpus),
        "test_source": manifest.read(folder)["sources"]["test"],
        "scores": {key: stored[key] for key in baseline},
        "right_branching": baseline,
    }


def right_branching(gold: Tree) -> Tree:
    """Return a trivial parse: every word but the last opens a constituent.

    The first is S and the others are VP, the usual labels of constituents that
    reach to the end of an English sentence. A final punctuation mark is a child
    of S.
    """
    length = len(gold.words)
    last = length - (
        gold.tags[-1:] != () and gold.tags[-1] in trees.PUNCTUATION
    )
    inner = (Span("VP", first, last) for first in range(1, last - 1))
    outer = [Span("S", 0, length)] if length else []
    return gold._replace(spans=(*outer, *inner))


def right_branching_scores(suite, sentences, references) -> dict:
    """Return the scores of the trivial parses, as evaluate stores them."""
    golds = parsing.read_references(sentences, references)
    parses = [trees.write_line(right_branching(gold)) for gold in golds]
    values = scores.score(suite, parses, [references], sentences)
    return scores.values_and_signature(suite.build(), values)


def lay_out(row) -> str:
    """Format the table in Markdown."""
    training = published.PARSERS[row["problem"]].training
    trees = f"{row['test_trees']:,} trees"
    if row["test_trees"] != published.SECTION_23:
        trees += ", not section 23"
    rows = [
        (name, tables.number(parser.f1, 1), *[""] * (len(COLUMNS) - 1))
        for name, parser in published.TABLE_4.items()
        if parser.training == training
    ]
    for name, values in (
        (f"t2t_repro, {row['hparams_set']}: {trees}", row["scores"]),
        (f"right-branching: {trees}", row["right_branching"]),
    ):
        cells = (tables.number(values[key], 1) for key in COLUMNS)
        rows.append((name, *cells))
    columns = (f"parser: {training}", *COLUMNS.values())
    return tables.markdown(columns, rows)


if __name__ == "__main__":
    parser = harness.argument_parser(__doc__)
    parser.add_argument("output_dir")
    try:
        main(parser.parse_args().output_dir)
    except errors.UserError as error:
        sys.exit(f"Error: {error}")
