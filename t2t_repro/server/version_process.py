"""Process of one version: it loads the model, and runs the server's batches.

Python's lock, the memory and a crash of TensorFlow are those of this process
alone. It ends when the server closes the connection, or ends.
"""

import concurrent.futures
import gc
import os
import pathlib
import socket
import threading
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph

from t2t_repro import errors
from t2t_repro.runtime import devices, shards
from t2t_repro.server import batching, frames, proto_predict
from t2t_repro.serving import saved_model, warm_up

# Of the thread that loads beside a version in service, and does nearly all of
# the work: with all CPUs busy, it gets a tenth of the CPU time of the others
# (sched(7): a factor of 1.25 for each step).
_NICENESS = 10
_THREADS = 32  # batches at a time; each signature in use has at most one


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

        Args:
            folder: folder of the version.
            num_shards: maximum number of shards of a batch.
        """
        card = saved_model.read_verified_card(folder)
        definitions = {  # without the graph, which takes 10 MB
            name: definition.SerializeToString()
            for name, definition in saved_model.read_graph(
                folder
            ).signature_def.items()
        }
        self._signatures = saved_model.load(folder).signatures
        self._num_shards = {
            name: num_shards if _has_fixed_rows(function) else 1
            for name, function in self._signatures.items()
        }
        for request in warm_up.read(folder):
            self.run(
                request.model_spec.signature_name or "serving_default",
                {
                    name: proto_predict.strings(tensor)
                    for name, tensor in request.inputs.items()
                },
            )
        self.description = Description(
            os.getpid(), card, definitions, sorted(self._signatures)
        )

    def run(self, signature: str, inputs: batching.Inputs) -> batching.Outputs:
        """Run a batch in this thread, or its shards in threads of their own."""
        function = self._signatures[signature]

        def run_shard(shard):
            # dtype object: NumPy's strings would lose NULs at their end.
            tensors = {
                name: tf.constant(np.array(values[shard], object))
                for name, values in inputs.items()
            }
            return {
                name: tensor.numpy()
                for name, tensor in function(**tensors).items()
            }

        size = len(next(iter(inputs.values())))
        outputs = shards.call_in_threads(
            run_shard, shards.split(size, self._num_shards[signature])
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
        except EOFError:
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
    if _is_small(folder):
        devices.use_one_thread_per_operation()
        num_shards = shards.default_num_shards()
    tf.config.list_logical_devices()
    return num_shards


def _is_small(folder):
    try:
        weights = saved_model.num_weights(folder)
    except errors.UserError:
        return False  # loading it will say what is wrong
    return weights < devices.MIN_WEIGHTS_FOR_THREADS


class _Answers:
    """Answers to calls, in threads."""

    def __init__(self, connection: socket.socket):
        self._connection, self._sending = connection, threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS)
        self._model = None

    def answer_all(self, calls):
        number, folder, in_background = frames.read(calls)
        num_shards = _start_tensorflow(folder)
        threading.Thread(
            target=self._answer,
            args=(number, self._load, folder, in_background, num_shards),
            daemon=True,
        ).start()
        while True:  # until EOFError
            number, signature, inputs = frames.read(calls)
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
        frame = frames.pack((number, result, error))
        with self._sending:
            self._connection.sendall(frame)

    def _load(self, folder, in_background, num_shards):
        if in_background:  # on Linux, threads have priorities of their own
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
        self._model = Model(folder, num_shards)
        # The graph stays: a collection during a batch would look through it.
        gc.collect()
        gc.freeze()
        return self._model.description
