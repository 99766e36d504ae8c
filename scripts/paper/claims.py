"""Claims of the paper, with a verdict for each: docs/claims.md.

    python -m scripts.paper.claims

claims.json has the claims, verdicts the rule. Both are older than the results.
A claim compares `row` with `base` in one quantity, or the figure `row` with
`target`. Its direction is 1, -1 or 0 for equality. The margin is by default
that of the quantity, twice as large for equality. For rows of Table 3 the
paper's difference is computed; where it is smaller than the margin, the margin
is half of it. The claims of an experiment share the correction for their
number; `pooled` says that its figures are about as noisy as each other.

Results are in scripts/results/claims: a folder with a file for each row and
seed, or a JSON file with {figure: [value for each seed]}, or one value if it is
exact, and perhaps a "table" in Markdown. Without them, a claim is "not run". An
experiment with a picture names it and its caption; that of rows has their
curves.
"""

import functools
import math
import pathlib
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot
from scipy import stats

from scripts.paper import verdicts
from t2t_repro import errors
from t2t_repro.cli import command_line
from t2t_repro.evaluation.published import TABLE_3
from t2t_repro.io import files
from t2t_repro.sweeps import tables
from t2t_repro.sweeps.rows import STEPS

LIST = pathlib.Path(__file__).with_suffix(".json")
RESULTS = pathlib.Path("scripts/results/claims")
PAGE = pathlib.Path("docs/claims.md")
NOT_RUN = "not run"
WORDS = {
    verdicts.AGREES: "yes",
    verdicts.CONTRADICTS: "no",
    verdicts.CANNOT_TELL: "cannot tell",
}
SAMPLES = 1_000
ROWS_IN_ORDER = 8  # at the least, besides base
SEEDS = 3  # of each row that is planned: reproduce/claims.sh
LEARNED = 1.0  # BLEU; two rows below it are not worth comparing
INTRODUCTION = """\
# The paper's claims, one by one

This page lists claims of the paper, each with an experiment and a verdict. It
is for those who want to know what the paper's statements are worth in sizes
that can be trained on a CPU. `python -m scripts.paper.claims` writes it from
[stored rows](../scripts/results/claims/). [Reproducing the
paper](reproducing.md) has the commands for the paper's own sizes.

{overview}

Claims with the verdict "no":

{contradicted}

## The rule

- [The list](../scripts/paper/claims.json) with all margins, and [the
  rule](../scripts/paper/verdicts.py), are older than the results, but for four
  changes after the first ones: BLEU of Table 3 is of greedy search since base
  was trained; its two claims on dropout went when base was found to need none;
  post-norm has another rate since rows with the first one learned nothing; and
  such rows are not judged.
- A claim is a difference between two rows, or between a figure and its target.
  The margin is the smallest difference of interest; > and < show the claimed
  side, ± equality.
- Yes: the interval lies on the claimed side of 0, or within the margin. No: it
  excludes a difference of the margin on the claimed side, or lies outside the
  margin. Intervals are of 95%, over seeds, corrected for the number of claims
  of the experiment. Figures without interval are exact.
- Power: the true difference that is found with a probability of 80%. Beside
  "cannot tell" are the seeds of each row that a difference of the margin needs,
  and their hours. Beside "not run" they are those for the paper's difference,
  if it has one and both rows were as noisy as base of Table 3, and the power is
  that of 3 seeds. Hours are those of the fastest training: others were beside
  other work.
- "Cannot tell" is also the verdict where a budget ended a training, and where
  no training of either row has learned anything (1 BLEU).
- Perplexities are compared by their logarithm: +1.0 is a perplexity that is 1%
  higher."""


class Claim(NamedTuple):
    """A claim as a difference of two rows, or of a figure and its target."""

    row: str
    text: str
    quantity: str
    direction: float  # 0: equal within the margin
    place: str  # in the paper
    margin: float  # smallest difference of interest
    base: str  # row to compare with
    paper: float | None  # its difference, if it states one
    target: float  # to subtract from a figure


class Experiment(NamedTuple):
    """Claims that are tested together."""

    title: str
    text: str
    results: str  # folder of rows, or JSON file of figures
    command: str
    claims: tuple[Claim, ...]
    pooled: bool  # figures are about as noisy as each other
    picture: tuple[str, ...]  # its caption and its path from docs/

    @property
    def is_order(self) -> bool:
        """True if its claim is about the order of all rows."""
        return self.claims[0].quantity == "correlation"


class Plan(NamedTuple):
    """Power of trainings that were not run."""

    detectable: float  # with SEEDS seeds of each row
    seeds_needed: int


class Judged(NamedTuple):
    """A claim with its result."""

    claim: Claim
    verdict: verdicts.Verdict | None  # None: not run
    minutes: float | None = None  # of the fastest training
    plan: Plan | None = None  # of a claim that is not run


@functools.cache
def read_list() -> tuple[dict[str, dict], tuple[Experiment, ...]]:
    """Return {quantity: its settings}, and the experiments."""
    data = files.read_json(LIST)
    optional = {"pooled": False, "picture": ()}
    experiments = []
    for each in data["experiments"]:
        settings = optional | each
        place = {"place": settings.pop("place")}
        settings["claims"] = tuple(
            _claim(place | claim, data["quantities"])
            for claim in settings["claims"]
        )
        settings["picture"] = tuple(settings["picture"])
        experiments.append(Experiment(**settings))
    return data["quantities"], tuple(experiments)


def _claim(values: dict[str, Any], quantities) -> Claim:
    """Return a claim, with the defaults of its quantity and of Table 3."""
    quantity = quantities[values["quantity"]]
    base = values.get("base", "base")
    published = values.get("paper")
    margin = quantity["margin"] * (1 if values["direction"] else 2)
    if base == "base" and values["row"] in TABLE_3:
        published = _published(values["row"], values["quantity"])
        if values["direction"] and abs(published) < margin:
            margin = abs(published) / 2
    defaults = {
        "margin": margin,
        "base": base,
        "target": quantity.get("target", 0.0),
    }
    return Claim(**defaults | values | {"paper": published})


def _published(row, quantity):
    """Return the paper's difference of a row of Table 3 from base."""
    ours, base = TABLE_3[row], TABLE_3["base"]
    if quantity != "perplexity":
        return ours.bleu - base.bleu
    return 100 * math.log(ours.perplexity / base.perplexity)


def value_of(quantity: str, result: dict) -> float:
    """Return a quantity of a row's file, of one seed.

    Raises:
        UserError: the row of Table 3 has no BLEU of greedy search yet.
    """
    figures = result["figures"]
    if quantity == "perplexity":
        return 100 * math.log(figures["perplexity"])
    if quantity == "greedy BLEU":
        if "greedy" not in figures:
            raise errors.UserError(
                f"The row {result['row']}, seed {result['seed']}, has no BLEU "
                "of greedy search. Run python -m scripts.paper.claim_rows "
                "--figures=greedy with the folder of its training."
            )
        return figures["greedy"]
    if quantity == "BLEU beyond":
        return figures["beyond"]["bleu"]
    return figures["scores"]["bleu_compound_split"]


def judge(experiment: Experiment, results: pathlib.Path) -> list[Judged]:
    """Judge the claims of an experiment by the folder of all results."""
    path = results / experiment.results
    if path.suffix == ".json":
        figures = files.read_json(path) if path.exists() else {}
        return _judge_figures(experiment, figures)
    rows = _read_rows(experiment, path)
    if experiment.is_order:
        return [_judge_order(experiment.claims[0], rows)]
    return [
        _judge_rows(claim, experiment, rows)
        or _plan(claim, experiment, _read_base(results))
        for claim in experiment.claims
    ]


def _read_rows(experiment, folder) -> dict[str, list[dict]]:
    """Return {row: results of its seeds} of an experiment."""
    used = {n for claim in experiment.claims for n in (claim.row, claim.base)}
    if experiment.is_order:
        used = set(TABLE_3)
    return _read_folder(folder, used)


@functools.cache
def _read_base(results):
    """Return the row of base of Table 3, by whose noise others are planned."""
    return _read_folder(results / "table3", {"base"})


def _read_folder(folder, used) -> dict[str, list[dict]]:
    """Return {row: results of its seeds} of those rows that are used."""
    stored = map(files.read_json, sorted(folder.glob("*-seed*.json")))
    return tables.by_row([r for r in stored if r["row"] in used])


def _scores(quantity, rows) -> dict[str, tables.Scores]:
    """Return a quantity of each row and seed."""
    return {
        name: tables.Scores(
            [value_of(quantity, result) for result in results],
            # All have the same number of steps, as in the paper.
            all(r.get("ended_by", STEPS) == STEPS for r in results),
        )
        for name, results in rows.items()
    }


def _judge_figures(experiment, figures):
    """Judge claims about {figure: values}."""
    scores = {
        c.row: tables.Scores([value - c.target for value in figures[c.row]])
        for c in experiment.claims
        if figures.get(c.row)
    }
    several = {n: row for n, row in scores.items() if len(row.scores) > 1}
    judged = []
    for claim in experiment.claims:
        verdict, name = None, claim.row
        if name in scores:
            noise = tables.Noise(0.0, 1)  # one value is exact
            if name in several:
                alone = {name: several[name]}
                rows = several if experiment.pooled else alone
                noise = tables.pooled_deviation(rows)
            verdict = _verdict(experiment, claim, scores[name], None, noise)
        judged.append(Judged(claim, verdict))
    return judged


def _judge_rows(claim, experiment, rows):
    """Judge a claim about two rows, with the noise of the experiment's rows.

    None without trainings of both, and two of one.
    """
    compared = claim.row, claim.base
    if not rows.keys() >= set(compared):
        return None
    scores = _scores(claim.quantity, rows)
    try:
        noise = tables.pooled_deviation(scores)
    except errors.UserError:  # so far one seed of each row
        return None
    results = [result for name in compared for result in rows[name]]
    learned = max(value_of("BLEU", each) for each in results) >= LEARNED
    ours = (
        scores[name]._replace(converged=scores[name].converged and learned)
        for name in compared
    )
    minutes = min(result["minutes"] for result in results)
    verdict = _verdict(experiment, claim, *ours, noise)
    return Judged(claim, verdict, minutes)


def _plan(claim, experiment, base):
    """Return a claim that is not run, with what its trainings would find."""
    measured = "perplexity", "BLEU", "greedy BLEU"
    if claim.quantity not in measured or not base:
        return Judged(claim, None)
    try:
        noise = tables.pooled_deviation(_scores(claim.quantity, base))
    except errors.UserError:  # so far one seed
        return Judged(claim, None)
    level = tables.LEVEL / len(experiment.claims)
    difference = claim.direction and claim.paper or claim.margin
    needed = tables.seeds_needed(noise.deviation, difference, level)
    plan = Plan(
        tables.detectable(*noise, SEEDS, SEEDS, level=level), max(2, needed)
    )
    minutes = min(result["minutes"] for result in base["base"])
    return Judged(claim, None, minutes, plan)


def _verdict(experiment, claim, row, base, noise):
    expected = verdicts.Expected(claim.direction, claim.margin)
    level = tables.LEVEL / len(experiment.claims)
    return verdicts.judge_one(row, base, expected, noise, level)


def _judge_order(claim, rows):
    """Judge the rank correlation with Table 3, by samples of seeds."""
    if "base" not in rows or len(rows) <= ROWS_IN_ORDER:
        return Judged(claim, None)
    draws = np.random.default_rng(1)

    def correlation(rows):
        differences = [*_differences(rows).values()]
        return float(stats.spearmanr(differences).statistic)

    samples = [
        correlation(
            {
                name: draws.choice(of_row, len(of_row))
                for name, of_row in rows.items()
            }
        )
        for _ in range(SAMPLES)
    ]
    low, high = map(float, np.quantile(samples, [0.025, 0.975]))
    verdict = verdicts.Verdict(
        verdicts.decide(
            low, high, verdicts.Expected(claim.direction, claim.margin)
        ),
        correlation(rows),
        (low, high),
        claim.direction,
        None,
        None,
    )
    return Judged(claim, verdict)


def _differences(rows) -> dict[str, tuple[float, float]]:
    """Return {row: our mean difference from base, and the paper's} in order."""
    means = {
        name: statistics.fmean(value_of("perplexity", r) for r in rows[name])
        for name in TABLE_3
        if name in rows
    }
    published = {
        name: 100 * math.log(TABLE_3[name].perplexity) for name in means
    }
    return {
        name: (
            means[name] - means["base"],
            published[name] - published["base"],
        )
        for name in means
        if name != "base"
    }


def lay_out(
    judged: Mapping[Experiment, Sequence[Judged]], results: pathlib.Path
) -> str:
    """Format the page of {experiment: its claims}, with the stored tables."""
    links = {each: _link(each.title) for each in judged}
    contradicted = [
        f"- {links[experiment]}: {each.claim.text}"
        for experiment, group in judged.items()
        for each in group
        if _word(each) == WORDS[verdicts.CONTRADICTS]
    ]
    head = INTRODUCTION.format(
        overview=_overview(judged, links),
        contradicted="\n".join(contradicted) or "None.",
    )
    sections = [_section(*item, results) for item in judged.items()]
    return "\n\n".join([head, *sections]) + "\n"


def _overview(judged, links) -> str:
    """Format the number of claims with each verdict, by experiment."""
    columns = (*WORDS.values(), NOT_RUN)
    words = {
        links[experiment]: [_word(each) for each in group]
        for experiment, group in judged.items()
    }
    words["all"] = [word for each in words.values() for word in each]
    return tables.markdown(
        ("experiment", "claims", *columns),
        [
            (name, *map(str, (len(found), *map(found.count, columns))))
            for name, found in words.items()
        ],
    )


def _link(title) -> str:
    """Return a link to the section of an experiment."""
    anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
    return f"[{title}](#{anchor})"


def _section(experiment, group, results):
    columns = "claim", "place", "ours", "paper", "margin", "power", "verdict"
    table = tables.markdown(columns, [_cells(each) for each in group])
    path = results / experiment.results
    parts = [
        f"## {experiment.title}",
        experiment.text,
        f"Command: `{experiment.command}`",
        table,
    ]
    if path.suffix != ".json":
        rows = _read_rows(experiment, path)
        describe = _describe_order if experiment.is_order else _describe_rows
        parts += filter(None, [describe(group, rows)])
    elif path.exists():
        parts += filter(None, [files.read_json(path).get("table")])
    if experiment.picture:
        parts.append("![{}]({})".format(*experiment.picture))
    return "\n\n".join(parts)


def _describe_order(group, rows) -> str:
    """Describe the differences whose order is judged, and its chance."""
    (judged,) = group
    if not judged.verdict:
        return ""
    differences = _differences(rows)
    ours, published = stats.rankdata([*differences.values()], axis=0).T
    weights = published - published.mean()
    chance = stats.permutation_test(
        (ours,),
        # It is the larger, the larger the correlation is.
        lambda ranks, axis: np.sum(ranks * weights, axis),
        permutation_type="pairings",
        alternative="greater",
        n_resamples=400_000,  # all of 9 rows
        vectorized=True,
        rng=1,  # of more rows some are drawn
    ).pvalue
    table = tables.markdown(
        ("row", "ours", "paper"),
        [
            (name, *(tables.number(value, 1, "+") for value in of_row))
            for name, of_row in sorted(
                differences.items(), key=lambda item: item[1]
            )
        ],
    )
    low, high = judged.verdict.interval
    return (
        f"Differences in % of perplexity:\n\n{table}\n\nSamples of the seeds "
        f"have correlations of {low:.2f} to {high:.2f}. Of random orders of "
        f"as many rows, {chance:.1%} have one as large."
    )


def _describe_rows(group, rows) -> str:
    """Describe noise, hours, machine and dates of the rows that exist."""
    results = [result for each in rows.values() for result in each]
    quantities = dict.fromkeys(judged.claim.quantity for judged in group)
    if not results:
        return ""
    text = ""
    if len(results) > len(rows):
        noise = []
        for name in quantities:
            pooled = tables.pooled_deviation(_scores(name, rows))
            unit = read_list()[0][name]["unit"]
            noise.append(
                "{:.2f} {unit} ({} degrees of freedom)".format(
                    *pooled, unit=unit
                )
            )
        text = f"Standard deviation between seeds: {', '.join(noise)}. "
    hours = sum(result["minutes"] for result in results) / 60
    bleu = next((name for name in quantities if "BLEU" in name), "BLEU")
    means = [
        f"{name} {statistics.fmean(scores.scores):.1f}"
        for name, scores in _scores(bleu, rows).items()
    ]
    return (
        f"{text}{bleu}: {', '.join(means)}. {len(results)} trainings took "
        f"{hours:.1f} hours ({tables.distinct(results, 'machine')}; "
        f"{tables.distinct(results, 'date')})."
    )


def _cells(judged):
    claim, verdict = judged.claim, judged.verdict
    quantity = read_list()[0][claim.quantity]
    is_figure = claim.row not in TABLE_3 and claim.base == "base"
    rows = claim.row if is_figure else f"{claim.row} - {claim.base}"

    def form(value):
        digits = quantity["digits"]
        # Not "-0.00".
        shown = round(value + claim.target * is_figure, digits) + 0.0
        return tables.number(shown, digits, "" if is_figure else "+")

    ours = power = ""
    if judged.plan:
        power = f"{judged.plan.detectable:.{quantity['digits']}f}"
    if verdict:
        ours = form(verdict.difference)
        low, high = map(form, verdict.interval)
        if low != high:
            ours += f" ({low} to {high})"
            if verdict.detectable is not None:
                power = f"{verdict.detectable:.{quantity['digits']}f}"
    published = ""
    if claim.paper is not None:
        published = form(claim.paper)
    elif is_figure and (claim.target or not claim.direction):
        published = form(0)
    relation = "<±>"[round(claim.direction) + 1]
    return (
        f"{claim.text}: {rows}",
        claim.place,
        ours,
        published,
        f"{relation} {claim.margin:.2g} {quantity['unit']}".rstrip(),
        power,
        _word(judged) + _needed(judged),
    )


def _word(judged):
    return WORDS[judged.verdict.verdict] if judged.verdict else NOT_RUN


def _needed(judged):
    """Describe what a claim needs whose verdict is open."""
    verdict = judged.verdict
    is_open = not verdict or verdict.verdict == verdicts.CANNOT_TELL
    needs = verdict or judged.plan
    if not needs or not is_open:
        return ""
    text = f": needs {needs.seeds_needed} seeds"
    if judged.minutes:
        hours = 2 * needs.seeds_needed * judged.minutes / 60
        text += f", {hours:.1f} hours"
    return text


def plot_curves(rows: Mapping[str, Sequence[dict]], path: pathlib.Path) -> None:
    """Plot the perplexity of all validations of {row: its seeds} over FLOPs."""
    figure, axis = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for color, (name, seeds) in enumerate(rows.items()):
        for number, seed in enumerate(seeds):
            curve = seed["figures"]["curve"]
            flops = seed["figures"]["training_flops"] / curve[-1]["step"]
            axis.loglog(
                [flops * entry["step"] for entry in curve],
                [entry["perplexity"] for entry in curve],
                f"C{color}",
                label=None if number else name,
            )
    axis.set(xlabel="FLOPs", ylabel="perplexity", xlim=(1e12, None))
    axis.grid(which="both", alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


def main():
    judged = {each: judge(each, RESULTS) for each in read_list()[1]}
    for experiment in judged:
        folder = RESULTS / experiment.results
        if experiment.picture and folder.is_dir():
            rows = _read_rows(experiment, folder)
            plot_curves(rows, PAGE.parent / experiment.picture[1])
    files.write_text(PAGE, lay_out(judged, RESULTS))
    print(f"{PAGE} is written.")


if __name__ == "__main__":
    command_line.run(main)
