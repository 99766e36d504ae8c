"""A parser's row of Table 4, with the paper's and a trivial parser's rows.

    python -m scripts.paper.table4_parsing OUTPUT_DIR

OUTPUT_DIR is a training of wsj_parsing or wsj_parsing_semi, after ``evaluate
--split=test``. The program prints a table, and one JSON line at the end.
"""

import json
import sys
from typing import NamedTuple

from scripts.benchmarks import harness
from t2t_repro import errors, prepare, registry
from t2t_repro.data import manifest
from t2t_repro.metrics import parsing, scores
from t2t_repro.runs.run import Run
from t2t_repro.sweeps import tables
from t2t_repro.text import trees
from t2t_repro.text.trees import Span, Tree


class Table4Row(NamedTuple):
    """A row of Table 4: bracketing of WSJ section 23."""

    training: str
    f1: float


SECTION_23 = 2_416  # sentences
_WSJ = "WSJ only, discriminative"
TABLE_4 = {
    "Vinyals & Kaiser et al. (2014)": Table4Row(_WSJ, 88.3),
    "Petrov et al. (2006)": Table4Row(_WSJ, 90.4),
    "Zhu et al. (2013)": Table4Row(_WSJ, 90.4),
    "Dyer et al. (2016)": Table4Row(_WSJ, 91.7),
    "Transformer (4 layers)": Table4Row(_WSJ, 91.3),
    "Zhu et al. (2013), semi-supervised": Table4Row("semi-supervised", 91.3),
    "Huang & Harper (2009)": Table4Row("semi-supervised", 91.3),
    "McClosky et al. (2006)": Table4Row("semi-supervised", 92.1),
    "Vinyals & Kaiser et al. (2014), semi-supervised": Table4Row(
        "semi-supervised", 92.1
    ),
    "Transformer (4 layers), semi-supervised": Table4Row(
        "semi-supervised", 92.7
    ),
    "Luong et al. (2015)": Table4Row("multi-task", 93.0),
    "Dyer et al. (2016), generative": Table4Row("generative", 93.3),
}
# Registered problems -> their rows of Table 4.
PARSERS = {
    "wsj_parsing": TABLE_4["Transformer (4 layers)"],
    "wsj_parsing_semi": TABLE_4["Transformer (4 layers), semi-supervised"],
}

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
    if run.problem.requested_name not in PARSERS:
        raise errors.UserError(
            f"{output_dir} is a training of {run.problem.requested_name}; "
            f"Table 4 is of {' and '.join(PARSERS)}."
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
    training = PARSERS[row["problem"]].training
    trees = f"{row['test_trees']:,} trees"
    if row["test_trees"] != SECTION_23:
        trees += ", not section 23"
    rows = [
        (name, tables.number(parser.f1, 1), *[""] * (len(COLUMNS) - 1))
        for name, parser in TABLE_4.items()
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
