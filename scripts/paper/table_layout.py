"""Tables in Markdown: figures with their spread over seeds."""

import statistics
from collections.abc import Iterable, Sequence


def spread(values: Sequence[float], digits: int) -> str:
    """A mean, and from where to where the values go: "25.3 (25.1–25.6)"."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def mean_and_range(name: str, values: Sequence[float]) -> dict:
    """The same for a JSON file."""
    return {
        name: statistics.fmean(values),
        f"{name}_range": [min(values), max(values)],
    }


def number(value: float | None, digits: int, sign: str = "") -> str:
    """A figure, or nothing where there is none."""
    return "" if value is None else f"{value:{sign}.{digits}f}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text, and the others figures."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)
    )


def by_row(results: Sequence[dict]) -> dict[str, list[dict]]:
    """Results of a table's rows: a list for each row, of its seeds."""
    found = {}
    for result in results:
        found.setdefault(result["row"], []).append(result)
    return found


def figures(of_row: Sequence[dict], name: str) -> list[float]:
    """A figure, or a score, of each seed of a row."""
    found = [result["figures"] for result in of_row]
    return [f[name] if name in f else f["scores"][name] for f in found]


def of_seeds(of_row: Sequence[dict], name: str) -> dict:
    """mean_and_range() of a figure, or a score, of each seed of a row."""
    return mean_and_range(name, figures(of_row, name))


def convention(problem) -> str:
    """Return the metric that is laid beside the paper's BLEU.

    Section 6.1's script splits compounds of German; for other languages the
    paper states none, and Moses tokens were the custom. For a problem that
    names neither it is the headline.
    """
    german = problem.target_language == "de" and not problem.tokenized
    name = "bleu_compound_split" if german else "bleu_tok"
    return name if name in problem.suite.names else problem.suite.headline


def heading(score: str) -> str:
    """Return a column's title: "BLEU" for each convention of it."""
    if score.partition("_")[0] == "bleu":
        return "BLEU"
    return score.replace("_", " ")


def provenance(results: Sequence[dict], score: str = "bleu") -> str:
    """What the figures are of: problem, training, seeds, machine, dates.

    Args:
        results: of all rows.
        score: whose signature is told.
    """
    first = results[0]
    hparams = first["hparams"]

    def several(key):
        return ", ".join(str(v) for v in sorted({r[key] for r in results}))

    return (
        f"Ours: {first['problem']}, {first['split']} split, {score} "
        f"{first['figures']['signatures'][score]}; "
        f"{hparams['train_steps']:,} steps of {hparams['batch_tokens']:,} "
        f"tokens, {hparams['num_hidden_layers']} layers and "
        f"{hparams['hidden_size']} wide in the first row; "
        f"{first['mixed_precision']}; mean and range of seeds "
        f"{several('seed')}; {several('machine')}; {several('date')}."
    )
