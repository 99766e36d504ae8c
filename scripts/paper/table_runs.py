"""Trains rows of a table, scores them, and keeps each as a JSON file.

A row whose file is there is not trained again, and one that was interrupted
goes on from its last checkpoint. Rows are trained one after the other, by the
commands of the package in processes of their own.
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

# Folders of one machine say nothing to another.
_FOLDERS = ("data_dir", "output_dir", "raw_dir", "results_dir", "machine")


def t2t(command: str, *arguments: str):
    """Runs a command of the package.

    Raises:
        UserError: it failed; what it did is kept.
    """
    line = [sys.executable, "-m", f"t2t_repro.{command}", *arguments]
    print(f"\n{shlex.join(['t2t', command, *arguments])}", flush=True)
    status = subprocess.run(line).returncode
    if status:
        raise errors.UserError(
            f"{command} ended with status {status}; it says above why. Run the "
            "same again to go on from there."
        )


def finished(path: pathlib.Path, wanted: dict) -> dict | None:
    """A row's figures where they are there.

    Args:
        path: of its file.
        wanted: settings that it must have.

    Raises:
        UserError: it was trained with other settings.
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
    """Figures of all rows and seeds that are finished, in the table's order.

    Of this call and of earlier ones; those with other settings are left out.
    """
    found = []
    for name in table.names:
        stored = map(
            json_files.read, job.results_dir.glob(f"{name}-seed*.json")
        )
        for one in sorted(stored, key=lambda one: one["seed"]):
            try:
                wanted = settings(table.row(name, one["seed"]), job)
            except errors.UserError:  # of a size that cannot be divided so
                continue
            if not _differences(one, wanted):
                found.append(one)
    return found


def _differences(stored, wanted):
    """In words; of a row's file and the settings that it should have."""
    stored = run_json.with_defaults(stored)
    found = _flat({key: stored.get(key) for key in wanted})
    given = _flat(wanted)
    return [
        f"{key} is {found.get(key)!r} there and {given.get(key)!r} here"
        for key in sorted(found.keys() | given.keys())
        if found.get(key) != given.get(key)
    ]


def _flat(settings):
    """Settings with the hparams among them at the same level."""
    nested = {k: v for k, v in settings.items() if isinstance(v, dict)}
    flat = {k: v for k, v in settings.items() if k not in nested}
    return flat | {
        f"{key}.{name}": value
        for key, values in nested.items()
        for name, value in values.items()
    }


def train(row: Row, job: Job) -> pathlib.Path:
    """Trains a row, or trains it on; its folder."""
    # A training goes on in any precision; so each has a folder of its own.
    name = f"{row.name}-seed{row.seed}-{job.mixed_precision}"
    folder = job.output_dir / name
    overrides = ",".join(f"{key}={value}" for key, value in row.changes.items())
    t2t(
        "trainer",
        *job.to_commands,
        f"--hparams_set={row.hparams_set}",
        *([f"--hparams={overrides}"] if overrides else []),
        f"--random_seed={row.seed}",
        f"--mixed_precision={job.mixed_precision}",
        f"--output_dir={folder}",
        *([] if job.averaged else ["--keep_checkpoint_max=1"]),
        *job.to_datagen,
        *job.to_trainer,
    )
    if job.averaged:
        t2t("avg_checkpoints", *job.to_commands, f"--output_dir={folder}")
    return folder


def settings(row: Row, job: Job) -> dict:
    """What a row's file says of how it was trained and scored.

    And of the data, once that is there.
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


def run(row: Row, job: Job, measure):
    """Makes the file of a row, unless it is there.

    Args:
        row: what to run.
        job: what all rows have in common.
        measure: a function of the training's folder and what evaluate stored.
    """
    path = job.results_dir / f"{row.name}-seed{row.seed}.json"
    known = finished(path, settings(row, job))
    if known:
        print(f"{row.name}, seed {row.seed}: finished on {known['date']}.")
        return
    folder = train(row, job)
    t2t(
        "evaluate",
        *job.to_commands,
        f"--output_dir={folder}",
        f"--split={job.split}",
    )
    stored = runs.stored_scores(folder)[job.split]
    found = settings(row, job) | {
        "figures": measure(folder, stored),
        "command": command_line(),
        "machine": job.machine,
        "date": str(datetime.date.today()),
    }
    job.results_dir.mkdir(parents=True, exist_ok=True)
    json_files.write(path, found)


def figures(folder: pathlib.Path, stored: dict) -> dict:
    """Perplexities, scores, parameters and FLOPs of a training.

    Perplexity is that of the last weights, per subword, on the validation
    split, whatever was averaged or scored.
    """
    run = runs.open_run(folder)
    data = prepare.data_folder(run.settings["data_dir"], run.problem)
    corpus = manifest.open_corpus(data, "train", run.problem.reverse)
    lengths = batch_plan.mean_lengths(corpus.lengths, run.hparams.max_length)
    model = building.build_abstract(run.hparams, **run.vocabularies.sizes)
    tokens = run.hparams.batch_tokens * run.hparams.train_steps
    kept = ("step", "perplexity", *run.problem.suite.names)
    curve = [
        {key: entry[key] for key in kept if key in entry}
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


def run_all(table: Table, job: Job, summary, layout, measure=figures):
    """Runs the rows that the flags select, and writes the table after each.

    The table has all rows that are finished, selected now or not.

    Args:
        table: what its rows are.
        job: what they have in common.
        summary: a function of the results: what table.json holds.
        layout: a function of the results: the text of table.md.
        measure: of run().
    """
    rows = table.selected()
    if job.averaged:
        _require_enough_checkpoints(rows, job)
    for done, row in enumerate(rows, 1):
        print(f"\nRow {done} of {len(rows)}: {row.name}, seed {row.seed}.")
        run(row, job, measure)
        results = finished_rows(table, job)
        json_files.write(job.results_dir / "table.json", summary(results))
        files.write_text(job.results_dir / "table.md", layout(results))
    print(f"\n{layout(results)}")


def _require_enough_checkpoints(rows, job):
    """Now, and not when a row has been trained."""
    for row in rows:
        hparams = settings(row, job)["hparams"]
        steps, every = hparams["train_steps"], hparams["save_checkpoints_steps"]
        wanted = hparams["num_averaged_checkpoints"]
        if steps // every < wanted:
            raise errors.UserError(
                f"{row.name} is an average of {wanted} checkpoints, and "
                f"{steps:,} steps with one every {every:,} make "
                f"{steps // every}. Say --hparams=save_checkpoints_steps=… or "
                "num_averaged_checkpoints=…."
            )


def command_line() -> str:
    """How this script was called, without the folders of this machine."""
    values = flags.FLAGS
    given = [
        argument
        for name in values
        if values[name].present and name not in _FOLDERS
        for argument in values[name].serialize().splitlines()
    ]
    module = f"scripts.paper.{pathlib.Path(sys.argv[0]).stem}"
    return shlex.join(["python", "-m", module, *given])
