"""The versions in an export folder, of which the newest is served.

As TensorFlow Serving does by default: a newer version is loaded beside the
one that serves, takes its place when it is ready, and the older one ends when
its last request is answered.
"""

import asyncio
import contextlib
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph
from tensorflow_serving.apis import get_model_status_pb2

from t2t_repro import errors, files
from t2t_repro.serving import batching, failure, saved_model, warm_up

State = get_model_status_pb2.ModelVersionStatus.State


class Status(NamedTuple):
    """What the status API says of a version."""

    state: int  # State
    error: str = ""  # why it could not be loaded
    files: frozenset = frozenset()  # of which it could not


class Model:
    """One version in memory."""

    def __init__(self, folder: pathlib.Path):
        """Loads it and sends it warm-up requests, which takes seconds."""
        self.version = int(folder.name)
        self.card = saved_model.read_verified_card(folder)
        self.signature_defs = dict(saved_model.read_graph(folder).signature_def)
        self._model = tf.saved_model.load(str(folder))
        self._queues: dict[str, batching.Queue] = {}
        for request in warm_up.read(folder):
            self.run(
                request.model_spec.signature_name or "serving_default",
                {
                    name: list(tensor.string_val)
                    for name, tensor in request.inputs.items()
                },
            )

    def input_names(self, signature: str) -> list[str]:
        """What a signature takes.

        Raises:
            Failure: there is no such signature.
        """
        if signature not in self._model.signatures:
            raise failure.invalid(
                f'Serving signature name: "{signature}" not found in signature '
                f"def; there are {', '.join(sorted(self._model.signatures))}."
            )
        return sorted(self.signature_defs[signature].inputs)

    def run(self, signature: str, inputs: batching.Inputs) -> batching.Outputs:
        """One batch through the model, in this thread."""
        # NumPy's own strings would lose NULs at their end.
        tensors = {
            name: tf.constant(np.array(values, object))
            for name, values in inputs.items()
        }
        found = self._model.signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in found.items()}

    def queue(self, signature: str, settings) -> batching.Queue:
        """The queue of a signature; `settings` makes it, the first time."""
        if signature not in self._queues:
            self._queues[signature] = settings(
                lambda inputs: self.run(signature, inputs), signature
            )
        return self._queues[signature]

    async def close(self):
        """Answers what waits for this version."""
        for queue in self._queues.values():
            await queue.close()


class Versions:
    """Keeps the newest version of a folder in memory."""

    def __init__(self, export_dir, name: str, loaded):
        """Loads nothing yet.

        Args:
            export_dir: of the exporter.
            name: that clients give the model.
            loaded: called with the number of each version that takes over.
        """
        self._folder = files.path(export_dir)
        self._name = name
        self._loaded = loaded
        self._model: Model | None = None
        self._statuses: dict[int, Status] = {}
        self._loading: asyncio.Future | None = None  # the last load

    async def start(self):
        """Loads the newest version.

        Raises:
            UserError: there is none, or it cannot be loaded.
        """
        version = saved_model.newest(self._folder)
        await self._load(version)
        if error := self._statuses[version].error:
            raise errors.UserError(
                f"Cannot load {self._folder / str(version)}: {error}. Export "
                "it again, or remove that folder."
            )

    async def watch(self, poll_secs: float):
        """Follows the folder for ever."""
        while True:
            await asyncio.sleep(poll_secs)
            try:
                found = saved_model.versions(self._folder)
            except OSError:
                continue  # a folder that is away is no reason to stop
            for gone in set(self._statuses) - set(found):
                if self._statuses[gone].state == State.END:
                    del self._statuses[gone]
            newest = found[-1] if found else self._model.version
            if newest != self._model.version and not self._failed(newest):
                await self._load(newest)

    def _failed(self, version):
        """Whether it could not be loaded, and is what it was then.

        A copy may be under way, of which the folder has a part.
        """
        status = self._statuses.get(version, Status(State.UNKNOWN))
        folder = self._folder / str(version)
        return bool(status.error) and status.files == _files_of(folder)

    async def close(self):
        """Answers what waits, and ends what is being loaded."""
        if self._loading:
            await asyncio.wait([self._loading])
        if self._model:
            await self._model.close()

    def find(self, name: str, version: int | None) -> Model:
        """The model that a request names.

        Raises:
            Failure: it is not here.
        """
        model = self._model
        if name != self._name or version not in (None, model.version):
            wanted = "Latest" if version is None else "Specific"
            number = "" if version is None else f", {version}"
            raise failure.not_found(
                f"Servable not found for request: {wanted}({name}{number})"
            )
        return model

    def signatures(self) -> set[str]:
        """Names of what the model can be asked."""
        return set(self._model.signature_defs)

    def statuses(
        self, name: str, version: int | None
    ) -> list[tuple[int, Status]]:
        """Versions known of, newest first.

        Raises:
            Failure: there is none.
        """
        found = [
            (known, status)
            for known, status in sorted(self._statuses.items(), reverse=True)
            if version in (None, known)
        ]
        if name != self._name or not found:
            number = "" if version is None else f" with version {version}"
            raise failure.not_found(
                f"Could not find any versions of model {name}{number}"
            )
        return found

    async def _load(self, version):
        folder = self._folder / str(version)
        found = _files_of(folder)
        self._statuses[version] = Status(State.LOADING)
        loop = asyncio.get_running_loop()
        self._loading = loop.run_in_executor(None, Model, folder)
        try:
            # Whoever waits may be cancelled: a thread goes on all the same.
            model = await asyncio.shield(self._loading)
        except Exception as error:  # of TensorFlow, which has no one type
            self._statuses[version] = Status(State.END, str(error), found)
            return
        old, self._model = self._model, model
        self._statuses[version] = Status(State.AVAILABLE)
        self._loaded(version)
        if old:
            self._statuses[old.version] = Status(State.UNLOADING)
            await old.close()
            self._statuses[old.version] = Status(State.END)


def _files_of(folder):
    """Paths, sizes and times; of files that come and go, those that stay."""
    found = set()
    with contextlib.suppress(OSError):  # a folder is gone
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.add((str(path), stat.st_size, stat.st_mtime_ns))
    return frozenset(found)
