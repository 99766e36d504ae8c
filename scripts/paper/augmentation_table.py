"""Layout of augmentation: recipes beside their baselines, with verdicts."""

import statistics
from collections.abc import Mapping, Sequence

from scripts.paper import table_layout, verdicts
from scripts.paper.augmentation_rows import ROWS

COLUMNS = (
    "row",
    "pairs",
    "BLEU, beam 4",
    "BLEU, greedy",
    "minus its base, 95% interval",
    "paired tests, p",
    "10⁶ parameters",
    "minutes",
    "sentences/s, beam 4",
    "greedy",
)
GAIN, LOSS = "better", "worse"
_WORDS = {verdicts.AGREES: GAIN, verdicts.CONTRADICTS: LOSS}


def judge(
    rows: Mapping[str, Sequence[dict]], score: str
) -> dict[str, verdicts.Verdict]:
    """Judge whether each recipe is better than its base.

    The papers report gains on other text, so only the sign is compared. The
    noise between seeds is pooled over the rows of this direction.

    Args:
        rows: {name: results of its seeds}.
        score: name of the score.

    Returns:
        {recipe: Verdict}; empty while the noise between seeds is unknown.
    """
    ours = {
        name: verdicts.Row(
            table_layout.values_of_seeds(results, score),
            table_layout.converged(results),
        )
        for name, results in rows.items()
        if not ROWS[name].reverse
    }
    if not any(len(row.scores) > 1 for row in ours.values()):
        return {}
    judged = {}
    for base in dict.fromkeys(recipe.base for recipe in ROWS.values()):
        claims = {n: verdicts.MARGIN for n in ours if ROWS[n].base == base}
        if base in ours and claims:
            judged |= verdicts.judge(ours, base, claims)
    return judged


def describe(verdict: verdicts.Verdict) -> str:
    """Format a difference: "+2.10 (+1.20 to +3.00): better"."""
    low, high = verdict.interval
    word = _WORDS.get(verdict.verdict, verdict.verdict)
    return f"{verdict.difference:+.2f} ({low:+.2f} to {high:+.2f}): {word}"


def summarize(
    results: Sequence[dict], score: str, speeds: Mapping[str, Mapping]
) -> list[dict]:
    """Return statistics, costs and verdicts, a dict per row.

    Args:
        results: of all rows.
        score: name of the score.
        speeds: {row: {beam size: sentences a second}}.
    """
    rows = table_layout.by_row(results)
    judged = judge(rows, score)
    return [
        {
            "row": name,
            "seeds": [result["seed"] for result in row_results],
            **table_layout.statistics_of_seeds(
                row_results, score, "greedy_bleu", "perplexity"
            ),
            "parameters": row_results[0]["figures"]["parameters"],
            "pairs": [result["figures"]["pairs"] for result in row_results],
            "minutes": [result["minutes"] for result in row_results],
            "sentences_per_second": speeds.get(name, {}),
            **(
                {
                    "base": ROWS[name].base,
                    "difference": judged[name].difference,
                    "interval": judged[name].interval,
                    "verdict": describe(judged[name]).rpartition(": ")[2],
                }
                if name in judged
                else {}
            ),
        }
        for name, row_results in rows.items()
    ]


def lay_out(
    results: Sequence[dict],
    score: str,
    tests: Mapping[str, Sequence[dict]],
    speeds: Mapping[str, Mapping],
) -> str:
    """Format the rows in Markdown, each after its base.

    Args:
        results: of all rows.
        score: name of the score.
        tests: result of paired_tests.compare_with_base().
        speeds: {row: {beam size: sentences a second}}.
    """
    rows = table_layout.by_row(results)
    judged = judge(rows, score)

    def line(name, row_results):
        figures = row_results[0]["figures"]
        base, speed = ROWS[name].base, speeds.get(name, {})
        difference = describe(judged[name]) if name in judged else ""
        return (
            name if base is None else f"{name} (base: {base})",
            f"{figures['pairs']:,}",
            *(
                table_layout.spread_of_seeds(row_results, figure, 2)
                for figure in (score, "greedy_bleu")
            ),
            difference,
            ", ".join(f"{t['p_value']:.3f}" for t in tests.get(name, ())),
            f"{figures['parameters'] / 1e6:.2f}",
            f"{statistics.fmean(r['minutes'] for r in row_results):.1f}",
            table_layout.number(speed.get("4"), 0),
            table_layout.number(speed.get("1"), 0),
        )

    table = table_layout.markdown(COLUMNS, [line(*row) for row in rows.items()])
    return f"{table}\n\n{_notes(rows)}\n\n{_provenance(results, score)}\n"


def _notes(rows):
    notes = [
        "A recipe is better or worse than its base if the interval, at a level "
        "that Bonferroni's correction raises for the recipes of one base, does "
        "not include 0; its noise is that between seeds, pooled over all rows. "
        "The paired tests sample sentences: one p for each seed."
    ]
    if "baseline" in rows:
        count = rows["baseline"][0]["figures"]["pairs"]
        notes.append(
            f"The baseline has the first {count:,} pairs only, to simulate a "
            "small corpus. back_translation adds monolingual text of the "
            "target language, as translated and tagged by the model reverse of "
            "the same seed. all_pairs has human pairs instead, and is the "
            "teacher."
        )
    return " ".join(notes)


def _provenance(results, score):
    """Describe training and machine; the reversed row has another direction."""
    forward = [r for r in results if not ROWS[r["row"]].reverse]
    return table_layout.provenance(forward or results, score)
