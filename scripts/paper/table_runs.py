"""Training and scoring of a table's rows, each recorded in a JSON file.

A row with a file is not trained again. An interrupted row resumes from its last
checkpoint. Rows are trained one after the other, by the commands of the package
in separate processes.
"""

import dataclasses
import datetime
import pathlib
import shlex
import subprocess
import sys

from absl import flags

from scripts.paper.table_jobs import Job
from scripts.paper.table_rows import Row, Table
from t2t_repro import (
    errors,
    files,
    json_files,
    prepare,
    registry,
    run_json,
    runs,
)
from t2t_repro.data import batch_plan, manifest
from t2t_repro.models import building
from t2t_repro.reports import cost
from t2t_repro.training import history

# Not part of a recorded command: they depend on the machine.
_MACHINE_FLAGS = ("data_dir", "output_dir", "raw_dir", "results_dir", "machine")


def run_command(command: str, *arguments: str):
    """Run a command of the package.

    Raises:
        UserError: it failed; its checkpoints and files remain.
    """
    line = [sys.executable, "-m", f"t2t_repro.{command}", *arguments]
    print(f"\n{shlex.join(['t2t', command, *arguments])}", flush=True)
    status = subprocess.run(line).returncode
    if status:
        raise errors.UserError(
            f"{command} ended with status {status}; see its messages above. "
            "Run the same command again to resume."
        )


def read_finished(path: pathlib.Path, wanted: dict) -> dict | None:
    """Return the content of a row's file, or None if there is none.

    Args:
        path: of the file.
        wanted: settings that the row must have.

    Raises:
        UserError: the row was trained with other settings.
    """
    if not path.exists():
        return None
    stored = json_files.read(path)
    differing = _differences(stored, wanted)
    if differing:
        raise errors.UserError(
            f"{path} is of another training: {'; '.join(differing)}. Remove "
            "it, or name another --results_dir."
        )
    return stored


def finished_rows(table: Table, job: Job) -> list[dict]:
    """Return results of all finished rows and seeds, in the table's order.

    Rows of earlier calls are included, unless they have other settings.
    """
    results = []
    for name in table.names:
        stored = map(
            json_files.read, job.results_dir.glob(f"{name}-seed*.json")
        )
        for result in sorted(stored, key=lambda result: result["seed"]):
            try:
                wanted = row_settings(table.row(name, result["seed"]), job)
            except errors.UserError:  # its size is no multiple of the divisor
                continue
            if not _differences(result, wanted):
                results.append(result)
    return results


def _differences(stored, wanted):
    """Describe differences of a row's file from the wanted settings."""
    stored = run_json.with_defaults(stored)
    actual = _flatten({key: stored.get(key) for key in wanted})
    wanted = _flatten(wanted)
    return [
        f"{key} is {actual.get(key)!r} there and {wanted.get(key)!r} here"
        for key in sorted(actual.keys() | wanted.keys())
        if actual.get(key) != wanted.get(key)
    ]


def _flatten(settings):
    """Return settings with nested ones, such as hparams, at the top level."""
    nested = {k: v for k, v in settings.items() if isinstance(v, dict)}
    flat = {k: v for k, v in settings.items() if k not in nested}
    return flat | {
        f"{key}.{name}": value
        for key, values in nested.items()
        for name, value in values.items()
    }


def train_row(row: Row, job: Job) -> pathlib.Path:
    """Train a row or resume its training; return its folder."""
    # A training could resume in another precision, so each has its own folder.
    name = f"{row.name}-seed{row.seed}-{job.mixed_precision}"
    folder = job.output_dir / name
    overrides = ",".join(f"{key}={value}" for key, value in row.changes.items())
    run_command(
        "trainer",
        *job.problem_flags,
        f"--hparams_set={row.hparams_set}",
        *([f"--hparams={overrides}"] if overrides else []),
        f"--random_seed={row.seed}",
        f"--mixed_precision={job.mixed_precision}",
        f"--output_dir={folder}",
        *([] if job.averaged else ["--keep_checkpoint_max=1"]),
        *job.datagen_flags,
        *job.trainer_flags,
    )
    if job.averaged:
        run_command(
            "avg_checkpoints", *job.problem_flags, f"--output_dir={folder}"
        )
    return folder


def row_settings(row: Row, job: Job) -> dict:
    """Return the settings of training and scoring that a row's file records.

    They include the sha256 of the data, once the data exists.
    """
    values = dataclasses.replace(
        registry.build_hparams(row.hparams_set), **row.changes
    )
    data = manifest.sha256(job.data)
    return {
        "row": row.name,
        "seed": row.seed,
        "problem": job.problem.requested_name,
        "problem_arguments": job.problem.arguments,
        **({"manifest_sha256": data} if data else {}),
        "split": job.split,
        "averaged": job.averaged,
        "mixed_precision": job.mixed_precision,
        "hparams": dataclasses.asdict(values),
    }


def run_row(row: Row, job: Job, measure):
    """Train and score a row, and write its file, unless it exists.

    Args:
        row: the row.
        job: settings that all rows share.
        measure: a function of the training's folder and its stored scores.
    """
    path = job.results_dir / f"{row.name}-seed{row.seed}.json"
    finished = read_finished(path, row_settings(row, job))
    if finished:
        print(f"{row.name}, seed {row.seed}: finished on {finished['date']}.")
        return
    folder = train_row(row, job)
    run_command(
        "evaluate",
        *job.problem_flags,
        f"--output_dir={folder}",
        f"--split={job.split}",
    )
    stored = runs.stored_scores(folder)[job.split]
    result = row_settings(row, job) | {
        "figures": measure(folder, stored),
        "command": command_line(),
        "machine": job.machine,
        "date": str(datetime.date.today()),
    }
    job.results_dir.mkdir(parents=True, exist_ok=True)
    json_files.write(path, result)


def measure_training(folder: pathlib.Path, stored: dict) -> dict:
    """Return perplexities, scores, parameters and FLOPs of a training.

    Perplexity is per subword, of the last weights on the validation split, even
    if scores are of averaged weights or another split.
    """
    run = runs.open_run(folder)
    data = prepare.data_folder(run.settings["data_dir"], run.problem)
    corpus = manifest.open_corpus(data, "train", run.problem.reverse)
    lengths = batch_plan.mean_lengths(corpus.lengths, run.hparams.max_length)
    model = building.build_abstract(run.hparams, **run.vocabularies.sizes)
    tokens = run.hparams.batch_tokens * run.hparams.train_steps
    names = ("step", "perplexity", *run.problem.suite.names)
    curve = [
        {key: entry[key] for key in names if key in entry}
        for entry in json_files.read(folder / history.VALIDATION)
    ]
    return {
        "perplexity": curve[-1]["perplexity"],
        "scores": {key: stored[key] for key in stored["signatures"]},
        "signatures": stored["signatures"],
        "vocab_size": model.vocab_size,
        "parameters": model.count_params(),
        "training_flops": cost.training_flops(model, tokens, *lengths),
        "curve": curve,
    }


def run_all(
    table: Table, job: Job, summarize, lay_out, measure=measure_training
):
    """Run the rows that the flags select, and write the table after each.

    The table has all finished rows, including those that are not selected.

    Args:
        table: its rows.
        job: settings that all rows share.
        summarize: a function of the results that returns table.json.
        lay_out: a function of the results that returns table.md.
        measure: of run_row().
    """
    rows = table.selected()
    if job.averaged:
        _require_enough_checkpoints(rows, job)
    for done, row in enumerate(rows, 1):
        print(f"\nRow {done} of {len(rows)}: {row.name}, seed {row.seed}.")
        run_row(row, job, measure)
        results = finished_rows(table, job)
        json_files.write(job.results_dir / "table.json", summarize(results))
        files.write_text(job.results_dir / "table.md", lay_out(results))
    print(f"\n{lay_out(results)}")


def _require_enough_checkpoints(rows, job):
    """Raise a UserError if a row saves fewer checkpoints than it averages."""
    for row in rows:
        hparams = row_settings(row, job)["hparams"]
        steps, every = hparams["train_steps"], hparams["save_checkpoints_steps"]
        wanted = hparams["num_averaged_checkpoints"]
        if steps // every < wanted:
            raise errors.UserError(
                f"{row.name} is an average of {wanted} checkpoints, and "
                f"{steps:,} steps with one every {every:,} make "
                f"{steps // every}. Set --hparams=save_checkpoints_steps=… or "
                "num_averaged_checkpoints=…."
            )


def command_line() -> str:
    """Return the command of this process, without folders of this machine."""
    values = flags.FLAGS
    given = [
        argument
        for name in values
        if values[name].present and name not in _MACHINE_FLAGS
        for argument in values[name].serialize().splitlines()
    ]
    module = f"scripts.paper.{pathlib.Path(sys.argv[0]).stem}"
    return shlex.join(["python", "-m", module, *given])
