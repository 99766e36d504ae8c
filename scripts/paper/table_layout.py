"""Tables in Markdown: values of rows, with their range over seeds."""

import statistics
from collections.abc import Iterable, Sequence


def number(value: float | None, digits: int, sign: str = "") -> str:
    """Format a number; None is an empty string."""
    return "" if value is None else f"{value:{sign}.{digits}f}"


def spread(values: Sequence[float], digits: int) -> str:
    """Format mean and range of values: "25.3 (25.1–25.6)"."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table whose first column is text, the others numbers."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)
    )


def by_row(results: Sequence[dict]) -> dict[str, list[dict]]:
    """Group results by row: {row: results of its seeds}."""
    rows = {}
    for result in results:
        rows.setdefault(result["row"], []).append(result)
    return rows


def values_of_seeds(results: Sequence[dict], name: str) -> list[float]:
    """Return a figure or score for each seed of a row."""
    figures = [result["figures"] for result in results]
    return [f[name] if name in f else f["scores"][name] for f in figures]


def spread_of_seeds(results: Sequence[dict], name: str, digits: int) -> str:
    """Format mean and range of a figure or score over the seeds of a row."""
    return spread(values_of_seeds(results, name), digits)


def summarize(results: Sequence[dict], *names: str) -> list[dict]:
    """Return mean, range and deviation of figures or scores, a dict per row.

    One seed has no standard deviation.
    """
    rows = []
    for row, seeds in by_row(results).items():
        rows.append({"row": row, "seeds": [result["seed"] for result in seeds]})
        for name in names:
            values = values_of_seeds(seeds, name)
            rows[-1][name] = statistics.fmean(values)
            rows[-1][f"{name}_range"] = [min(values), max(values)]
            if len(values) > 1:
                rows[-1][f"{name}_deviation"] = statistics.stdev(values)
    return rows


def converged(results: Sequence[dict]) -> bool:
    """Return whether no training of a row was ended by its budget.

    Older results do not record it: there were no budgets.
    """
    return all(result.get("converged", True) for result in results)


def convention(problem) -> str:
    """Return the metric to compare with the paper's BLEU.

    The script of section 6.1 splits German compounds. For other languages the
    paper states no convention; Moses tokens were customary. A problem with
    neither metric has its headline metric compared.
    """
    german = problem.target_language == "de" and not problem.tokenized
    name = "bleu_compound_split" if german else "bleu_tok"
    return name if name in problem.suite.names else problem.suite.headline


def heading(score: str) -> str:
    """Return a column's title, which is "BLEU" for all its conventions."""
    if score.partition("_")[0] == "bleu":
        return "BLEU"
    return score.replace("_", " ")


def distinct(results: Sequence[dict], key: str) -> str:
    """List the different values that results have for a key."""
    return ", ".join(str(v) for v in sorted({r[key] for r in results}))


def provenance(results: Sequence[dict], score: str) -> str:
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
        f"{first['mixed_precision']}; mean and range of seeds "
        f"{distinct(results, 'seed')}; {distinct(results, 'machine')}; "
        f"{distinct(results, 'date')}."
    )
