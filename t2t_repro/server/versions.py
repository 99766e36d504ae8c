"""The versions of a model in an export folder, of which the newest is served.

LoadedVersion is one in memory, with a queue for each of its signatures;
Versions loads and replaces them.

The policy is TensorFlow Serving's default: when the newest version in the
folder changes, that version is loaded beside the one in service and replaces
it when it is ready. So a new version replaces an older one, and if the newest
version is removed, the one before it is loaded again. A replaced version is
unloaded when its last request is answered. A version whose process has ended by
itself is loaded again.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import glob
import itertools
import math
import pathlib
import threading
from typing import Any, NamedTuple

from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_status_pb2

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.server import (
    batching,
    monitoring,
    proto_predict,
    request_errors,
    version_process,
)
from t2t_repro.server.monitoring import LOGGER
from t2t_repro.serving import version_folders
from t2t_repro.serving.requests import Limits

State = get_model_status_pb2.ModelVersionStatus.State
# Of a version that failed, to notice a change: an export has about twenty.
_MAX_FILES = 1000


class LoadedVersion:
    """Model of one version, in the memory of a process of its own."""

    def __init__(
        self,
        version: int,
        description: version_process.Description,
        connection: version_process.VersionConnection,
        limits: Limits,
        metrics: monitoring.Metrics,
    ):
        """Keep the connection to the process; `load` starts it."""
        self.version = version
        self.process = description.process  # its id
        self.card: dict[str, Any] = description.card
        self.signature_defs = {
            name: meta_graph_pb2.SignatureDef.FromString(definition)
            for name, definition in description.signature_defs.items()
        }
        self._input_specs = {
            name: proto_predict.input_specs(self.signature_defs[name])
            for name in description.signatures
        }
        self._connection = connection
        self._limits, self._metrics = limits, metrics
        self._queues: dict[str, batching.Queue] = {}

    @classmethod
    async def load(
        cls,
        folder: pathlib.Path,
        fork_server: version_process.ForkServer,
        limits: Limits,
        metrics: monitoring.Metrics,
        in_background: bool = False,
    ) -> "LoadedVersion":
        """Load a version and run its warm-up requests: this takes seconds.

        A load in the background has a low priority.

        Raises:
            OSError: the process cannot be started.
            UserError: the version cannot be loaded.
        """
        connection = await version_process.start_version(fork_server)
        try:
            description = await connection.call(
                limits.load_secs, folder, in_background
            )
            return cls(
                int(folder.name), description, connection, limits, metrics
            )
        except version_process.CallError as error:
            connection.end()
            raise errors.UserError(str(error)) from error
        except version_process.ProcessEndedError as error:
            raise errors.UserError(
                f"its process {error}; is there memory for it, and can its "
                "files be read within --load_timeout_secs?"
            ) from error
        except BaseException:  # the server stops
            connection.kill("is not needed any more")
            raise

    @property
    def ended(self) -> asyncio.Task[str]:
        """Task that ends with the process; its result says how."""
        return self._connection.ended

    def input_specs(self, signature: str) -> batching.Specs:
        """Return the inputs of a signature by name.

        Raises:
            RequestError: there is no such signature.
        """
        if signature not in self._input_specs:
            raise request_errors.invalid(
                f'Serving signature name: "{signature:.100}" not found in '
                f"signature def; there are {', '.join(self._input_specs)}."
            )
        return self._input_specs[signature]

    async def run(
        self, signature: str, inputs: batching.Inputs
    ) -> batching.Outputs:
        """Run a batch.

        Raises:
            CallError: the model failed.
            RequestError: the process has ended.
        """
        try:
            return await self._connection.call(
                self._limits.max_silence_secs, signature, inputs
            )
        except version_process.ProcessEndedError as error:
            raise request_errors.unavailable(
                f"The process of version {self.version} {error}. The version "
                "is loaded again. Try again in a moment."
            ) from error

    def queue(self, signature: str) -> batching.Queue:
        """Return the queue of a signature."""
        if signature not in self._queues:
            self._queues[signature] = batching.Queue(
                functools.partial(self.run, signature),
                self._limits,
                self._metrics.batch_sentences.labels(signature),
                self._metrics.waiting_sentences.labels(signature),
            )
        return self._queues[signature]

    async def close(self) -> None:
        """Answer the requests that wait for this version, and free memory."""
        for queue in self._queues.values():
            await queue.close()
        await self._connection.close()


class Retries(NamedTuple):
    """Retries of loads that fail; TensorFlow Serving has the same defaults."""

    max_count: int = 5
    interval_secs: float = 60.0


class Status(NamedTuple):
    """Status of a version in the status API."""

    state: int  # State
    error: str = ""  # message of a failed load
    files: frozenset = frozenset()  # files before its last load
    attempts: int = 0  # failed loads of these files
    next_attempt: float = 0.0  # by the event loop's clock


class Versions:
    """The newest version of a folder in memory, and the states of others."""

    def __init__(
        self,
        export_dir: str | pathlib.Path,
        name: str,
        metrics: monitoring.Metrics,
        fork_server: version_process.ForkServer,
        retries: Retries,
        limits: Limits,
    ):
        """Keep the settings; `start` loads the model. See Service."""
        self._folder = files.expand_path(export_dir)
        self._name = name
        self._metrics = metrics
        self._fork_server = fork_server
        self._retries, self._limits = retries, limits
        self._model: LoadedVersion | None = None
        self._statuses: dict[int, Status] = {}
        self._crashed = asyncio.Event()  # one more time
        self._last_crash = -math.inf  # by the event loop's clock
        self._closing = False
        self.watching: asyncio.Task  # of start_watching()

    async def start(self) -> None:
        """Load the newest version.

        Raises:
            UserError: there is no version, or it cannot be loaded.
        """
        version = version_folders.newest_version(self._folder)
        await self._load(version)
        if error := self._statuses[version].error:
            if not error.endswith((".", "?")):
                error += "."
            raise errors.UserError(
                f"Cannot load {self._folder / str(version)}: {error} To serve "
                "an older version, remove that folder."
            )

    def start_watching(self, poll_secs: float) -> None:
        """Serve the newest version of the folder from now on, and recover it.

        That is an older version if the one in service has been removed. If its
        process has ended, it is loaded again, also during another load. The
        task `watching` ends with an error if none can be loaded any more.
        """
        self.watching = asyncio.create_task(self._watch(poll_secs))

    async def _watch(self, poll_secs):
        await asyncio.gather(self._follow(poll_secs), self._recover(poll_secs))

    async def _follow(self, poll_secs):
        """Poll the folder without end for another version to serve.

        One with other files than those that were loaded is another, and so is
        one in service whose other files could not be loaded yet.
        """
        while True:
            await asyncio.sleep(poll_secs)
            try:
                present = await _in_thread(
                    version_folders.list_versions, self._folder
                )
            except OSError:
                continue  # an unmounted folder may come back
            # One in service that has crashed may come back.
            current = self._current().version
            for gone in set(self._statuses) - {*present, current}:
                if self._statuses[gone].state == State.END:
                    del self._statuses[gone]
            for version in present[-1:]:
                is_other = (
                    version != current
                    or self._is_outdated(version)
                    or await self._has_changed(version)
                )
                if is_other and await self._may_load(version):
                    await self._load(version)

    def _is_outdated(self, version):
        """Return whether one in service is of files that are gone.

        One that has crashed is no longer in service: _recover() loads it.
        """
        status = self._statuses[version]
        return status.state == State.AVAILABLE and bool(status.error)

    async def _has_changed(self, version):
        """Return whether the files are others than those that were loaded."""
        folder = self._folder / str(version)
        files_before = self._statuses[version].files
        return files_before != await _in_thread(_files_of, folder)

    async def _recover(self, poll_secs):
        """Load the version in service again whenever it has crashed."""
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(
                    self._crashed.wait(), self._secs_to_look(poll_secs)
                )
            self._crashed.clear()
            version = self._current().version
            status = self._statuses.get(version)
            # A process may have ended just now: only _note_end() knows whether
            # the next attempt has to wait.
            has_ended = not status or status.state == State.END
            if has_ended and await self._may_load(version):
                await self._load(version)

    def _secs_to_look(self, poll_secs):
        """Return the time to the next attempt to load, or to the next poll."""
        status = self._statuses.get(self._current().version)
        if not status or status.state != State.END:
            return poll_secs
        if status.attempts > self._retries.max_count:
            return poll_secs
        wait = status.next_attempt - asyncio.get_running_loop().time()
        return min(max(wait, 0.0), poll_secs)

    def is_answering(self) -> bool:
        """Return whether there is a version in service that has not crashed."""
        return self._model is not None and not self._model.ended.done()

    def _note_end(self, model):
        """Note that the process of a version has ended; report a crash."""
        if model is not self._model or self._closing or model.ended.cancelled():
            return
        self._metrics.version_crashes.inc()
        message = f"its process {model.ended.result()}"
        text = "Version %s of %s has crashed: %s. It is loaded again."
        LOGGER.error(text, model.version, self._name, message)
        # At once, unless it has crashed shortly before.
        next_attempt = self._last_crash + self._retries.interval_secs
        self._last_crash = asyncio.get_running_loop().time()
        files_before = self._statuses[model.version].files
        self._statuses[model.version] = Status(
            State.END, message, files_before, 0, next_attempt
        )
        self._crashed.set()

    async def _may_load(self, version):
        """Return whether to load a version, now or again.

        A load that failed is repeated after the interval, since its cause may
        pass, as a lack of descriptors does; and as soon as the files change,
        since the folder may have been a copy in progress.
        """
        status = self._statuses.get(version)
        if not status or not status.error:
            return True
        now = asyncio.get_running_loop().time()
        is_left = status.attempts <= self._retries.max_count
        if is_left and now >= status.next_attempt:
            return True
        return await self._has_changed(version)

    async def close(self) -> None:
        """Answer the waiting requests, and end the process in service."""
        self._closing = True
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
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Return the known versions with their states, newest first.

        Raises:
            RequestError: there is no such version.
        """
        response = get_model_status_pb2.GetModelStatusResponse()
        for known, status in sorted(self._statuses.items(), reverse=True):
            if version in (None, known):
                response.model_version_status.add(
                    version=known,
                    state=status.state,
                    status={
                        "error_code": "UNKNOWN" if status.error else "OK",
                        "error_message": status.error,
                    },
                )
        if name != self._name or not response.model_version_status:
            missing = (
                "any versions" if version is None else f"version {version}"
            )
            raise request_errors.not_found(
                f"Could not find {missing} of model {name}"
            )
        return response

    def _current(self):
        assert self._model, "start() comes first"
        return self._model

    async def _load(self, version):
        """Load a version and put it into service; store an error instead.

        If it is in service, with other files, it stays so until it is loaded.
        """
        folder = self._folder / str(version)
        before = self._statuses.get(version)
        present = await _in_thread(_files_of, folder)
        recovers = self._model is not None and version == self._model.version
        state = State.LOADING
        if recovers and self.is_answering():
            state = State.AVAILABLE
        self._statuses[version] = Status(state, files=present)
        loop = asyncio.get_running_loop()
        try:
            model = await LoadedVersion.load(
                folder,
                self._fork_server,
                self._limits,
                self._metrics,
                self.is_answering(),
            )
        except Exception as error:  # of any type: a later load may succeed
            is_lost = isinstance(error, version_process.ForkServerEndedError)
            if is_lost and not self.is_answering():
                raise
            same = before and before.files == present
            attempts = before.attempts + 1 if same else 1
            left = self._retries.max_count + 1 - attempts
            next_attempt = loop.time() + self._retries.interval_secs
            answers = recovers and self.is_answering()
            self._statuses[version] = Status(
                State.AVAILABLE if answers else State.END,
                str(error),
                present,
                attempts,
                next_attempt,
            )
            self._metrics.version_loads.labels("failed").inc()
            LOGGER.error(
                "Cannot load %s: %s. %s",
                folder,
                str(error).rstrip(".?"),
                f"{left} more attempts, the next in "
                f"{self._retries.interval_secs:g} s, or when its files change."
                if left
                else "The next attempt is made when its files change.",
            )
            return
        text = "Version %s of %s is loaded, in process %s."
        LOGGER.info(text, version, self._name, model.process)
        self._metrics.version_loads.labels("loaded").inc()
        if recovers and version != self._current().version:
            await model.close()  # another one is in service by now
            self._statuses[version] = Status(State.END)
        else:
            await self._replace_model(model, present)

    async def _replace_model(self, model, present):
        old, self._model = self._model, model
        model.ended.add_done_callback(lambda _: self._note_end(model))
        self._metrics.version.set(model.version)
        if old:
            self._statuses[old.version] = Status(State.UNLOADING)
        self._statuses[model.version] = Status(State.AVAILABLE, files=present)
        if not old:
            return
        await old.close()
        if old.version != model.version:  # else its process had ended
            self._statuses[old.version] = Status(State.END)
            LOGGER.info(
                "Version %s of %s is unloaded.", old.version, self._name
            )


async def _in_thread(function, *args):
    """Call a function that reads a disk, which may take long or for ever.

    The thread does not hold up the end of the server, as those of
    asyncio.to_thread() do.
    """
    answer = concurrent.futures.Future()
    answer.set_running_or_notify_cancel()

    def call():
        try:
            answer.set_result(function(*args))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return await asyncio.wrap_future(answer)


def _files_of(folder):
    """Return paths, sizes and times of files; skip those that disappear."""
    stats = set()
    with contextlib.suppress(OSError):  # a folder has disappeared
        # Unlike rglob(), it looks into linked folders.
        names = glob.iglob("**", root_dir=folder, recursive=True)
        for name in itertools.islice(names, _MAX_FILES):
            with contextlib.suppress(OSError):
                stat = (folder / name).stat()
                stats.add((name, stat.st_size, stat.st_mtime_ns))
    return frozenset(stats)
