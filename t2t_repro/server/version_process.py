"""Process of one version: it loads the model, and runs the server's batches.

Python's lock, the memory and a crash of TensorFlow are those of this process
alone. It ends when the server closes the connection, or ends.

It is forked by a fork server. A fork has TensorFlow at once, whose import takes
seconds, and shares its memory with it. But a fork has only one of the threads
of its parent: the server, which has many, cannot be forked, nor a process in
which TensorFlow runs. Therefore the server imports TensorFlow, and forks the
fork server before anything runs.

These processes end when the server does. They ignore progress.NUMBERS, signals
that a terminal or a service manager may send to all processes of the server: it
then finishes its requests, for which it needs them.
"""

import asyncio
import concurrent.futures
import contextlib
import gc
import itertools
import os
import pathlib
import pickle
import select
import signal
import socket
import struct
import threading
import traceback
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph

from t2t_repro import errors
from t2t_repro.io import progress
from t2t_repro.runtime import devices
from t2t_repro.server import batching, proto_predict
from t2t_repro.serving import saved_model

# Of the thread that loads beside a version in service, and does nearly all of
# the work: with all CPUs busy, it gets a tenth of the CPU time of the others
# (sched(7): a factor of 1.25 for each step).
_NICENESS = 10
_THREADS = 32  # batches at a time; each signature in use has at most one
_BUFFER = 1 << 20  # bytes of an answer that are read ahead
_REPORT_BYTES = 200
_CLOSE_SECS = 10.0  # for a process to end by itself
_KILL_SECS = 10.0  # for the system to end a process
# A call is a pickle. An answer is the length of a pickle and the pickle, as an
# event loop must know how much to read. Both sides are processes of this
# program, so that none reads what a client could have written.
_LENGTH = struct.Struct(">Q")


class CallError(Exception):
    """Error of a call, with its message: TensorFlow's cannot be pickled."""


class Description(NamedTuple):
    """Properties of a loaded version."""

    process: int
    card: dict[str, Any]
    signature_defs: dict[str, bytes]  # {name: serialized SignatureDef}
    signatures: list[str]  # those that can be run, sorted


class Model:
    """Model of a version, in this process."""

    def __init__(self, folder: pathlib.Path, num_shards: int = 1):
        """Load the version and run its warm-up requests: this takes seconds.

        A batch has at most `num_shards` shards.
        """
        card = saved_model.read_verified_card(folder)
        definitions = saved_model.read_graph(folder).signature_def
        self._signatures = saved_model.load(folder).signatures
        # Warm-up requests are not split: each may compile its own shape.
        self._num_shards = dict.fromkeys(self._signatures, 1)
        for request in saved_model.read_warm_up(folder):
            self.run(
                request.model_spec.signature_name or "serving_default",
                {
                    name: proto_predict.values(tensor)
                    for name, tensor in request.inputs.items()
                },
            )
        self._num_shards = {
            name: num_shards if _has_fixed_rows(function) else 1
            for name, function in self._signatures.items()
        }
        self.description = Description(
            os.getpid(),
            card,
            # Without the graph, which takes 10 MB.
            {
                name: each.SerializeToString()
                for name, each in definitions.items()
            },
            sorted(self._signatures),
        )

    def run(self, signature: str, inputs: batching.Inputs) -> batching.Outputs:
        """Run a batch in this thread, or its shards in threads of their own."""
        function = self._signatures[signature]
        _, specs = function.structured_input_signature

        def run_shard(shard):
            # dtype object: NumPy's strings would lose NULs at their end.
            tensors = {
                name: tf.constant(
                    np.array(values[shard], specs[name].dtype.as_numpy_dtype)
                )
                for name, values in inputs.items()
            }
            return {
                name: tensor.numpy()
                for name, tensor in function(**tensors).items()
            }

        size = len(next(iter(inputs.values())))
        outputs = devices.call_in_threads(
            run_shard, devices.split_batch(size, self._num_shards[signature])
        )
        if len(outputs) == 1:
            return outputs[0]
        return {
            name: np.concatenate([each[name] for each in outputs])
            for name in outputs[0]
        }


def _has_fixed_rows(function):
    """Return whether rows of the outputs have the same shape in any batch."""
    shapes = [spec.shape for spec in function.structured_outputs.values()]
    return all(shape.rank and shape[1:].is_fully_defined() for shape in shapes)


def run(connection: socket.socket) -> None:
    """Answer the calls of a VersionConnection until it is closed."""
    with connection.makefile("rb") as calls:
        try:
            _Answers(connection).answer_all(calls)
        except (EOFError, pickle.UnpicklingError):  # of a part of a call
            pass  # batches that still run have no one to answer


def _start_tensorflow(folder):
    """Start TensorFlow's threads, which get the priority of this one.

    Returns:
        The maximum number of shards of a batch: with one thread for each
        operation, a batch of a small model is faster in shards.
    """
    for gpu in tf.config.list_physical_devices("GPU"):
        # Two versions share a GPU while the one replaces the other.
        tf.config.experimental.set_memory_growth(gpu, True)
    num_shards = 1
    with contextlib.suppress(errors.UserError):  # loading says what is wrong
        if saved_model.num_weights(folder) < devices.MIN_WEIGHTS_FOR_THREADS:
            devices.use_one_thread_per_operation()
            num_shards = devices.default_num_shards()
    tf.config.list_logical_devices()
    return num_shards


class _Answers:
    """Answers to calls, in threads."""

    def __init__(self, connection: socket.socket):
        self._connection, self._sending = connection, threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS)
        self._model = None

    def answer_all(self, calls):
        number, folder, in_background = pickle.load(calls)
        num_shards = _start_tensorflow(folder)
        threading.Thread(
            target=self._answer,
            args=(number, self._load, folder, in_background, num_shards),
            daemon=True,
        ).start()
        while True:  # until EOFError
            number, signature, inputs = pickle.load(calls)
            self._pool.submit(
                self._answer, number, self._model.run, signature, inputs
            )

    def _answer(self, number, function, *args):
        """Send the number of a call with its result, or with its error."""
        result = error = None
        try:
            result = function(*args)
        except Exception as raised:  # TensorFlow raises many types
            error = CallError(str(raised))
        answer = pickle.dumps((number, result, error), -1)
        with self._sending:
            self._connection.sendall(_LENGTH.pack(len(answer)) + answer)

    def _load(self, folder, in_background, num_shards):
        if in_background:  # on Linux, threads have priorities of their own
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
        self._model = Model(folder, num_shards)
        # The graph stays: a collection during a batch would look through it.
        gc.collect()
        gc.freeze()
        return self._model.description


# Fork server


class Fork(NamedTuple):
    """Process of a version, as its server sees it."""

    connection: socket.socket
    # Receives a text when the process has ended. To shut down its other
    # direction kills the process.
    report: socket.socket


class ForkServerEndedError(errors.UserError):
    """No version can be loaded any more."""


class ForkServer:
    """Fork server, as seen from the server."""

    def __init__(self, control: socket.socket):
        """Keep a socket to a process that runs run_fork_server()."""
        self._control = control

    def fork(self) -> Fork:
        """Fork a process for a version.

        Raises:
            OSError: no descriptor is left.
            ForkServerEndedError: the fork server has ended.
        """
        connection, its_connection = socket.socketpair()
        report, its_report = socket.socketpair()
        with its_connection, its_report:
            descriptors = its_connection.fileno(), its_report.fileno()
            try:
                socket.send_fds(self._control, [b"f"], descriptors)
            except BrokenPipeError as error:
                connection.close()
                report.close()
                raise ForkServerEndedError(
                    "the process that forks others has ended: start the server "
                    "again"
                ) from error
        return Fork(connection, report)


def start_fork_server() -> ForkServer:
    """Fork the fork server from this process, which has one thread."""
    assert threading.active_count() == 1, "a fork does not copy threads"
    # What has been imported stays. Without it a garbage collection, which holds
    # up every request, takes half as long; and it changes no shared memory.
    gc.collect()
    gc.freeze()
    control, its_control = socket.socketpair()
    if not os.fork():
        control.close()
        _exit_after(run_fork_server, its_control)
    its_control.close()
    return ForkServer(control)


def run_fork_server(control: socket.socket) -> None:
    """Fork a process for each request, until `control` is closed."""
    for number in progress.NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    # Processes by the read end of a pipe, whose write end each keeps open.
    forks: dict[int, tuple[int, socket.socket]] = {}
    killed: set[int] = set()
    running = True
    while running:
        reports = {
            report.fileno(): process
            for process, report in forks.values()
            if process not in killed
        }
        readable, _, _ = select.select(
            [*reports, *forks, control.fileno()], [], []
        )
        for descriptor in readable:
            if descriptor in reports:  # its server has shut it down
                os.kill(reports[descriptor], signal.SIGKILL)
                killed.add(reports[descriptor])
            elif descriptor in forks:
                os.close(descriptor)
                process, report = forks.pop(descriptor)
                killed.discard(process)
                _report(process, report)
            else:
                running = _fork(control, forks)
    for process, _ in forks.values():  # one that is stopped does not end
        os.kill(process, signal.SIGKILL)


def _fork(control, forks):
    """Fork a process that is requested; return False if the server has ended.

    `forks` receives {read end: (process, socket of its report)}.
    """
    request, descriptors, _, _ = socket.recv_fds(control, 1, 2)
    if not request:
        return False
    connection, report = (socket.socket(fileno=each) for each in descriptors)
    read_end, write_end = os.pipe()
    with connection:
        try:
            process = os.fork()
        except OSError as error:
            os.close(read_end)
            _send(report, f"cannot be forked: {error.strerror}")
        else:
            if not process:
                for each, (_, other) in forks.items():
                    os.close(each)
                    other.close()
                report.close()
                control.close()
                _exit_after(run, connection)
            forks[read_end] = process, report
        os.close(write_end)
    return True


def _exit_after(function, *args):
    """Call a function in a fork, and end the process without its cleanup."""
    status = 1
    try:
        function(*args)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _report(process, report):
    """Wait for the end of a process, which is near, and report how it ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    text = f"has ended with status {code}"
    if code < 0:
        name = f"signal {-code}"
        with contextlib.suppress(ValueError):  # real-time signals have no name
            name = signal.Signals(-code).name
        text = f"was killed by {name}"
    _send(report, text)


def _send(report, text):
    with report, contextlib.suppress(OSError):  # nobody may wait for it
        report.send(text.encode())


# Connection of the server to a process


class ProcessEndedError(Exception):
    """The process has ended; the message says how."""


class VersionConnection:
    """Connection to the process of a version, in one event loop."""

    def __init__(
        self,
        report: socket.socket,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ):
        """Read answers from now on; `start` calls this."""
        self._report = report
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future] = {}
        self._num_answers = 0
        self._fault = ""  # for which it is killed
        # A task that ends with the process, with a text such as "was killed by
        # SIGKILL".
        self.ended = asyncio.create_task(self._read_answers())

    async def call(self, max_silence_secs: float, *args: Any) -> Any:
        """Return the answer to a call.

        The first call loads a version, whose folder it names, with a low
        priority if it is to be in the background; its answer is a Description.
        Each further call, of a signature and inputs, runs a batch. After
        `max_silence_secs` without an answer to any call the process is killed.

        Raises:
            CallError: the version cannot be loaded, or the model failed.
            ProcessEndedError: the process has ended.
        """
        if self.ended.done():
            raise ProcessEndedError(self.ended.result())
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._writer.write(pickle.dumps((number, *args), -1))
        try:
            while not answer.done():
                before = self._num_answers
                await asyncio.wait({answer}, timeout=max_silence_secs)
                if not answer.done() and self._num_answers == before:
                    self.kill(f"has not answered for {max_silence_secs:g} s")
            return answer.result()
        finally:
            answer.cancel()

    def end(self) -> None:
        """Make the process end, without waiting for it."""
        self._writer.close()

    def kill(self, fault: str) -> None:
        """Kill the process for a fault, as in "has not answered".

        It may not even be able to end by itself.
        """
        if self._fault or self.ended.done():
            return
        self._fault = fault
        # The fork server, its parent, kills it. A process that waits for a
        # dead disk may survive even this; it is then given up.
        self._report.shutdown(socket.SHUT_WR)
        self._writer.transport.abort()
        asyncio.get_running_loop().call_later(_KILL_SECS, self._give_up)

    def _give_up(self):
        with contextlib.suppress(OSError):  # it is closed: the process ended
            self._report.shutdown(socket.SHUT_RD)

    async def close(self) -> None:
        """End the process; its memory is free when this returns."""
        self.end()
        await asyncio.wait({self.ended}, timeout=_CLOSE_SECS)
        self.kill(f"has not ended within {_CLOSE_SECS:g} s")
        await asyncio.wait({self.ended})

    async def _read_answers(self):
        """Read answers until the process ends; return how it has ended.

        The fork server reports this when the process is gone.
        """
        loop = asyncio.get_running_loop()
        with self._report, contextlib.closing(self._writer):
            with contextlib.suppress(EOFError, ConnectionError):
                while True:
                    header = await self._reader.readexactly(_LENGTH.size)
                    content = self._reader.readexactly(*_LENGTH.unpack(header))
                    self._distribute(*pickle.loads(await content))
            report = await loop.sock_recv(self._report, _REPORT_BYTES)
        how = report.decode()
        if self._fault:
            how = f"{self._fault} and {how or 'cannot be killed'}"
        how = how or "has ended"  # so has the fork server
        for number in list(self._answers):
            self._distribute(number, None, ProcessEndedError(how))
        return how

    def _distribute(self, number, result, error):
        answer = self._answers.pop(number)
        self._num_answers += 1
        if answer.done():
            return  # the caller has been cancelled
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)


async def start_version(fork_server: ForkServer) -> VersionConnection:
    """Fork a process for a version, and connect to it.

    Raises:
        OSError: no descriptor is left.
        ForkServerEndedError: the fork server has ended.
    """
    fork = fork_server.fork()
    fork.report.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(
        sock=fork.connection, limit=_BUFFER
    )
    return VersionConnection(fork.report, reader, writer)
