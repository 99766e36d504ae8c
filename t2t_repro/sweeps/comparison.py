"""The table of a sweep: each row beside the row that it is compared with."""

import statistics
from collections.abc import Callable
from typing import NamedTuple

from t2t_repro import registry
from t2t_repro.io import files
from t2t_repro.sweeps import running, significance, tables
from t2t_repro.sweeps.rows import Job, Table

_FORMATS: dict[str, Callable] = {
    "md": tables.markdown,
    "tex": tables.latex,
    "txt": tables.text,
}


class Comparison(NamedTuple):
    """What a table compares."""

    table: Table
    job: Job
    margin: float  # a smaller difference of the metric is none

    def write(self, results: tables.Results) -> str:
        """Write table.json, .md, .tex and .txt; return the last one's text.

        p-values are those that paired_tests.json has.
        """
        folder = self.job.results_dir
        summary = self.summarize(results)
        files.write_json(folder / "table.json", summary)
        shown = [self._cells(row) for row in summary]
        columns = self._columns()
        note = self._note(results)
        for suffix, form in _FORMATS.items():
            text = form(columns, shown)
            notes = f"% {note}" if suffix == "tex" else note
            files.write_text(folder / f"table.{suffix}", f"{text}\n\n{notes}\n")
        return f"{text}\n\n{note}"

    def summarize(self, results: tables.Results) -> tables.Results:
        """Return statistics, difference and verdict, a dict per row.

        The difference and what follows from it are absent as long as the base
        row is, its interval and verdict while no row has two seeds.
        """
        metric, base = self.job.score, self.table.base_row
        by_row = tables.by_row(results)
        rows = significance.rows_of(by_row, metric)
        tests = running.stored_paired_tests(self.job.results_dir)
        summary = tables.summarize(results, metric, "perplexity")
        for entry in summary:
            name = entry["row"]
            ours = by_row[name]
            entry |= {
                "parameters": ours[0]["figures"]["parameters"],
                "training_flops": ours[0]["figures"]["training_flops"],
                "minutes": statistics.fmean(each["minutes"] for each in ours),
                "converged": rows[name].converged,
            }
            if name != base and base in rows:
                entry |= self._difference(name, rows)
                entry["differs_in"] = tables.varied(ours, by_row[base])
                entry["paired_tests"] = tests.get(name, [])
        return summary

    def _difference(self, name, rows):
        """Return the difference of a row from base, and its verdict if known.

        The level is corrected for the number of rows that are compared.
        """
        row, base = rows[name], rows[self.table.base_row]
        means = (statistics.fmean(each.scores) for each in (row, base))
        if all(len(each.scores) == 1 for each in rows.values()):
            return {"difference": next(means) - next(means)}
        noise = significance.pooled_deviation(rows)
        level = significance.LEVEL / (len(self.table.variants) - 1)
        found = significance.compare(row, base, noise, level)
        low, high = found.interval
        if registry.metrics[self.job.score].value.higher_is_better is False:
            low, high = -high, -low
        return found._asdict() | {
            "verdict": significance.verdict((low, high), self.margin),
            "seeds_needed": significance.seeds_needed(
                noise.deviation, self.margin, level
            ),
        }

    def _columns(self):
        heading = tables.heading(self.job.score)
        return (
            *("row", "differs in", heading),
            f"{heading} − {self.table.base_row}",
            *("95% interval", "p of each seed", "verdict"),
            *("perplexity", "10⁶ parameters", "minutes"),
        )

    def _cells(self, row):
        """Format a row of the table from its summary."""
        number, interval = tables.number, ""
        if "interval" in row:
            interval = "{:+.2f} to {:+.2f}".format(*row["interval"])
        varied = row.get("differs_in", {}).items()
        p_values = (test["p_value"] for test in row.get("paired_tests", ()))
        return (
            row["row"] + " (not converged)" * (not row["converged"]),
            ", ".join(f"{key}={value}" for key, value in varied),
            _mean(row, self.job.score),
            number(row.get("difference"), 2, "+").replace("-", "−"),
            interval.replace("-", "−"),
            ", ".join(f"{value:.3f}" for value in p_values),
            row.get("verdict", ""),
            _mean(row, "perplexity"),
            number(row["parameters"] / 1e6, 2),
            number(row["minutes"], 1),
        )

    def _note(self, results):
        """Describe what was measured, and the rule of the verdicts."""
        described = tables.provenance(
            results, self.job.score, "mean ± standard deviation"
        )
        return (
            f"{described} Intervals: "
            "Student's, of the means over seeds, with the deviation between "
            "seeds of all rows, corrected for the number of rows. Verdicts: "
            f"margin {self.margin:g}. p: paired bootstrap test over sentences, "
            f"against {self.table.base_row} with the same seed."
        )


def _mean(row, metric):
    """Format mean and standard deviation, which one seed does not have."""
    deviation = row.get(f"{metric}_deviation")
    mean = tables.number(row[metric], 2)
    return mean if deviation is None else f"{mean} ± {deviation:.2f}"
