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
import statistics
import threading
from typing import NamedTuple

import optuna
from absl import flags

from scripts.benchmarks import harness
from scripts.paper import hparam_search, table_rows, verdicts
from t2t_repro import registry
from t2t_repro.cli import command_line
from t2t_repro.data import batch_plan, manifest
from t2t_repro.data.corpus import SIDES
from t2t_repro.evaluation.published import TABLE_2
from t2t_repro.io import fields, files
from t2t_repro.models import building, seq2seq
from t2t_repro.sweeps import queue, rows, tables

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
    job = table_rows.job(split="test", averaged=True)
    rows.require_metric(job.problem, "bleu")  # a column of the table
    job.datagen()
    names = rows.select(SYSTEMS, values.rows)
    if values.decoding_speed:
        measure_decoding(names, job)
    every_step = equal_steps(step_flops(job), values.transformer_steps)
    rates = search_learning_rates(names, every_step, job)
    problem = job.problem
    compared = Table2(
        job.results_dir,
        job.score,
        TRANSFORMER,
        verdicts.MARGIN,
        problem.source_language + problem.target_language,
    )
    table_rows.run(table(every_step, rates), job, compared.write)


def search_learning_rates(names, steps, job) -> dict[str, float]:
    """Return {system: best learning_rate_constant}, by a grid of trials.

    A system that RATES has with as many `steps` is not searched again.
    """
    path = job.results_dir / RATES
    found = files.read_json(path) if path.exists() else {}
    objective = hparam_search.Objective(hparam_search.PERPLEXITY, job.problem)
    job = job._replace(averaged=False)
    steps = {name: max(n // SEARCH_SHARE, 1) for name, n in steps.items()}
    rows, lock = table(steps, {}), threading.Lock()

    def search(row):
        grid = learning_rates(row.name)
        widest = FACTORS[-1] ** MORE
        ranges = {
            _RATE: optuna.distributions.FloatDistribution(
                grid[0] / widest, grid[-1] * widest, log=True
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
            found[row.name] |= summary | {"steps": steps[row.name]}
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(path, found)

    def is_found(name):
        return name in found and found[name]["steps"] == steps[name]

    tasks = {
        f"{name}, learning rate": functools.partial(
            search, rows.row(name, SEARCH_SEED)
        )
        for name in names
        if not is_found(name)
    }
    queue.run(tasks, job.options.processes)
    return {n: row["params"][_RATE] for n, row in found.items() if is_found(n)}


def search_inside(grid: list[float], best_of) -> None:
    """Extend an ascending grid by up to MORE values, until its best is inside.

    best_of(grid) returns its best value.
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
    found = speeds(job.results_dir)
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


def speeds(folder) -> dict[str, float]:
    """Return {system: sentences a second} of those that are measured."""
    path = folder / SPEEDS
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


def table(steps: dict[str, int], rates: dict[str, float]) -> rows.Table:
    """Return the rows, with their steps and their learning rates, if known."""
    variants = {}
    for name, system in SYSTEMS.items():
        changes = {
            "train_steps": steps[name],
            "save_checkpoints_steps": max(steps[name] // _CHECKPOINTS, 1),
        }
        if name in rates:
            changes[_RATE] = rates[name]
        variants[name] = rows.Variant(system.hparams_set, changes)
    return table_rows.table(variants, TRANSFORMER, independent=True)


def overrides(name: str) -> dict:
    """Return the changes of --hparams for a system."""
    hparams = registry.build_hparams(SYSTEMS[name].hparams_set)
    return dict(fields.parse(type(hparams), flags.FLAGS.hparams))


def equal_steps(flops: dict, transformer_steps: int) -> dict[str, int]:
    """Return {system: steps that take the FLOPs of the Transformer's}."""
    budget = transformer_steps * flops[TRANSFORMER]
    return {name: max(round(budget / each), 1) for name, each in flops.items()}


def step_flops(job) -> dict[str, float]:
    """Return {system: FLOPs of a step of batch_tokens}; the data must exist.

    running.step_flops() counts the text of a batch plan. The stored rows have
    the steps of this count, and others would not be theirs.
    """
    corpus = manifest.open_corpus(job.data, "train", job.problem.reverse)
    sizes = manifest.open_vocabularies(job.data, job.problem.reverse).sizes
    found = {}
    for name, system in SYSTEMS.items():
        hparams = registry.build_hparams(system.hparams_set)
        hparams = hparams.override(overrides(name))
        usable = batch_plan.usable_pairs(corpus.lengths, hparams.max_length)
        means = [float(corpus.lengths[s][usable].mean()) for s in SIDES]
        found[name] = seq2seq.training_flops(
            building.build_abstract(hparams, **sizes),
            hparams.batch_tokens,
            *means,
        )
    return found


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


@dataclasses.dataclass(frozen=True)
class Table2(verdicts.Judged):
    """Systems beside those of the paper, and verdicts on its differences."""

    pair: str  # of languages, such as "ende"

    def summarize(self, results) -> tables.Results:
        """Return the summary with sacreBLEU, and verdicts on the claims."""
        summary = super().summarize(results)
        sacrebleu = tables.summarize(results, "bleu")
        for entry, more in zip(summary, sacrebleu, strict=True):
            entry |= more | {"hparams_set": SYSTEMS[entry["row"]].hparams_set}
        return summary

    def claims(self, names) -> dict[str, float]:
        """Return the paper's differences of rivals from the Transformer."""
        published = TABLE_2.get(self.pair, {})
        bleu = {
            name: published[SYSTEMS[name].published].bleu
            for name in names
            if SYSTEMS[name].published in published
        }
        base = bleu.pop(TRANSFORMER, None)
        if base is None:
            return {}
        return {name: value - base for name, value in bleu.items()}

    def cells(self, row) -> dict[str, str]:
        """Return the cells of our system and of the paper's."""
        name, number = row["row"], tables.number
        paper = TABLE_2.get(self.pair, {}).get(SYSTEMS[name].published)
        flops, claim = paper and paper.flops, row.get("claim", {})
        return super().cells(row) | {
            "differs in": row["hparams_set"],
            "sacreBLEU": number(row["bleu"], 2),
            "FLOPs": f"{row['training_flops']:.2g}",
            "sentences/s": number(speeds(self.folder).get(name), 1),
            "sequential operations of a layer": SYSTEMS[name].sequential,
            "paper: BLEU": f"{paper.bleu}" if paper else "",
            "paper: FLOPs": f"{flops:.1e}" if flops else "",
            "paper: difference": number(claim.get("paper"), 2, "+"),
            "paper's difference": claim.get("verdict", ""),
        }

    def describe(self, results) -> str:
        """Describe the further columns, too."""
        return (
            f"{super().describe(results)} A system that has not converged was "
            "ended by its budget of minutes, before it had the FLOPs of the "
            "others. Published: newstest2014; its differences are judged with "
            "the correction for their own number. Sentences/s: random "
            f"weights, beam {DECODING['beam_size']}, batches of "
            f"{DECODING['batch']} with {DECODING['length']} subwords on both "
            f"sides, {DECODING['threads']} threads."
        )


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
