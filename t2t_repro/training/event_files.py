"""TensorBoard events of a run: two folders, which share their tags."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

TRAIN, VALIDATION = "train", "validation"  # folders in that of the run


class EventFiles:
    """Writers of scalars and texts, one of them for each folder."""

    def __init__(self, output_dir: pathlib.Path):
        """Open the files of a new session."""
        # Readers order event files by this number, not by the time in their
        # names, since clocks may be set back. Earlier versions wrote one file
        # for a session, in the folder of the run.
        folders = output_dir, output_dir / TRAIN
        earlier = [path for f in folders for path in f.glob("events.*")]
        suffix = f".session-{1 + len(earlier)}"
        self._writers = {
            name: tf.summary.create_file_writer(
                str(output_dir / name), filename_suffix=suffix
            )
            for name in (TRAIN, VALIDATION)
        }

    def add_scalars(
        self, folder: str, scalars: Mapping[str, float], step: int
    ) -> None:
        """Write {tag: value} of a step."""
        with self._writers[folder].as_default(step):
            for tag, value in scalars.items():
                _write(tag, np.float32(value), "scalars")

    def add_table(
        self,
        folder: str,
        tag: str,
        rows: Sequence[Mapping[str, Any]],
        step: int,
    ) -> None:
        """Write a table as text, with the keys of the rows as its header."""
        lines = [list(rows[0]), ["---"] * len(rows[0])]
        lines += [list(map(_escaped, row.values())) for row in rows]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        with self._writers[folder].as_default(step):
            _write(tag, text, "text")

    def flush(self) -> None:
        """Write all events to the disk."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write all events to the disk, and close the files."""
        for writer in self._writers.values():
            writer.close()


def _write(tag, value, plugin):
    """Write a value for a plugin, as tf.summary.scalar and text do.

    Those need TensorBoard.
    """
    summary = tf.compat.v1.SummaryMetadata
    metadata = summary(plugin_data=summary.PluginData(plugin_name=plugin))
    tf.summary.write(tag, value, metadata=metadata)


def _escaped(value):
    """Return a cell of a table in Markdown."""
    return str(value).replace("|", "\\|").replace("\n", " ")
