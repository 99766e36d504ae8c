"""The table of a sweep: each row beside the row that it is compared with."""

import dataclasses
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

from t2t_repro import registry
from t2t_repro.io import files
from t2t_repro.sweeps import running, significance, tables

_FORMATS: dict[str, Callable] = {
    "tex": tables.latex,
    "txt": tables.text,
    "md": tables.markdown,
}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A table of rows, which are compared with one of them."""

    folder: pathlib.Path  # of the results
    metric: str
    base_row: str
    margin: float  # a smaller difference of the metric is none

    def write(self, results: tables.Results) -> str:
        """Write table.json, .md, .tex and .txt; return the table as text.

        p-values are those that paired_tests.json has.
        """
        summary = self.summarize(results)
        files.write_json(self.folder / "table.json", summary)
        texts = self.lay_out(results, summary)
        for suffix, text in texts.items():
            files.write_text(self.folder / f"table.{suffix}", text)
        return texts["txt"]

    def lay_out(
        self, results: tables.Results, summary: tables.Results
    ) -> dict[str, str]:
        """Format the table of a summary, with a description: {suffix: text}."""
        cells = [self.cells(row) for row in summary]
        rows = [tuple(row.values()) for row in cells]
        note = self.describe(results)
        return {
            suffix: f"{layout(tuple(cells[0]), rows)}\n\n"
            f"{'% ' * (suffix == 'tex')}{note}\n"
            for suffix, layout in _FORMATS.items()
        }

    def summarize(self, results: tables.Results) -> tables.Results:
        """Return statistics, difference and verdict, a dict per row.

        The difference and what follows from it are absent as long as the base
        row is, its interval and verdict while no row has two seeds.
        """
        by_row = tables.by_row(results)
        rows = significance.rows_of(by_row, self.metric)
        tests = running.stored_paired_tests(self.folder)
        summary = tables.summarize(results, self.metric, "perplexity")
        for entry in summary:
            name = entry["row"]
            ours = by_row[name]
            entry |= {
                "parameters": ours[0]["figures"]["parameters"],
                "training_flops": ours[0]["figures"]["training_flops"],
                # Older results do not record their minutes.
                "minutes": statistics.fmean(r.get("minutes", 0) for r in ours),
                "converged": rows[name].converged,
            }
            if name != self.base_row and self.base_row in rows:
                entry |= self._difference(name, rows)
                entry["differs_in"] = tables.varied(ours, by_row[self.base_row])
                entry["paired_tests"] = tests.get(name, [])
        return summary

    def _difference(self, name, rows):
        """Return the difference of a row from base, and its verdict if known.

        The level is corrected for the number of rows that are compared.
        """
        row, base = rows[name], rows[self.base_row]
        if all(len(each.scores) == 1 for each in rows.values()):
            return {"difference": row.scores[0] - base.scores[0]}
        noise = significance.pooled_deviation(rows)
        level = significance.LEVEL / (len(rows) - 1)
        found = significance.compare(row, base, noise, level)
        low, high = found.interval
        if registry.metrics[self.metric].value.higher_is_better is False:
            low, high = -high, -low
        return found._asdict() | {
            "verdict": significance.verdict((low, high), self.margin),
            "seeds_needed": significance.seeds_needed(
                noise.deviation, self.margin, level
            ),
        }

    def cells(self, row: dict[str, Any]) -> dict[str, str]:
        """Return {title of the column: cell} of a row of summarize()."""
        number, interval = tables.number, ""
        heading = tables.heading(self.metric)
        if "interval" in row:
            interval = "{:+.2f} to {:+.2f}".format(*row["interval"])
        varied = row.get("differs_in", {}).items()
        p_values = (test["p_value"] for test in row.get("paired_tests", ()))
        difference = number(row.get("difference"), 2, "+")
        return {
            "row": row["row"] + " (not converged)" * (not row["converged"]),
            "differs in": ", ".join(f"{key}={value}" for key, value in varied),
            heading: _mean(row, self.metric),
            f"{heading} − {self.base_row}": difference.replace("-", "−"),
            "95% interval": interval.replace("-", "−"),
            "p of each seed": ", ".join(f"{value:.3f}" for value in p_values),
            "verdict": row.get("verdict", ""),
            "perplexity": _mean(row, "perplexity"),
            "10⁶ parameters": number(row["parameters"] / 1e6, 2),
            "minutes": number(row["minutes"], 1),
        }

    def describe(self, results: tables.Results) -> str:
        """Describe what was measured, and the rule of the verdicts."""
        return (
            f"{tables.provenance(results, self.metric)} Intervals: Student's, "
            "of the means over seeds, with the deviation between seeds of all "
            "rows, corrected for the number of rows. Verdicts: margin "
            f"{self.margin:g}. p: paired bootstrap test over sentences, "
            f"against {self.base_row} with the same seed."
        )


def _mean(row, metric):
    """Format mean and standard deviation, which one seed does not have."""
    deviation = row.get(f"{metric}_deviation")
    mean = tables.number(row[metric], 2)
    return mean if deviation is None else f"{mean} ± {deviation:.2f}"
