"""Translation of many files by many workers, which a killed job continues.

Files are cut into shards of a fixed number of lines. Each is translated by one
worker, and written when it is complete; the shards of a file are joined at the
end. Neither a file nor its translation is in memory as a whole.
"""

import contextlib
import functools
import pathlib
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.bulk import bulk_models, translated_files
from t2t_repro.bulk.translated_files import Shard, TranslatedShard
from t2t_repro.bulk.translation_folder import TranslationFolder
from t2t_repro.data import engines
from t2t_repro.io import locks, progress

# A translator has state; Dask may call it on several threads.
_lock = threading.Lock()


class ShardTranslator(NamedTuple):
    """Function of a shard, which is sent to workers."""

    model: bulk_models.Model
    output_format: str

    def __call__(self, shard: Shard) -> TranslatedShard:
        """Translate a shard; the first one loads the model."""
        from t2t_repro.decoding import output_formats

        format_output = output_formats.FORMATS[self.output_format]
        with _lock:
            translate = _load(self.model)
            try:
                translations, too_long = translate(shard.lines)
            except errors.UserError as error:  # as a line without a tag
                last = shard.first + len(shard.lines) - 1
                raise errors.UserError(
                    f"{shard.source}, lines {shard.first:,} to {last:,}: "
                    f"{error}",
                    error.see,
                ) from error
        pairs = zip(shard.lines, translations, strict=True)
        outputs = [
            format_output(number, line, translation)
            for number, (line, translation) in enumerate(pairs, shard.first)
        ]
        return TranslatedShard(
            "".join(f"{output}\n" for output in outputs),
            {shard.first + index: size for index, size in too_long.items()},
        )


@functools.lru_cache(maxsize=1)
def _load(model):
    """Load a model into this process, once."""
    return model.load()


def translate_files(
    model: bulk_models.Model,
    sources: Sequence[pathlib.Path],
    folder: pathlib.Path,
    engine: engines.Engine = engines.INLINE,
    output_format: str = "text",
    shard_lines: int = translated_files.SHARD_LINES,
) -> str:
    """Translate files into a folder, and print a summary.

    A job that was killed continues. Translations have the same bytes with any
    engine and number of workers.

    Args:
        model: result of bulk_models.of_run() or of_export().
        sources: files, plain, .gz or .zst.
        folder: folder of the translations, which have the names of the files
            without .gz and .zst.
        engine: engine whose workers translate.
        output_format: name in output_formats.FORMATS.
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
    with locks.locked(folder):
        translated = TranslationFolder(folder, settings, sources)
        _translate_missing(
            translated, engine, ShardTranslator(model, output_format)
        )
    count, lines = translated.long_lines()
    return model.long_lines_message(lines, count) if count else ""


def _translate_missing(translated, engine, translator):
    """Translate the missing shards of a TranslationFolder."""
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
    with (
        progress.bar(
            desc="translate", total=total, initial=done, unit="line"
        ) as bar,
        # Closed here, so that workers end before the lock does.
        contextlib.closing(
            engines.as_finished(engine, translator, tasks)
        ) as results,
    ):
        for (file, index), shard in results:
            bar.update(file.write(index, shard))
            translated.join_complete(file)
    seconds = time.monotonic() - start
    print(
        f"Translated {total - done:,} lines in {progress.duration(seconds)} "
        f"({(total - done) / seconds:,.1f} lines/s). All {total:,} lines of "
        f"{len(translated.files):,} files are there."
    )
