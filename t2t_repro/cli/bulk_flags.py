"""Flags of decoder for many files, and checks of them without TensorFlow."""

import glob
import pathlib
from typing import TYPE_CHECKING, NamedTuple

from absl import flags

from t2t_repro import errors
from t2t_repro.bulk import translated_files, translation_folder
from t2t_repro.cli import common_flags
from t2t_repro.data import engines
from t2t_repro.io import files
from t2t_repro.serving import version_folders

if TYPE_CHECKING:
    from t2t_repro.bulk import bulk_models
    from t2t_repro.runs import stored_run

TO_DIR = flags.DEFINE_string(
    "decode_to_dir",
    None,
    "Translate all files that match the pattern --decode_from_file, such as "
    "'mono/*.en.gz', into this folder. A command that was killed continues.",
)
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "With --decode_to_dir: folder of an export, instead of a run.",
)
_SHARD_LINES = flags.DEFINE_integer(
    "shard_lines",
    translated_files.SHARD_LINES,
    "With --decode_to_dir: lines that a worker translates and writes at once.",
    lower_bound=1,
)
_ENGINE = flags.DEFINE_string(
    "engine",
    "local",
    "With --decode_to_dir: engine that translates: local, processes on this "
    "machine; or dask:ADDRESS, the workers of a Dask cluster.",
)
_NUM_WORKERS = flags.DEFINE_integer(
    "num_workers",
    None,
    "With --decode_to_dir: processes of the local engine, each with the model; "
    "by default one for each GPU, or without for each core, at most 8.",
    lower_bound=1,
)
NEEDS_TO_DIR = (_EXPORT_DIR, _SHARD_LINES, _ENGINE, _NUM_WORKERS)
# Flags of a run, which an export ignores.
_OF_RUN = (
    "output_dir",
    "problem",
    "problem_args",
    "hparams_set",
    "hparams",
    "checkpoint_path",
    "decode_hparams",
    "split_sentences",
)


class Job(NamedTuple):
    """Files to translate, and the flags for it."""

    sources: list[pathlib.Path]
    folder: pathlib.Path
    run: "stored_run.StoredRun | None"  # or
    export: pathlib.Path | None  # folder of a version
    cluster: engines.Engine | None  # None: processes on this machine
    shard_lines: int

    def model(
        self, split_sentences: bool, target_language: str
    ) -> "bulk_models.Model":
        """Return the model that the flags name."""
        # Imported here, so that --help needs no PyArrow.
        from t2t_repro.bulk import bulk_models

        if self.export is not None:
            return bulk_models.of_export(self.export, target_language)
        assert self.run is not None
        return bulk_models.of_run(
            self.run,
            common_flags.checkpoint_paths(self.run),
            common_flags.decode_hparams(self.run.problem),
            split_sentences,
            target_language,
        )

    def engine(self) -> engines.Engine:
        """Return the engine that the flags name."""
        if self.cluster is not None:
            return self.cluster
        count = _NUM_WORKERS.value
        if count is None:
            # Imported here, so that --help needs no TensorFlow.
            from t2t_repro.runtime import devices

            count = devices.default_num_workers()
        return engines.ProcessEngine(count) if count > 1 else engines.INLINE


def check(pattern: str) -> Job:
    """Check the flags, and find the files.

    Args:
        pattern: value of --decode_from_file.

    Raises:
        UserError: flags contradict each other; there is no such file, run,
            export or engine, or the folder cannot be written.
    """
    run = export = None
    if _EXPORT_DIR.value:
        _refuse_flags_of_run()
        export = version_folders.find_version(
            version_folders.open_folder(_EXPORT_DIR.value)
        )
    else:
        run = common_flags.read_run()
    cluster = None
    if _ENGINE.value != "local":
        cluster = engines.create(_ENGINE.value, engines.INLINE)
    if cluster is not None and _NUM_WORKERS.value is not None:
        raise errors.UserError(
            f"--engine={_ENGINE.value} ignores --num_workers: the cluster has "
            "its own workers. Omit one of them."
        )
    folder = files.expand_path(TO_DIR.value or "")
    sources = _find(pattern, folder)
    translation_folder.output_names(sources)
    files.require_writable(folder)
    return Job(sources, folder, run, export, cluster, _SHARD_LINES.value)


def _refuse_flags_of_run():
    for name in _OF_RUN:
        flag = flags.FLAGS[name]
        if flag.value != flag.default:
            raise errors.UserError(
                f"--export_dir ignores --{name}: an export has its own model "
                "and search. Omit one of them."
            )


def _find(pattern: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of a pattern, or the one of that name, sorted.

    Files in the folder of the translations are left out: a pattern such as
    */*.en matches those of an earlier command.
    """
    path = files.expand_path(pattern)
    matches = (
        [path]
        if path.is_file()
        else map(pathlib.Path, glob.iglob(str(path), recursive=True))
    )
    found = sorted(path for path in matches if path.is_file())
    outputs = folder.resolve()
    sources = [path for path in found if outputs not in path.resolve().parents]
    if found and not sources:
        raise errors.UserError(
            f"--decode_to_dir={folder} has the files of --decode_from_file="
            f"{pattern} itself. Name another folder."
        )
    if not sources:
        raise errors.UserError(
            f"No file matches --decode_from_file={pattern}. Quote the pattern, "
            "so that the shell does not replace it."
        )
    return sources
