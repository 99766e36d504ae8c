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

import functools
import statistics
import threading

import optuna
from absl import flags

from scripts.benchmarks import harness
from scripts.paper import (
    experiment_queue,
    hparam_search,
    rival_rows,
    rival_table,
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
)
from scripts.paper.commands import Commands
from t2t_repro import registry
from t2t_repro.cli import command_line
from t2t_repro.data import manifest
from t2t_repro.io import files

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
    names = table_rows.select(rival_rows.SYSTEMS, values.rows)
    if values.decoding_speed:
        measure_decoding(names, job)
    every_step = rival_rows.equal_steps(
        rival_rows.SYSTEMS, values.transformer_steps, job
    )
    rates = search_learning_rates(names, every_step, job)
    table = rival_rows.Rivals(every_step, rates)
    score = table_layout.convention(job.problem)
    pair = job.problem.source_language + job.problem.target_language
    table_runs.run_all(
        table,
        job,
        lambda results: rival_table.summarize(results, score, pair),
        lambda results: rival_table.lay_out(results, score, pair, speeds(job)),
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
    table = rival_rows.Rivals(
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
    hparams_set = rival_rows.SYSTEMS[name].hparams_set
    constant = registry.build_hparams(hparams_set).learning_rate_constant
    return [float(f"{factor * constant:.3g}") for factor in FACTORS]


def measure_decoding(names, job):
    """Measure the sentences a second that each system translates."""
    sizes = manifest.open_vocabularies(job.data, job.problem.reverse).sizes
    found = speeds(job)
    job.results_dir.mkdir(parents=True, exist_ok=True)
    for name in names:
        measured = harness.measure_in_process(
            "scripts.benchmarks.bench_decode_probe",
            "search",
            hparams_set=rival_rows.SYSTEMS[name].hparams_set,
            hparams=rival_rows.overrides(name),
            vocab_size=sizes["vocab_size"],
            **rival_table.DECODING,
        )
        seconds = statistics.median(measured["seconds"])
        found[name] = rival_table.DECODING["batch"] / seconds
        print(f"{name}: {found[name]:.1f} sentences a second.", flush=True)
        files.write_json(job.results_dir / SPEEDS, found)


def speeds(job) -> dict[str, float]:
    """Return {system: sentences a second} of those that are measured."""
    path = job.results_dir / SPEEDS
    return files.read_json(path) if path.exists() else {}


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
