"""Client of an exported model in this process."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.serving import saved_model, version_folders
from t2t_repro.serving.client import Client
from t2t_repro.text import language_tags


class LocalClient(Client):
    """Version of an exported model, loaded into this process."""

    def __init__(self, export_dir: str | pathlib.Path):
        """Load the model.

        Args:
            export_dir: folder of a version, or an export folder, of which the
                newest version is loaded. Of one at a URL, a result of
                version_folders.open_folder().

        Raises:
            UserError: there is no model, or it is damaged.
        """
        self.folder = version_folders.find_version(
            files.expand_path(export_dir)
        )
        try:
            card = saved_model.read_verified_card(self.folder)
            self._model = saved_model.load(self.folder)
        except errors.UserError:
            raise
        except Exception as error:  # TensorFlow raises many types
            raise errors.UserError(
                f"Cannot load {self.folder}: {error}. Export it again, or "
                "remove that folder."
            ) from error
        self._data = card.get("data", {})  # of the model card

    def add_tags(
        self, lines: Sequence[str], target_language: str
    ) -> Sequence[str]:
        if languages := self._data.get("target_languages"):
            tagger = language_tags.Tagger(tuple(languages), target_language)
            return list(map(tagger, lines))
        own = self._data.get("target_language")
        if own and target_language not in ("", own):
            raise errors.UserError(
                f"The model in {self.folder} translates into {own}; got "
                f"target_language={target_language}. Omit it."
            )
        return lines

    def predict(self, lines: list[str]) -> tuple[list[str], list[float]]:
        outputs = self.run("serving_default", lines)
        texts = [text.decode("utf-8") for text in outputs["outputs"]]
        return texts, outputs["scores"].tolist()

    def run(
        self, signature: str, inputs: Sequence[str], *targets: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Run a signature on a batch of lines.

        Args:
            signature: name of the signature.
            inputs: [B] lines.
            *targets: [B] given translations, of the signature `score`.

        Raises:
            UserError: there is no such signature.
        """
        if signature not in self._model.signatures:
            raise errors.UserError(
                f"{self.folder} has no signature {signature!r}; it has "
                f"{', '.join(sorted(self._model.signatures))}."
            )
        columns = zip(("inputs", "targets"), (inputs, *targets), strict=False)
        outputs = self._model.signatures[signature](
            **{name: tf.constant(lines) for name, lines in columns}
        )
        return {name: tensor.numpy() for name, tensor in outputs.items()}
