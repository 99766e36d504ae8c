"""Table 2 in small, with the paper's rivals trained beside the Transformer.

    python -m scripts.paper.table2_rivals --problem=multi30k_ende \\
        --hparams=learning_rate_warmup_steps=300 --output_dir=FOLDER \\
        --seed=1 --seed=2 --seed=3 --budget_minutes=20

All systems have the same text, vocabulary, batches, search and scores, and as
many FLOPs as --transformer_steps of the Transformer. First the learning rate of
each is chosen, by the same search: a third, one and three times that of its
hparams set, and beyond as long as the best is at the edge, each for a third of
the steps, by the perplexity of the validation split. Then each system is
trained with each seed. --budget_minutes ends rows that need longer; they are
marked. table3_variations describes how to resume.

--decoding_speed first measures how fast each system translates, on a machine
that is otherwise idle. Its weights are random and the length of its outputs is
given, so that all systems do the work of as many subwords.

The paper's statements are judged by the rule of verdicts: the Transformer is
better than a rival by as much as in Table 2, for en-de.
"""

import dataclasses
import functools
import pathlib
import statistics
import threading
from collections.abc import Mapping
from typing import NamedTuple

import optuna
from absl import flags

from scripts.benchmarks import harness
from scripts.paper import (
    experiment_queue,
    hparam_search,
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
    verdicts,
)
from scripts.paper.commands import Commands
from t2t_repro import fields, registry
from t2t_repro.cli import command_line
from t2t_repro.data import batch_plan, manifest
from t2t_repro.evaluation.published import TABLE_2, Table2Row
from t2t_repro.io import files
from t2t_repro.models import building, seq2seq

FACTORS = (1 / 3, 1, 3)  # of a set's learning rate
MORE = 3  # values that may be added to a grid, each three times the last
SEARCH_SHARE = 3  # a trial has a third of the steps
SEARCH_SEED = 1
RATES, SPEEDS = "learning_rates.json", "decoding.json"
_RATE = "learning_rate_constant"


def define_flags():
    flags.DEFINE_integer(
        "transformer_steps",
        2_000,
        "Steps of the Transformer, whose FLOPs all systems have.",
        lower_bound=SEARCH_SHARE,
    )
    flags.DEFINE_bool(
        "decoding_speed",
        False,
        "Before the trainings, measure how fast each system translates.",
    )
    table_rows.define_flags()


def main():
    values = flags.FLAGS
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    job = table_jobs.job(split="test", averaged=True)
    Commands().run("datagen", *job.problem_flags, *job.datagen_flags)
    names = table_rows.select(SYSTEMS, values.rows)
    if values.decoding_speed:
        measure_decoding(names, job)
    every_step = equal_steps(SYSTEMS, values.transformer_steps, job)
    rates = search_learning_rates(names, every_step, job)
    table = Rivals(every_step, rates)
    score = table_layout.convention(job.problem)
    pair = job.problem.source_language + job.problem.target_language
    table_runs.run_all(
        table,
        job,
        lambda results: summarize(results, score, pair),
        lambda results: lay_out(results, score, pair, speeds(job)),
        score=score,
    )


def search_learning_rates(names, steps, job) -> dict[str, float]:
    """Return {system: best learning_rate_constant}, by a grid of trials.

    A system that RATES has with as many steps is not searched again.

    Args:
        names: systems to search for.
        steps: {system: steps of its trainings}.
        job: settings of all rows.
    """
    path = job.results_dir / RATES
    found = files.read_json(path) if path.exists() else {}
    objective = hparam_search.Objective(hparam_search.PERPLEXITY, job.problem)
    job = job._replace(averaged=False)
    table = Rivals(
        {name: max(count // SEARCH_SHARE, 1) for name, count in steps.items()},
        {},
    )
    lock = threading.Lock()

    def search(row, grid):
        ranges = {
            _RATE: optuna.distributions.FloatDistribution(
                grid[0] / FACTORS[-1] ** MORE,
                grid[-1] * FACTORS[-1] ** MORE,
                log=True,
            )
        }
        study = hparam_search.open_study(row, job, ranges, objective)
        run = functools.partial(hparam_search.run_trial, row, job, objective)

        def best_of(rates):
            for rate in rates:
                study.enqueue_trial({_RATE: rate}, skip_if_exists=True)
            hparam_search.run_trials(study, len(rates), ranges, run)
            return study.best_params[_RATE]

        search_inside(grid, best_of)
        with lock:
            summary = hparam_search.summarize({row.name: study}, objective)
            found.update(summary.pop("rows"))
            found[row.name] |= summary | {"steps": table.steps[row.name]}
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(path, found)

    def is_found(name):
        return name in found and found[name]["steps"] == table.steps[name]

    rows = [table.row(n, SEARCH_SEED) for n in names if not is_found(n)]
    tasks = [
        experiment_queue.Task(
            f"{row.name}, learning rate",
            functools.partial(search, row, learning_rates(row.name)),
        )
        for row in rows
    ]
    experiment_queue.run(tasks, job.processes)
    return {n: row["params"][_RATE] for n, row in found.items() if is_found(n)}


def search_inside(grid: list[float], best_of) -> None:
    """Extend an ascending grid until its best value is not at its edge.

    Args:
        grid: values to try first; up to MORE are added to it.
        best_of: a function of the grid that returns its best value.
    """
    for _ in range(MORE):
        best = best_of(grid)
        if best == grid[0]:
            grid.insert(0, float(f"{best / FACTORS[-1]:.3g}"))
        elif best == grid[-1]:
            grid.append(float(f"{best * FACTORS[-1]:.3g}"))
        else:
            return
    best_of(grid)


def learning_rates(name) -> list[float]:
    """Return the learning rates to try for a system."""
    hparams_set = SYSTEMS[name].hparams_set
    constant = registry.build_hparams(hparams_set).learning_rate_constant
    return [float(f"{factor * constant:.3g}") for factor in FACTORS]


def measure_decoding(names, job):
    """Measure the sentences a second that each system translates."""
    sizes = manifest.open_vocabularies(job.data, job.problem.reverse).sizes
    found = speeds(job)
    job.results_dir.mkdir(parents=True, exist_ok=True)
    for name in names:
        measured = harness.measure_in_process(
            "scripts.benchmarks.bench_decode",
            "search",
            hparams_set=SYSTEMS[name].hparams_set,
            hparams=overrides(name),
            vocab_size=sizes["vocab_size"],
            **DECODING,
        )
        seconds = statistics.median(measured["seconds"])
        found[name] = DECODING["batch"] / seconds
        print(f"{name}: {found[name]:.1f} sentences a second.", flush=True)
        files.write_json(job.results_dir / SPEEDS, found)


def speeds(job) -> dict[str, float]:
    """Return {system: sentences a second} of those that are measured."""
    path = job.results_dir / SPEEDS
    return files.read_json(path) if path.exists() else {}


# Rows: systems that train with the same number of FLOPs.

# Checkpoints of a training, of which the last num_averaged_checkpoints are
# averaged: as often as in `small`.
_CHECKPOINTS = 30


class System(NamedTuple):
    """A system of Table 2, in small."""

    hparams_set: str
    published: str  # its row of Table 2
    sequential: str  # operations of a layer that run one after another


TRANSFORMER = "transformer"
SYSTEMS = {
    TRANSFORMER: System("small", "Transformer (base model)", "1"),
    "gnmt": System("gnmt_small", "GNMT + RL", "n"),
    "deep_att": System("deep_att_small", "Deep-Att + PosUnk", "n"),
    "convs2s": System("convs2s_small", "ConvS2S", "1"),
    "bytenet": System("bytenet_small", "ByteNet", "1"),
    "moe": System("moe_small", "MoE", "n"),
}


class Rivals(NamedTuple):
    """Rows of the table, with their lengths and learning rates.

    table_runs takes it like table_rows.Table.
    """

    steps: Mapping[str, int]  # of each system, for equal FLOPs
    constants: Mapping[str, float]  # learning_rate_constant of each system
    names: Mapping[str, System] = SYSTEMS
    base_row: str = TRANSFORMER

    def row(self, name: str, seed: int) -> table_rows.Row:
        """Return a row; of a system that is not selected, as its set is."""
        changes = overrides(name)
        if name in self.steps:
            changes |= training_lengths(self.steps[name])
        if name in self.constants:
            changes["learning_rate_constant"] = self.constants[name]
        return table_rows.Row(
            name,
            SYSTEMS[name].hparams_set,
            changes,
            seed,
            flags.FLAGS.mixed_precision,
        )

    def selected_rows(self) -> list[table_rows.Row]:
        """Return the rows and seeds that the flags name.

        Seed by seed: a queue that is interrupted has all systems.
        """
        names = table_rows.select(SYSTEMS, flags.FLAGS.rows)
        return [
            self.row(name, seed) for seed in flags.FLAGS.seed for name in names
        ]


def overrides(name: str) -> dict:
    """Return the changes of --hparams for a system."""
    hparams = registry.build_hparams(SYSTEMS[name].hparams_set)
    return dict(fields.parse(type(hparams), flags.FLAGS.hparams))


def training_lengths(steps: int) -> dict[str, int]:
    """Return the hparams of the length of a training."""
    return {
        "train_steps": steps,
        "save_checkpoints_steps": max(steps // _CHECKPOINTS, 1),
    }


def equal_steps(names, transformer_steps: int, job) -> dict[str, int]:
    """Return {system: steps that take the FLOPs of the Transformer's}.

    Args:
        names: systems.
        transformer_steps: steps of the Transformer.
        job: settings of all rows; its data exist.
    """
    flops = {
        name: step_flops(name, job)
        for name in dict.fromkeys((TRANSFORMER, *names))
    }
    budget = transformer_steps * flops[TRANSFORMER]
    return {name: max(round(budget / flops[name]), 1) for name in names}


def step_flops(name: str, job) -> float:
    """Return the FLOPs of a training step, forward and backward."""
    hparams = dataclasses.replace(
        registry.build_hparams(SYSTEMS[name].hparams_set), **overrides(name)
    )
    pair_lengths, sizes = _lengths_and_sizes(job.data, job.problem.reverse)
    model = building.build_abstract(hparams, **sizes)
    means = batch_plan.mean_lengths(pair_lengths, hparams.max_length)
    return seq2seq.training_flops(model, hparams.batch_tokens, *means)


@functools.cache
def _lengths_and_sizes(data: pathlib.Path, reverse: bool) -> tuple:
    """Return lengths of the training pairs, and sizes of the vocabularies.

    Every file is compared with its checksum: once for all systems.
    """
    corpus = manifest.open_corpus(data, "train", reverse)
    vocabularies = manifest.open_vocabularies(data, reverse)
    return corpus.lengths, vocabularies.sizes


# Layout: systems beside those of the paper, and verdicts.

# The search whose speed is measured, as the decoder searches a file.
DECODING = {
    "beam_size": 4,
    "batch": 32,
    "length": 20,  # subwords of inputs and outputs
    "threads": 2,
    "intra_threads": 1,
    "times": 5,
}


def summarize(results, score, pair) -> list[dict]:
    """Return statistics, costs and verdicts, a dict per row."""
    rows = table_layout.by_row(results)
    judged = judge(rows, score, pair)
    return [
        {
            "row": name,
            "hparams_set": SYSTEMS[name].hparams_set,
            "seeds": [result["seed"] for result in row_results],
            **table_layout.statistics_of_seeds(
                row_results, score, "bleu", "perplexity"
            ),
            "parameters": row_results[0]["figures"]["parameters"],
            "training_flops": row_results[0]["figures"]["training_flops"],
            "minutes": [result["minutes"] for result in row_results],
            "converged": table_layout.converged(row_results),
            **({"claim": judged[name]._asdict()} if name in judged else {}),
        }
        for name, row_results in rows.items()
    ]


def judge(rows, score, pair) -> dict[str, verdicts.Verdict]:
    """Judge the paper's differences between rivals and the Transformer.

    Args:
        rows: {system: results of its seeds}.
        score: the score that is compared with the paper's BLEU.
        pair: languages, as "ende".

    Returns:
        {system: Verdict}; empty while the noise between seeds is unknown.
    """
    published = TABLE_2.get(pair, {})
    bleu = {
        name: published[system.published].bleu
        for name, system in SYSTEMS.items()
        if system.published in published and name in rows
    }
    base = TRANSFORMER
    if base not in bleu or not any(len(seeds) > 1 for seeds in rows.values()):
        return {}
    claims = {n: value - bleu[base] for n, value in bleu.items() if n != base}
    ours = {
        name: verdicts.Row(
            table_layout.values_of_seeds(row_results, score),
            table_layout.converged(row_results),
        )
        for name, row_results in rows.items()
    }
    return verdicts.judge(ours, base, claims) if claims else {}


COLUMNS = (
    "system",
    "paper: BLEU",
    "paper: FLOPs",
    "BLEU",
    "sacreBLEU",
    "minus Transformer, 95% interval",
    "perplexity",
    "10⁶ parameters",
    "FLOPs",
    "minutes",
    "sentences/s",
    "sequential operations of a layer",
)


def lay_out(results, score, pair, speeds) -> str:
    """Format the systems in Markdown, beside the paper's.

    Args:
        results: of all rows.
        score: the score that is compared with the paper's BLEU.
        pair: languages, as "ende".
        speeds: {system: sentences a second}.
    """
    rows = table_layout.by_row(results)
    judged = judge(rows, score, pair)
    published = TABLE_2.get(pair, {})
    spread, converged = table_layout.spread_of_seeds, table_layout.converged
    lines = [
        (
            name + ("" if converged(row_results) else " (not converged)"),
            *_published(published.get(SYSTEMS[name].published)),
            *(spread(row_results, figure, 2) for figure in (score, "bleu")),
            _difference(judged.get(name)),
            spread(row_results, "perplexity", 2),
            f"{row_results[0]['figures']['parameters'] / 1e6:.1f}",
            f"{row_results[0]['figures']['training_flops']:.2g}",
            f"{statistics.fmean(r['minutes'] for r in row_results):.0f}",
            table_layout.number(speeds.get(name), 1),
            SYSTEMS[name].sequential,
        )
        for name, row_results in rows.items()
    ]
    first = results[0]
    return (
        f"{table_layout.markdown(COLUMNS, lines)}\n\n"
        f"Ours: {first['problem']}, {first['split']} split; BLEU is {score} "
        f"{first['figures']['signatures'][score]}; "
        f"{first['mixed_precision']}; mean and range of seeds; "
        f"{', '.join(sorted({r['machine'] for r in results}))}; "
        f"{', '.join(sorted({r['date'] for r in results}))}. A system that has "
        "not converged was ended by its budget of minutes, before it had the "
        "FLOPs of the others. Published: newstest2014. Sentences/s: random "
        f"weights, beam {DECODING['beam_size']}, batches of "
        f"{DECODING['batch']} with {DECODING['length']} subwords on both "
        f"sides, {DECODING['threads']} threads.\n"
    )


def _published(row: Table2Row | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    return f"{row.bleu}", "" if row.flops is None else f"{row.flops:.1e}"


def _difference(verdict: verdicts.Verdict | None) -> str:
    if verdict is None:
        return ""
    low, high = verdict.interval
    return (
        f"{verdict.difference:+.2f} ({low:+.2f} to {high:+.2f}); paper "
        f"{verdict.paper:+.2f}: {verdict.verdict}"
    )


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
