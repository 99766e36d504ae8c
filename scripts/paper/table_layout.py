"""Tables in Markdown: values with their range over seeds."""

import statistics
from collections.abc import Iterable, Sequence


def spread(values: Sequence[float], digits: int) -> str:
    """Format mean and range of values: "25.3 (25.1–25.6)"."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def statistics_of(name: str, values: Sequence[float]) -> dict:
    """Return mean, range and standard deviation of values, for a JSON file.

    One value has no standard deviation.
    """
    result = {
        name: statistics.fmean(values),
        f"{name}_range": [min(values), max(values)],
    }
    if len(values) > 1:
        result[f"{name}_deviation"] = statistics.stdev(values)
    return result


def number(value: float | None, digits: int, sign: str = "") -> str:
    """Format a number; None is an empty string."""
    return "" if value is None else f"{value:{sign}.{digits}f}"


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


def statistics_of_seeds(results: Sequence[dict], *names: str) -> dict:
    """Return statistics_of() figures or scores over the seeds of a row."""
    found = {}
    for name in names:
        found |= statistics_of(name, values_of_seeds(results, name))
    return found


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


def provenance(results: Sequence[dict], score: str = "bleu") -> str:
    """Describe problem, training, seeds, machine and dates of results.

    Args:
        results: of all rows.
        score: the score whose signature is included.
    """
    first = results[0]
    hparams = first["hparams"]
    # Models other than the Transformer have other names for their layers.
    layers = hparams.get("num_hidden_layers")
    size = f"{layers} layers and " if layers else ""
    size += f"{hparams['hidden_size']} wide"

    def distinct(key):
        return ", ".join(str(v) for v in sorted({r[key] for r in results}))

    return (
        f"Ours: {first['problem']}, {first['split']} split, {score} "
        f"{first['figures']['signatures'][score]}; "
        f"{hparams['train_steps']:,} steps of {hparams['batch_tokens']:,} "
        f"tokens, {size} in the first row; "
        f"{first['mixed_precision']}; mean and range of seeds "
        f"{distinct('seed')}; {distinct('machine')}; {distinct('date')}."
    )


def summarize(results, score) -> list[dict]:
    """Return means, ranges and deviations, a dict per row."""
    return [
        {
            "row": name,
            "seeds": [result["seed"] for result in row_results],
            **statistics_of_seeds(row_results, score, "perplexity", "padding"),
        }
        for name, row_results in by_row(results).items()
    ]


def by_score(results, score) -> str:
    """Format rows in Markdown, the best score first."""
    rows = by_row(results)
    title = heading(score)

    def mean(name):
        return statistics.fmean(values_of_seeds(rows[name], score))

    lines = [
        (
            name,
            spread_of_seeds(rows[name], score, 2),
            spread_of_seeds(rows[name], "perplexity", 3),
            f"{rows[name][0]['figures']['parameters'] / 1e6:.2f}",
            ", ".join(f"{result['minutes']:.0f}" for result in rows[name]),
        )
        for name in sorted(rows, key=lambda name: -mean(name))
    ]
    columns = "row", title, "perplexity", "10⁶ parameters", "minutes"
    return f"{markdown(columns, lines)}\n\n{provenance(results, score)}\n"
