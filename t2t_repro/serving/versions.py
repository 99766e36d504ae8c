"""Server of the newest version in an export folder.

The policy is TensorFlow Serving's default: when the newest version in the
folder changes, that version is loaded beside the one in service and replaces
it when it is ready. So a new version replaces an older one, and if the newest
version is removed, the one before it is loaded again. A replaced version is
unloaded when its last request is answered.
"""

import asyncio
import contextlib
import pathlib
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph
from tensorflow_serving.apis import get_model_status_pb2

from t2t_repro import errors, files
from t2t_repro.serving import batching, request_errors, saved_model, warm_up

State = get_model_status_pb2.ModelVersionStatus.State


class Status(NamedTuple):
    """Status of a version in the status API."""

    state: int  # State
    error: str = ""  # message of a failed load
    files: frozenset = frozenset()  # files at the time of a failed load


class LoadedVersion:
    """Model of one version, in memory."""

    def __init__(self, folder: pathlib.Path):
        """Load the version and run its warm-up requests: this takes seconds."""
        self.version = int(folder.name)
        self.card = saved_model.read_verified_card(folder)
        self.signature_defs = dict(saved_model.read_graph(folder).signature_def)
        self._model = saved_model.load(folder)
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
        """Return the names of a signature's inputs, sorted.

        Raises:
            RequestError: there is no such signature.
        """
        if signature not in self._model.signatures:
            raise request_errors.invalid(
                f'Serving signature name: "{signature}" not found in signature '
                f"def; there are {', '.join(sorted(self._model.signatures))}."
            )
        return sorted(self.signature_defs[signature].inputs)

    def run(self, signature: str, inputs: batching.Inputs) -> batching.Outputs:
        """Run a batch in this thread."""
        # dtype object: NumPy's strings would lose NULs at their end.
        tensors = {
            name: tf.constant(np.array(values, object))
            for name, values in inputs.items()
        }
        outputs = self._model.signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def queue(
        self,
        signature: str,
        new_queue: Callable[
            [Callable[[batching.Inputs], batching.Outputs], str], batching.Queue
        ],
    ) -> batching.Queue:
        """Return the queue of a signature.

        Args:
            signature: name of the signature.
            new_queue: called once with the function that runs a batch, and the
                signature.
        """
        if signature not in self._queues:
            self._queues[signature] = new_queue(
                lambda inputs: self.run(signature, inputs), signature
            )
        return self._queues[signature]

    async def close(self) -> None:
        """Answer the requests that wait for this version."""
        for queue in self._queues.values():
            await queue.close()


class Versions:
    """The newest version of a folder in memory, and the states of others."""

    def __init__(
        self,
        export_dir: str | pathlib.Path,
        name: str,
        on_new_version: Callable[[int], object],
    ):
        """Keep the settings; `start` loads the model.

        Args:
            export_dir: folder that the exporter has written.
            name: name of the model in requests.
            on_new_version: called with the number of each version when it
                begins to serve.
        """
        self._folder = files.expand_path(export_dir)
        self._name = name
        self._on_new_version = on_new_version
        self._model: LoadedVersion | None = None
        self._statuses: dict[int, Status] = {}
        self._loading: asyncio.Future | None = None  # the last load

    async def start(self) -> None:
        """Load the newest version.

        Raises:
            UserError: there is no version, or it cannot be loaded.
        """
        version = saved_model.newest_version(self._folder)
        await self._load(version)
        if error := self._statuses[version].error:
            raise errors.UserError(
                f"Cannot load {self._folder / str(version)}: {error}. Export "
                "it again, or remove that folder."
            )

    async def watch(self, poll_secs: float) -> NoReturn:
        """Poll the folder without end, and serve its newest version.

        That is an older version if the one in service has been removed.
        """
        while True:
            await asyncio.sleep(poll_secs)
            try:
                present = saved_model.list_versions(self._folder)
            except OSError:
                continue  # an unmounted folder may come back
            for gone in set(self._statuses) - set(present):
                if self._statuses[gone].state == State.END:
                    del self._statuses[gone]
            newest = present[-1] if present else self._current().version
            if newest != self._current().version and not self._failed(newest):
                await self._load(newest)

    def _failed(self, version):
        """Return whether a load failed and the files have not changed since.

        After a change, a retry may succeed: the folder may have been a copy in
        progress.
        """
        status = self._statuses.get(version, Status(State.UNKNOWN))
        folder = self._folder / str(version)
        return bool(status.error) and status.files == _files_of(folder)

    async def close(self) -> None:
        """Wait for a load in progress, and answer the waiting requests."""
        if self._loading:
            await asyncio.wait([self._loading])
        if self._model:
            await self._model.close()

    def find(self, name: str, version: int | None) -> LoadedVersion:
        """Return the model with a name and version.

        Raises:
            RequestError: no such model is in service.
        """
        model = self._current()
        if name != self._name or version not in (None, model.version):
            choice = "Latest" if version is None else "Specific"
            number = "" if version is None else f", {version}"
            raise request_errors.not_found(
                f"Servable not found for request: {choice}({name}{number})"
            )
        return model

    def signatures(self) -> set[str]:
        """Return the names of the model's signatures."""
        return set(self._current().signature_defs)

    def statuses(
        self, name: str, version: int | None
    ) -> list[tuple[int, Status]]:
        """Return the known versions with their states, newest first.

        Raises:
            RequestError: there is no such version.
        """
        statuses = [
            (known, status)
            for known, status in sorted(self._statuses.items(), reverse=True)
            if version in (None, known)
        ]
        if name != self._name or not statuses:
            number = "" if version is None else f" with version {version}"
            raise request_errors.not_found(
                f"Could not find any versions of model {name}{number}"
            )
        return statuses

    def _current(self):
        assert self._model, "start() comes first"
        return self._model

    async def _load(self, version):
        """Load a version and put it into service; store an error instead."""
        folder = self._folder / str(version)
        present = _files_of(folder)
        self._statuses[version] = Status(State.LOADING)
        loop = asyncio.get_running_loop()
        self._loading = loop.run_in_executor(None, LoadedVersion, folder)
        try:
            # Shielded: a thread continues after its waiter is cancelled.
            model = await asyncio.shield(self._loading)
        except Exception as error:  # TensorFlow raises many types
            self._statuses[version] = Status(State.END, str(error), present)
            return
        await self._replace_model(model)

    async def _replace_model(self, model):
        """Put a loaded version into service; unload the one before it."""
        old, self._model = self._model, model
        self._statuses[model.version] = Status(State.AVAILABLE)
        self._on_new_version(model.version)
        if old:
            self._statuses[old.version] = Status(State.UNLOADING)
            await old.close()
            self._statuses[old.version] = Status(State.END)


def _files_of(folder):
    """Return paths, sizes and times of files; skip those that disappear."""
    stats = set()
    with contextlib.suppress(OSError):  # a folder has disappeared
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                stats.add((str(path), stat.st_size, stat.st_mtime_ns))
    return frozenset(stats)
