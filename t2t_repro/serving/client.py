"""Clients of an exported model."""

import pathlib
from collections.abc import Iterator, Sequence

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph

from t2t_repro.decoding.translate import Translation
from t2t_repro.serving import export

_SENTENCES_AT_ONCE = 32


class LocalClient:
    """The newest version in an export folder, loaded into this process."""

    def __init__(self, export_dir):
        """Loads the model.

        Raises:
            UserError: there is none.
        """
        folder = pathlib.Path(export_dir).expanduser()
        version = export.newest(folder)
        self._model = tf.saved_model.load(str(folder / str(version)))

    def translate(self, lines: Sequence[str]) -> Iterator[Translation]:
        """The best translation of each line, in order."""
        signature = self._model.signatures["serving_default"]
        for first in range(0, len(lines), _SENTENCES_AT_ONCE):
            part = lines[first : first + _SENTENCES_AT_ONCE]
            found = signature(inputs=tf.constant(part))
            for text, score in zip(
                found["outputs"].numpy(), found["scores"].numpy(), strict=True
            ):
                yield Translation([text.decode("utf-8")], [float(score)])
