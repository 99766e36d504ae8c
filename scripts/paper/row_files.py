"""Results of finished rows: a JSON file each, with the settings behind it."""

import dataclasses
import glob
import pathlib
import re
import shlex
import sys
from collections.abc import Callable, Iterable

from absl import flags

from scripts.paper.table_jobs import Job
from scripts.paper.table_rows import Row, Table, Variants
from t2t_repro import errors, registry
from t2t_repro.data import manifest
from t2t_repro.io import files
from t2t_repro.runs import history, run_json

# Not part of a recorded command: they depend on the machine.
_MACHINE_FLAGS = (
    "data_dir",
    "output_dir",
    "raw_dir",
    "results_dir",
    "machine",
    "monolingual",
    "processes",
)
# The folder of an absolute path, where an argument or a part of it begins.
_FOLDER = re.compile(r"(?<![^=:,\s])(?:~|/(?!/))[^=:,\s]*/")


def path(row: Row, job: Job) -> pathlib.Path:
    """Return the path of a row's file."""
    return job.results_dir / f"{row.name}-seed{row.seed}.json"


def translations_path(results_dir: pathlib.Path, result: dict) -> pathlib.Path:
    """Return the path of the translations of a finished row.

    Git ignores them; the row's file has their sha256.
    """
    return results_dir / f"{result['row']}-seed{result['seed']}.txt"


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
        "problem_arguments": job.problem.arguments
        | {"vocabulary": _vocabulary_names(job.problem)},
        **({"manifest_sha256": data} if data else {}),
        "split": job.split,
        "averaged": job.averaged,
        "mixed_precision": row.mixed_precision,
        "patience": job.patience,
        # Older files have patience with the headline metric.
        **(
            {"patience_metric": job.patience_metric}
            if job.patience_metric != history.HEADLINE
            else {}
        ),
        "hparams": dataclasses.asdict(values),
    }


def _vocabulary_names(problem):
    """Return the given vocabularies without their folders.

    The data's checksum stands for their content.
    """
    return ":".join(path.name for path in problem.vocabulary_paths)


def read_finished(file: pathlib.Path, wanted: dict) -> dict | None:
    """Return the content of a row's file, or None if there is none.

    Args:
        file: path of the file.
        wanted: settings that the row must have.

    Raises:
        UserError: the row was trained with other settings.
    """
    if not file.exists():
        return None
    stored = _read(file)
    differing = _differences(stored, wanted)
    if differing:
        raise errors.UserError(
            f"{file} is of another training: {'; '.join(differing)}. Remove "
            "it, or name another --results_dir."
        )
    return stored


def finished_rows(table: Table | Variants, job: Job) -> list[dict]:
    """Return results of all finished rows and seeds, in the table's order.

    Rows of earlier calls are included, unless they have other settings.
    """
    return matching_rows(
        table.names,
        job.results_dir,
        lambda name, seed: row_settings(table.row(name, seed), job),
    )


def matching_rows(
    names: Iterable[str],
    results_dir: pathlib.Path,
    settings: Callable[[str, int], dict],
) -> list[dict]:
    """Return the results in a folder whose rows have the wanted settings.

    Args:
        names: names of the rows.
        results_dir: folder of the JSON files.
        settings: a function of name and seed that returns row_settings().
    """
    results = []
    for name in names:
        stored = map(_read, results_dir.glob(f"{glob.escape(name)}-seed*.json"))
        for result in sorted(stored, key=lambda result: result["seed"]):
            try:
                wanted = settings(name, result["seed"])
            except errors.UserError:  # its size is no multiple of the divisor
                continue
            if not _differences(result, wanted):
                results.append(result)
    return results


def _read(file):
    """Return the content of a row's file, with later hparams as before."""
    return run_json.with_defaults(files.read_json(file))


def _differences(stored, wanted):
    """Describe differences of a row's file from the wanted settings."""
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


def command_line() -> str:
    """Return the command of this process, without folders of this machine.

    Flags of folders are left out; other absolute paths become file names.
    """
    values = flags.FLAGS
    given = [
        argument
        for name in values
        if values[name].present and name not in _MACHINE_FLAGS
        for argument in values[name].serialize().splitlines()
    ]
    module = f"scripts.paper.{pathlib.Path(sys.argv[0]).stem}"
    given = [_FOLDER.sub("", argument) for argument in given]
    return shlex.join(["python", "-m", module, *given])
