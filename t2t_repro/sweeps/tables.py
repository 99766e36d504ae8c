"""Tables of rows as Markdown, LaTeX and text, with statistics over seeds."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from t2t_repro.io import progress

Results = list[dict[str, Any]]  # the files of rows, or what is said of them


def number(value: float | None, digits: int, sign: str = "") -> str:
    """Format a number; None is an empty string."""
    return "" if value is None else f"{value:{sign}.{digits}f}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table whose first column is text, the others numbers."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)
    )


# Of LaTeX, what it does not print as it is.
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "_%&#$"}
    | {"±": r"$\pm$", "−": "$-$", "–": "--", "⁶": "$^6$"}
)


def latex(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format the same table in LaTeX, with the rules of booktabs."""
    head, *lines = (
        " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"
        for cells in (columns, *rows)
    )
    return "\n".join(
        (
            rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
            *(r"\toprule", head, r"\midrule", *lines, r"\bottomrule"),
            r"\end{tabular}",
        )
    )


def text(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format the same table in columns of equal width."""
    return "\n".join(progress.aligned([columns, *rows]))


def by_row(results: Results) -> dict[str, Results]:
    """Group results by row: {row: results of its seeds}."""
    rows: dict[str, Results] = {}
    for result in results:
        rows.setdefault(result["row"], []).append(result)
    return rows


def values_of_seeds(results: Results, name: str) -> list[float]:
    """Return a figure or score for each seed of a row."""
    figures = [result["figures"] for result in results]
    return [f[name] if name in f else f["scores"][name] for f in figures]


def summarize(results: Results, *names: str) -> Results:
    """Return mean, range and deviation of figures or scores, a dict per row.

    One seed has no standard deviation.
    """
    rows: Results = []
    for row, seeds in by_row(results).items():
        rows.append({"row": row, "seeds": [result["seed"] for result in seeds]})
        for name in names:
            values = values_of_seeds(seeds, name)
            rows[-1][name] = statistics.fmean(values)
            rows[-1][f"{name}_range"] = [min(values), max(values)]
            if len(values) > 1:
                rows[-1][f"{name}_deviation"] = statistics.stdev(values)
    return rows


def converged(results: Results) -> bool:
    """Return whether no training of a row was ended by its budget.

    Older results do not record it: there were no budgets.
    """
    return all(result.get("converged", True) for result in results)


def heading(score: str) -> str:
    """Return a column's title, which is "BLEU" for all its conventions."""
    if score.partition("_")[0] == "bleu":
        return "BLEU"
    return score.replace("_", " ")


def distinct(results: Results, key: str) -> str:
    """List the different values that results have for a key."""
    return ", ".join(str(v) for v in sorted({r[key] for r in results}))


def varied(row: Results, base: Results) -> dict[str, Any]:
    """Return the hparams of both rows in which a row differs from base."""
    others = base[0]["hparams"]
    return {
        key: value
        for key, value in row[0]["hparams"].items()
        if key in others and value != others[key]
    }


def provenance(results: Results, score: str) -> str:
    """Describe problem, training, seeds, machine and dates of results."""
    first = results[0]
    hparams = first["hparams"]
    # Models other than the Transformer have other names for their layers.
    layers = hparams.get("num_hidden_layers")
    size = f"{layers} layers and " if layers else ""
    return (
        f"Ours: {first['problem']}, {first['split']} split, {score} "
        f"{first['figures']['signatures'][score]}; "
        f"{hparams['train_steps']:,} steps of {hparams['batch_tokens']:,} "
        f"tokens, {size}{hparams['hidden_size']} wide in the first row; "
        f"{first['mixed_precision']}; mean ± standard deviation of seeds "
        f"{distinct(results, 'seed')}; {distinct(results, 'machine')}; "
        f"{distinct(results, 'date')}."
    )
