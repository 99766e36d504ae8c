"""Translation of many files by many workers, which a killed job continues.

Files are cut into shards of a fixed number of lines. Each is translated by one
worker, and written when it is complete; the shards of a file are joined at the
end. Neither a file nor its translation is in memory as a whole.
"""

import contextlib
import dataclasses
import functools
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from t2t_repro import errors, registry
from t2t_repro.data import engines
from t2t_repro.decoding import reranking, translation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files, progress
from t2t_repro.runs import checkpoint_files
from t2t_repro.runs.run import Checkpoints, Run
from t2t_repro.serving import translation_folder, version_folders
from t2t_repro.text import long_lines

# Models that workers of bulk decoding load: of a run, or of an export.
#
# Here they are names, settings and checksums, which are sent to workers.
# `settings` is all that determines the translations, for a manifest. Outputs
# for a list of lines do not depend on the number of cores: batches are not
# split, and operations have one thread each.

# Limit of a batch of an export: bytes of its lines with padding and room for
# longer outputs. This is about the default `batch_tokens` with 4 beams.
_BATCH_BYTES = 32_768
_ROOM_BYTES = 200  # for each line: extra_length=50 subwords

# A function of lines.
Translate = Callable[[Sequence[str]], Iterable[translation.Translation]]


class RunModel(NamedTuple):
    """Model of a run, or an ensemble."""

    output_dir: pathlib.Path
    checkpoint_paths: tuple[pathlib.Path, ...]
    checkpoint_checksums: tuple[str, ...]
    decode_hparams: DecodeHParams
    split_sentences: bool
    target_language: str  # of a many-to-many model; "": lines have tags
    # Modules of --usr_dir with sha256. Engines send them to workers.
    definitions: tuple[tuple[str, str], ...] = ()

    @property
    def limit(self) -> int:
        """Subwords of a line, of which more are refused."""
        return self.decode_hparams.max_input_length

    @property
    def settings(self) -> dict[str, Any]:
        """Checkpoints, and all that changes their outputs."""
        paths = self.checkpoint_paths
        reranker = reranking.build(self.decode_hparams)
        checksums = self.decode_hparams.checksums
        return {
            "model": "run",
            "checkpoints": checkpoint_files.names(paths, self.output_dir),
            "checkpoints_sha256": list(self.checkpoint_checksums),
            "decode_hparams": dataclasses.asdict(self.decode_hparams),
            "split_sentences": self.split_sentences,
            "target_language": self.target_language,
            # Absent, as in earlier versions, if there are none.
            **({"reranker": dict(reranker.settings)} if reranker else {}),
            **({"files_sha256": checksums} if checksums else {}),
            **({"usr_dir": dict(self.definitions)} if self.definitions else {}),
        }

    def load(self) -> Translate:
        """Load the weights.

        Raises:
            UserError: a file is missing or damaged, or of another model.
        """
        run = Run.open(self.output_dir)
        paths = list(map(checkpoint_files.require, self.checkpoint_paths))
        checksums = checkpoint_files.checksums(paths)
        if checksums != list(self.checkpoint_checksums):
            raise _other_model(", ".join(map(str, paths)))
        from t2t_repro.decoding import translate

        _configure_devices()
        problem = run.problem.toward(self.target_language)
        pair = run.vocabularies
        translator = translate.BatchTranslator(
            run.models(paths),
            pair,
            self.decode_hparams,
            split=problem.line_splitter(pair.source, self.split_sentences),
            num_shards=1,
        )
        return translator.translate


class ExportModel(NamedTuple):
    """Version of an export, whose search has the settings of the export."""

    folder: pathlib.Path
    checksum: str
    target_language: str  # of a many-to-many model; "": lines have tags

    @property
    def limit(self) -> int:
        """0: longer lines are truncated, and not refused."""
        return 0

    @property
    def settings(self) -> dict[str, Any]:
        """Checksum of the graph and the weights, and the target language."""
        return {
            "model": "export",
            "export_sha256": self.checksum,
            "target_language": self.target_language,
        }

    def load(self) -> Translate:
        """Load the SavedModel; the errors are those of RunModel."""
        from t2t_repro.serving.client import ExportedModel

        _configure_devices()
        # A worker on another machine may have no copy of a URL.
        folder = version_folders.open_folder(self.folder)
        model = ExportedModel(folder, _similar_lengths)
        if _export_checksum(model.folder) != self.checksum:
            raise _other_model(model.folder)
        return functools.partial(
            model.translate, target_language=self.target_language
        )


Model: TypeAlias = RunModel | ExportModel


def of_run(
    run: Run,
    checkpoint_path: Checkpoints = None,
    decode_hparams: DecodeHParams | None = None,
    split_sentences: bool = False,
    target_language: str = "",
) -> RunModel:
    """Return the model of a run.

    Args:
        run: the run, which workers find by the same path.
        checkpoint_path: argument of Run.checkpoints().
        decode_hparams: settings of the search; None: the problem's.
        split_sentences: whether lines are split into sentences.
        target_language: of a many-to-many model, for lines without a tag.

    Raises:
        UserError: there is no such checkpoint or language, or the package that
            splits lines is not installed.
    """
    paths = run.checkpoints(checkpoint_path)
    problem = run.problem.toward(target_language)
    problem.line_splitter(run.vocabularies.source, split_sentences)
    reranker = reranking.build(decode_hparams or run.search)
    reranking.require_direction(reranker, problem)
    return RunModel(
        run.output_dir.absolute(),
        tuple(path.absolute() for path in paths),
        tuple(checkpoint_files.checksums(paths)),
        decode_hparams or run.problem.search,
        split_sentences,
        target_language,
        tuple(registry.definition_checksums().items()),
    )


def of_export(
    export_dir: str | pathlib.Path, target_language: str = ""
) -> ExportModel:
    """Return a version of an export, or the newest in an export folder.

    Args:
        export_dir: folder of the version, or of all versions; or its URL.
        target_language: of a many-to-many model, for lines without a tag.

    Raises:
        UserError: there is none, or it is damaged.
    """
    folder = version_folders.open_folder(export_dir).absolute()
    folder = version_folders.find_version(folder)
    return ExportModel(folder, _export_checksum(folder), target_language)


def _export_checksum(folder):
    """Return the checksum of a version's files, which are verified.

    Other files, such as README.md, may change.
    """
    from t2t_repro.serving import saved_model

    card = saved_model.read_verified_card(folder)
    found = card["files"] if card else saved_model.checksums(folder)
    return files.json_checksum(found)


def _other_model(name):
    return errors.UserError(
        f"A worker has found a different model in {name} from the one that the "
        "command was started with. Restore it, or start the command again."
    )


def _configure_devices():
    """Give this process a GPU, and each operation one thread."""
    from t2t_repro.runtime import devices

    devices.use_one_thread_per_operation()
    devices.use_one_gpu(engines.process_index())


def _similar_lengths(lines):
    """Yield indices of lines of similar length."""
    from t2t_repro.decoding.score import length_sorted

    sizes = [len(line.encode()) + _ROOM_BYTES for line in lines]
    return length_sorted(range(len(lines)), sizes, _BATCH_BYTES)


def local_engine(num_workers: int | None) -> engines.Engine:
    """Return processes of this machine.

    None: one for each GPU, or for each core without.
    """
    if num_workers is None:
        from t2t_repro.runtime import devices

        num_workers = devices.default_num_workers()
    if num_workers == 1:
        return engines.INLINE
    return engines.ProcessEngine(num_workers)


# A translator has state; Dask may call it on several threads.
_lock = threading.Lock()


def _translate_shard(
    model: Model, output_format: str, shard: translation_folder.Shard
) -> translation_folder.TranslatedShard:
    """Translate a shard on a worker; the first one loads the model."""
    format_output = translation.OUTPUT_FORMATS[output_format]
    with _lock:
        translate = _load(model)
        try:
            translations = list(translate(shard.lines))
        except errors.UserError as error:  # as a line without a tag
            last = shard.first + len(shard.lines) - 1
            raise errors.UserError(
                f"{shard.source}, lines {shard.first:,} to {last:,}: {error}",
                error.see,
            ) from error
    pairs = zip(shard.lines, translations, strict=True)
    outputs = [
        format_output(number, line, found)
        for number, (line, found) in enumerate(pairs, shard.first)
    ]
    return translation_folder.TranslatedShard(
        "".join(f"{output}\n" for output in outputs),
        translation.too_long(translations, shard.first),
    )


@functools.lru_cache(maxsize=1)
def _load(model):
    return model.load()


def translate_files(
    model: Model,
    sources: Sequence[pathlib.Path],
    folder: pathlib.Path,
    engine: engines.Engine = engines.INLINE,
    output_format: str = "text",
    shard_lines: int = translation_folder.SHARD_LINES,
) -> str:
    """Translate files into a folder, and print a summary.

    A job that was killed continues. Translations have the same bytes with any
    engine and number of workers.

    Args:
        model: result of of_run() or of_export().
        sources: files, plain, .gz or .zst.
        folder: folder of the translations, which have the names of the files
            without .gz and .zst.
        engine: engine whose workers translate.
        output_format: name in translation.OUTPUT_FORMATS.
        shard_lines: lines that a worker translates at once.

    Returns:
        A message about lines that are too long; "" if there are none.

    Raises:
        UserError: another process writes to the folder, it was made with other
            settings, a file has changed since, or workers are lost.
    """
    engine.require_workers()  # before all lines are counted
    settings = model.settings | {
        "output_format": output_format,
        "shard_lines": shard_lines,
    }
    translator = functools.partial(_translate_shard, model, output_format)
    with files.locked(folder):
        translated = translation_folder.TranslationFolder(
            folder, settings, sources
        )
        _translate_missing(translated, engine, translator)
    count, lines = translated.long_lines()
    return long_lines.message(lines, count, model.limit) if count else ""


def _translate_missing(translated, engine, translator):
    total = sum(file.entry["lines"] for file in translated.files)
    done = sum(file.finished_lines for file in translated.files)
    for file in translated.files:
        translated.join_complete(file)
    tasks = (
        ((file, index), shard)
        for file in translated.files
        for index, shard in file.read_missing()
    )
    start = time.monotonic()
    bar = progress.bar(desc="translate", total=total, initial=done, unit="line")
    results = engines.as_finished(engine, translator, tasks)
    # Closed here, so that workers end before the lock does.
    with bar, contextlib.closing(results):
        for (file, index), shard in results:
            bar.update(file.write(index, shard))
            translated.join_complete(file)
    seconds = time.monotonic() - start
    print(
        f"Translated {total - done:,} lines in {progress.duration(seconds)} "
        f"({(total - done) / seconds:,.1f} lines/s). All {total:,} lines of "
        f"{len(translated.files):,} files are there."
    )
