"""Training and scoring of a table's rows, each recorded in a JSON file.

A row with a file is not trained again. An interrupted row resumes from its last
checkpoint. Rows are trained by the commands of the package in separate
processes, one or several at a time.
"""

import datetime
import functools
import pathlib
import shutil
import threading
from collections.abc import Callable, Sequence

from scripts.paper import (
    experiment_queue,
    paired_tests,
    row_files,
    table_layout,
)
from scripts.paper.commands import Commands
from scripts.paper.table_jobs import Job
from scripts.paper.table_rows import Row, Table, Variants
from t2t_repro import errors, prepare
from t2t_repro.data import batch_plan, manifest
from t2t_repro.io import files
from t2t_repro.models import building, seq2seq
from t2t_repro.runs import history
from t2t_repro.runs.run import Run

BUDGET, PATIENCE, STEPS = "budget", "patience", "steps"  # what ends a training


def train_row(row: Row, job: Job, commands: Commands) -> dict:
    """Train a row or resume its training.

    Args:
        row: the row.
        job: settings that all rows share.
        commands: how to run the trainer.

    Returns:
        How the training ended, for the row's file.
    """
    folder = training_folder(row, job)
    budget = experiment_queue.Budget(folder, job.budget_minutes)
    if not budget.exhausted:
        commands.run("trainer", *_trainer_flags(row, job), budget=budget)
    ended = _ending(row, job, folder, budget)
    if job.averaged:
        commands.run(
            "avg_checkpoints", *job.problem_flags, f"--output_dir={folder}"
        )
    return ended


def _ending(row, job, folder, budget):
    """Return how a training ended, and require one validation at least."""
    if not (folder / history.VALIDATION).exists():
        raise errors.UserError(
            f"{row.name}, seed {row.seed}, has no validation after "
            f"{budget.used:.1f} minutes. Raise --budget_minutes, or validate "
            "earlier: --trainer_flags=--eval_every=…."
        )
    last_step = files.read_json(folder / history.VALIDATION)[-1]["step"]
    ended_by = BUDGET if budget.exhausted else PATIENCE
    steps = row_files.row_settings(row, job)["hparams"]["train_steps"]
    if last_step >= steps:
        ended_by = STEPS
    # With a patience, the last step comes while the metric still improves.
    enough = PATIENCE if job.patience else STEPS
    return {
        "ended_by": ended_by,
        "converged": ended_by == enough,
        "minutes": round(budget.used, 1),
    }


def training_folder(row: Row, job: Job) -> pathlib.Path:
    """Return the folder of a row's training.

    A training could resume in another precision, so each has its own folder.
    """
    return job.output_dir / f"{row.name}-seed{row.seed}-{row.mixed_precision}"


def _trainer_flags(row, job):
    overrides = ",".join(f"{key}={value}" for key, value in row.changes.items())
    stopping = (
        f"--early_stopping_evals={job.patience}",
        f"--early_stopping_metric={job.patience_metric}",
    )
    return (
        *job.problem_flags,
        f"--hparams_set={row.hparams_set}",
        *([f"--hparams={overrides}"] if overrides else []),
        f"--random_seed={row.seed}",
        f"--mixed_precision={row.mixed_precision}",
        f"--output_dir={training_folder(row, job)}",
        *([] if job.averaged else ["--keep_checkpoint_max=1"]),
        *(stopping if job.patience else []),
        *job.datagen_flags,
        *job.trainer_flags,
    )


def run_row(row: Row, job: Job, measure: Callable):
    """Train and score a row, and write its file, unless it exists.

    A row that its budget ended is continued if the budget has grown.

    Args:
        row: the row.
        job: settings that all rows share.
        measure: a function of the training's run and its stored scores.
    """
    path = row_files.path(row, job)
    finished = row_files.read_finished(path, row_files.row_settings(row, job))
    folder = training_folder(row, job)
    if finished and not _may_continue(finished, folder, job.budget_minutes):
        print(f"{row.name}, seed {row.seed}: finished on {finished['date']}.")
        return
    log = None
    if job.processes > 1:
        log = folder.with_name(f"{folder.name}.log")
        print(f"{row.name}, seed {row.seed}: its log is {log}.")
    commands = Commands(log, job.processes)
    ended = train_row(row, job, commands)
    commands.run(
        "evaluate",
        *job.problem_flags,
        f"--output_dir={folder}",
        f"--split={job.split}",
    )
    run = Run.open(folder)
    translations = run.translations_file(job.split)
    result = row_files.row_settings(row, job) | {
        "figures": measure(run, run.stored_scores()[job.split]),
        "translations_sha256": files.sha256(translations),
        **ended,
        "command": row_files.command_line(),
        "machine": job.machine,
        "date": str(datetime.date.today()),
    }
    job.results_dir.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(
        translations, row_files.translations_path(job.results_dir, result)
    )
    files.write_json(path, result)


def _may_continue(finished, folder, minutes):
    """Return whether a budget that ended a training has time left now."""
    if finished.get("ended_by") != BUDGET or not folder.exists():
        return False
    return not experiment_queue.Budget(folder, minutes).exhausted


def measure_training(run: Run, stored: dict) -> dict:
    """Return perplexities, scores, parameters, FLOPs and padding of a training.

    Perplexity is per subword, of the last weights on the validation split, even
    if scores are of averaged weights or another split. Padding is a share of
    tokens and padding, of both sides.
    """
    hparams = run.hparams
    data = prepare.data_folder(run.settings["data_dir"], run.problem)
    corpus = manifest.open_corpus(data, "train", run.problem.reverse)
    lengths = batch_plan.mean_lengths(corpus.lengths, hparams.max_length)
    plan = batch_plan.build(
        corpus.lengths,
        hparams.batching,
        hparams.batch_tokens,
        hparams.max_length,
        run.settings["random_seed"],
        hparams.batch_unit,
        proportional_rows=hparams.proportional_rows,
    )
    model = building.build_abstract(hparams, **run.vocabularies.sizes)
    names = ("step", "perplexity", *run.problem.suite.names)
    curve = [
        {key: entry[key] for key in names if key in entry}
        for entry in files.read_json(run.output_dir / history.VALIDATION)
    ]
    tokens = hparams.batch_tokens * curve[-1]["step"]
    return {
        "perplexity": curve[-1]["perplexity"],
        "scores": {key: stored[key] for key in stored["signatures"]},
        "signatures": stored["signatures"],
        "vocab_size": model.vocab_size,
        "parameters": model.count_params(),
        "training_flops": seq2seq.training_flops(model, tokens, *lengths),
        "padding": 1 - sum(plan.tokens.values()) / plan.padded_tokens,
        "curve": curve,
    }


def run_all(
    table: Table | Variants,
    job: Job,
    summarize: Callable,
    lay_out: Callable,
    measure: Callable = measure_training,
    check: Callable = lambda rows: None,
    score: str | None = None,
):
    """Run the rows that the flags select, and write the table after each.

    The table has all finished rows, including those that are not selected.

    Args:
        table: its rows.
        job: settings that all rows share.
        summarize: a function of the results that returns table.json.
        lay_out: a function of the results that returns table.md.
        measure: of run_row().
        check: a function of the rows, called with the data there and before
            any training; it raises a UserError for rows that make no sense.
        score: metric of the paired tests; None: the one to compare with the
            paper's BLEU.
    """
    rows = table.selected_rows()
    if job.averaged:
        require_enough_checkpoints(rows, job)
    # Before several trainings would wait for it.
    Commands().run("datagen", *job.problem_flags, *job.datagen_flags)
    check(rows)

    def write():
        results = row_files.finished_rows(table, job)
        write_table(job, summarize(results), lay_out(results))

    run_queue([(row, job) for row in rows], measure, write)
    results = row_files.finished_rows(table, job)
    score = score or table_layout.convention(job.problem)
    _write_paired_tests(table, job, results, score)
    print(f"\n{lay_out(results)}")


def run_queue(
    rows: Sequence[tuple[Row, Job]], measure: Callable, write: Callable
) -> None:
    """Run rows, several at a time, and call `write` after each."""
    lock = threading.Lock()

    def run_and_write(row, job):
        run_row(row, job, measure)
        with lock:
            write()

    tasks = [
        experiment_queue.Task(
            f"{row.name}, seed {row.seed}",
            functools.partial(run_and_write, row, job),
        )
        for row, job in rows
    ]
    experiment_queue.run(tasks, rows[0][1].processes)


def write_table(job: Job, summary: list[dict], text: str) -> None:
    """Write table.json and table.md."""
    files.write_json(job.results_dir / "table.json", summary)
    files.write_text(job.results_dir / "table.md", text)


def _write_paired_tests(
    table: Table | Variants, job: Job, results, score: str
) -> None:
    """Write the bootstrap tests between rows and base to paired_tests.json."""
    corpus = manifest.open_corpus(job.data, job.split, job.problem.reverse)
    tests = paired_tests.compare_with_base(
        results,
        table.base_row,
        job.problem.suite,
        score,
        corpus.text("targets"),
        job.results_dir,
    )
    paired_tests.write(job.results_dir, tests)


def require_enough_checkpoints(rows, job):
    """Raise a UserError if a row saves fewer checkpoints than it averages."""
    for row in rows:
        hparams = row_files.row_settings(row, job)["hparams"]
        steps, every = hparams["train_steps"], hparams["save_checkpoints_steps"]
        wanted = hparams["num_averaged_checkpoints"]
        if steps // every < wanted:
            raise errors.UserError(
                f"{row.name} is an average of {wanted} checkpoints, and "
                f"{steps:,} steps with one every {every:,} make "
                f"{steps // every}. Set --hparams=save_checkpoints_steps=… or "
                "num_averaged_checkpoints=…."
            )
