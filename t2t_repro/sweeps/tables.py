"""Tables of rows, with statistics over seeds and verdicts."""

import dataclasses
import functools
import itertools
import math
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_repro import errors, registry
from t2t_repro.io import files, progress
from t2t_repro.sweeps.rows import FEWER, STEPS, is_of, stored_paired_tests

LEVEL, POWER = 0.05, 0.8
BETTER, WORSE, EQUAL = "better", "worse", "no difference"
CANNOT_TELL = "cannot tell"
_NORMAL = statistics.NormalDist()
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
                is_known = all(map(math.isfinite, values))
                deviation = statistics.stdev(values) if is_known else math.nan
                rows[-1][f"{name}_deviation"] = deviation
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
    is_cut = any(row.get("ended_by", STEPS) != STEPS for row in results)
    versions = [row.get("definitions", {}) for row in results]
    changed = {
        name
        for before, now in itertools.pairwise(versions)
        for name in registry.changed_definitions(before, now)
    }
    different = f"different {', '.join(sorted(changed))}; " if changed else ""
    return (
        f"Ours: {first['problem']}, {first['split']} split, {score} "
        f"{first['figures']['signatures'][score]}; "
        f"{'up to ' * is_cut}{hparams['train_steps']:,} steps of "
        f"{hparams['batch_tokens']:,} "
        f"tokens, {size}{hparams['hidden_size']} wide in the first row; "
        f"{first['mixed_precision']}; {different}mean ± standard deviation of "
        f"seeds {distinct(results, 'seed')}; {distinct(results, 'machine')}; "
        f"{distinct(results, 'date')}."
    )


# Differences between rows of several seeds: intervals, power, verdicts
#
# 1. The standard deviation between seeds is pooled over all rows of the table,
#    since a few seeds of one row estimate it badly.
# 2. The 95% confidence interval of a difference of means is Student's, with the
#    degrees of freedom of the pooled deviation. With several differences in one
#    table its level is raised by Bonferroni's correction. Where both rows are
#    the same trainings with another search, it is that of the mean of the
#    seeds' differences.
# 3. The verdict is "no difference" if the interval lies within the margin
#    around 0, which is the smallest difference of interest; otherwise "better"
#    or "worse" if it excludes 0; else "cannot tell".
#
# The power calculation says what the rule can see: the smallest difference that
# it finds with a probability of 80%, and the seeds that a difference would
# need.


class Scores(NamedTuple):
    """Scores of one row of a table."""

    scores: Sequence[float]  # one for each seed
    converged: bool = True  # False: the budget ended a training


def rows_of(results: Mapping[str, Results], score: str) -> dict[str, Scores]:
    """Return {name: Scores} of {name: results of its seeds}."""
    return {
        name: Scores(values_of_seeds(seeds, score), converged(seeds))
        for name, seeds in results.items()
    }


class Noise(NamedTuple):
    """Standard deviation between seeds, and its degrees of freedom."""

    deviation: float
    freedom: int


def pooled_deviation(rows: Mapping[str, Scores]) -> Noise:
    """Return the standard deviation between the seeds of all rows.

    Raises:
        UserError: no row has two seeds.
    """
    freedom = sum(len(row.scores) - 1 for row in rows.values())
    if freedom < 1:
        raise errors.UserError(
            "A verdict needs at least two seeds of one row; got "
            f"{', '.join(f'{len(r.scores)} of {n}' for n, r in rows.items())}."
        )
    squares = 0.0
    for row in rows.values():
        mean = statistics.fmean(row.scores)
        squares += math.fsum((score - mean) ** 2 for score in row.scores)
    return Noise(math.sqrt(squares / freedom), freedom)


class Difference(NamedTuple):
    """Difference of the means of two rows."""

    difference: float  # row minus base
    interval: tuple[float, float]
    detectable: float  # the smallest that is found with probability POWER


def compare(
    row: Scores, base: Scores | None, noise: Noise, level: float = LEVEL
) -> Difference:
    """Compare two rows.

    Args:
        row: scores, or differences of the same seeds.
        base: scores of the row to compare with; None: `row` has differences.
        noise: standard deviation between seeds.
        level: probability of a false alarm.
    """
    difference = statistics.fmean(row.scores)
    counts = [len(row.scores)]
    if base is not None:
        difference -= statistics.fmean(base.scores)
        counts.append(len(base.scores))
    quantile = student_quantile(1 - level / 2, noise.freedom)
    half = quantile * _error(noise.deviation, *counts)
    return Difference(
        difference,
        (difference - half, difference + half),
        detectable(*noise, *counts, level=level),
    )


def verdict(interval: tuple[float, float], margin: float) -> str:
    """Return the verdict of the interval of an improvement."""
    low, high = interval
    if -margin <= low and high <= margin:
        return EQUAL
    if low > 0:
        return BETTER
    return WORSE if high < 0 else CANNOT_TELL  # also if they are no numbers


def detectable(
    deviation: float, freedom: int, *seeds: int, level: float = LEVEL
) -> float:
    """Return the smallest difference that is found with probability POWER.

    The usual approximation: the sum of both quantiles times the standard error
    (Cohen 1988, section 2.4, with Student's quantiles).
    """
    quantiles = (student_quantile(p, freedom) for p in (1 - level / 2, POWER))
    return sum(quantiles) * _error(deviation, *seeds)


def seeds_needed(
    deviation: float, difference: float, level: float = LEVEL, rows: int = 2
) -> int | None:
    """Return how many seeds of each of the rows would show a difference.

    Normal quantiles, as if the deviation were known. None where the difference
    is 0, or the deviation no number: no number of seeds shows that.
    """
    if not difference or math.isnan(deviation):
        return None
    quantile = _NORMAL.inv_cdf(1 - level / 2) + _NORMAL.inv_cdf(POWER)
    needed = math.ceil(rows * (quantile * deviation / difference) ** 2)
    return max(needed, 1)


@functools.cache
def student_quantile(probability: float, freedom: int) -> float:
    """Return a quantile above the median of Student's t.

    The distribution is a finite sum for whole degrees of freedom (Abramowitz
    and Stegun, 26.7.3 and 26.7.4), of the angle whose tangent is
    t / sqrt(freedom); bisection inverts it to the last bits.
    """
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _within(middle, freedom) < 2 * probability - 1:
            low = middle
        else:
            high = middle
    return math.tan(high) * math.sqrt(freedom)


def _within(angle, freedom):
    """Return the probability that |t| is below tan(angle) * sqrt(freedom)."""
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term, terms = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, freedom + 1, 2):
        terms += term
        term *= cosine**2 * (k - 1) / k
    return (angle + sine * terms) * 2 / math.pi if odd else sine * terms


def _error(deviation, *seeds):
    """Return the standard error of a mean, or of a difference of means."""
    return deviation * math.sqrt(sum(1 / count for count in seeds))


# The table of a sweep: each row beside the one that it is compared with

_FORMATS: dict[str, Callable] = {"tex": latex, "txt": text, "md": markdown}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A table of rows, which are compared with one of them."""

    folder: pathlib.Path  # of the results
    metric: str
    base_row: str
    margin: float  # a smaller difference of the metric is none

    def write(self, results: Results) -> str:
        """Write table.json, .md, .tex and .txt; return the table as text.

        p-values are those that paired_tests.json has.
        """
        summary = self.summarize(results)
        files.write_json(self.folder / "table.json", summary)
        texts = self.lay_out(results, summary)
        for suffix, content in texts.items():
            files.write_text(self.folder / f"table.{suffix}", content)
        return texts["txt"]

    def lay_out(self, results: Results, summary: Results) -> dict[str, str]:
        """Format the table of a summary, with a description: {suffix: text}."""
        cells = [self.cells(row) for row in summary]
        rows = [tuple(row.values()) for row in cells]
        note = self.describe(results)
        return {
            suffix: f"{layout(tuple(cells[0]), rows)}\n\n"
            f"{'% ' * (suffix == 'tex')}{note}\n"
            for suffix, layout in _FORMATS.items()
        }

    def summarize(self, results: Results) -> Results:
        """Return statistics, difference and verdict, a dict per row.

        The difference and what follows from it are absent as long as the base
        row is, its interval and verdict while no row has two seeds.
        """
        found = by_row(results)
        rows = rows_of(found, self.metric)
        tests = stored_paired_tests(self.folder)
        summary = summarize(results, self.metric, "perplexity")
        for entry in summary:
            name = entry["row"]
            ours = found[name]
            entry |= {
                "parameters": ours[0]["figures"]["parameters"],
                "training_flops": ours[0]["figures"]["training_flops"],
                # Older results do not record their minutes.
                "minutes": statistics.fmean(r.get("minutes", 0) for r in ours),
                "converged": rows[name].converged,
            }
            fewer = [r[FEWER] for r in ours if FEWER in r]
            if fewer:
                entry[FEWER] = min(fewer)
            if name != self.base_row and self.base_row in rows:
                entry |= self._difference(name, rows)
                entry["differs_in"] = varied(ours, found[self.base_row])
                pairs = _translated_pairs(ours, found[self.base_row])
                entry["paired_tests"] = [
                    test
                    for test in tests.get(name, [])
                    if test["seed"] in pairs
                    and is_of(
                        test,
                        base=self.base_row,
                        metric=self.metric,
                        translations_sha256=pairs[test["seed"]],
                    )
                ]
        return summary

    def _difference(self, name, rows):
        """Return the difference of a row from base, and its verdict if known.

        The level is corrected for the number of rows that are compared.
        """
        row, base = rows[name], rows[self.base_row]
        if all(len(each.scores) == 1 for each in rows.values()):
            return {"difference": row.scores[0] - base.scores[0]}
        noise = pooled_deviation(rows)
        level = LEVEL / (len(rows) - 1)
        found = compare(row, base, noise, level)
        low, high = found.interval
        if registry.metrics[self.metric].value.higher_is_better is False:
            low, high = -high, -low
        return found._asdict() | {
            "verdict": verdict((low, high), self.margin),
            "seeds_needed": seeds_needed(noise.deviation, self.margin, level),
        }

    def cells(self, row: dict[str, Any]) -> dict[str, str]:
        """Return {title of the column: cell} of a row of summarize()."""
        title, interval = heading(self.metric), ""
        if "interval" in row:
            interval = "{:+.2f} to {:+.2f}".format(*row["interval"])
        changes = row.get("differs_in", {}).items()
        marks = " (not converged)" * (not row["converged"])
        if FEWER in row:
            marks += f" (average of {row[FEWER]} checkpoints)"
        p_values = (test["p_value"] for test in row.get("paired_tests", ()))
        difference = number(row.get("difference"), 2, "+")
        return {
            "row": row["row"] + marks,
            "differs in": ", ".join(f"{key}={value}" for key, value in changes),
            title: _mean(row, self.metric),
            f"{title} − {self.base_row}": difference.replace("-", "−"),
            "95% interval": interval.replace("-", "−"),
            "p of each seed": ", ".join(f"{value:.3f}" for value in p_values),
            "verdict": row.get("verdict", ""),
            "perplexity": _mean(row, "perplexity"),
            "10⁶ parameters": number(row["parameters"] / 1e6, 2),
            "minutes": number(row["minutes"], 1),
        }

    def describe(self, results: Results) -> str:
        """Describe what was measured, and the rule of the verdicts."""
        return (
            f"{provenance(results, self.metric)} Intervals: Student's, "
            "of the means over seeds, with the deviation between seeds of all "
            "rows, corrected for the number of rows. Verdicts: margin "
            f"{self.margin:g}. p: paired bootstrap test over sentences, "
            f"against {self.base_row} with the same seed."
        )


def _translated_pairs(*rows):
    """Return {seed of two rows: [sha256 of the translations of each]}."""
    first, second = (
        {each["seed"]: each.get("translations_sha256") for each in row}
        for row in rows
    )
    return {n: [first[n], second[n]] for n in first.keys() & second.keys()}


def _mean(row, metric):
    """Format mean and standard deviation, which one seed does not have."""
    deviation = row.get(f"{metric}_deviation")
    mean = number(row[metric], 2)
    return mean if deviation is None else f"{mean} ± {deviation:.2f}"
