"""The processes that train together: this one, or those of TF_CONFIG.

Each runs the same program on the same flags, and all compute the same updates.
The first of them, the chief, writes what is kept; the others read it, so that
their folders must be shared ones.

TensorFlow's coordination service notices a worker that is gone: after 10 s
without a heartbeat, or sooner by its closed socket. All that wait for it get
an UnavailableError then. Collectives have no timeout of their own: it would
have to outlast the chief's making of the data, and TensorFlow offers it for
debugging only, since it takes a thread for each.
"""

import contextlib
import json
import os
import pathlib
import re
import tempfile
import zlib

import numpy as np
import tensorflow as tf

from t2t_repro import errors

_KINDS = ("chief", "worker")  # of tasks that train, in the order they count
# What TensorFlow raises for a worker that is gone, by how it went.
_GONE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class SingleWorker:
    """The only process of a training."""

    count, index = 1, 0
    is_chief = True

    def gather(self, number: int) -> list[int]:
        """Return the numbers of all workers, in their order."""
        return [number]

    def broadcast(self, number: int) -> int:
        """Return the chief's number."""
        return number

    def barrier(self):
        """Wait until all workers are here."""

    def folder_to_write(self, folder):
        """A context of the folder that this worker's files go to."""
        return contextlib.nullcontext(pathlib.Path(folder))

    def watch(self, look=lambda: None):
        """A context: a worker that is gone ends it with a UserError."""
        return contextlib.nullcontext()


class Cluster:
    """A process among several; as SingleWorker has it."""

    def __init__(self, strategy):
        """Takes a MultiWorkerMirroredStrategy."""
        resolver = strategy.cluster_resolver
        cluster = resolver.cluster_spec().as_dict()
        tasks = [
            (kind, index)
            for kind in _KINDS
            for index in range(len(cluster.get(kind, ())))
        ]
        self.count = len(tasks)
        self.index = tasks.index((resolver.task_type, resolver.task_id))
        self.is_chief = self.index == 0
        # Traced, it takes 1.2 ms on one machine, and half of an eager one.
        self._sum = tf.function(
            lambda numbers: strategy.reduce("SUM", numbers, axis=None),
            input_signature=[tf.TensorSpec([self.count], tf.int64)],
        )

    def gather(self, number: int) -> list[int]:
        """Return the numbers of all workers, in order; all must call."""
        if self.count == 1:  # reduce takes no plain tensor to several GPUs
            return [number]
        own = np.zeros(self.count, np.int64)
        own[self.index] = number
        return self._sum(tf.constant(own)).numpy().tolist()

    def broadcast(self, number: int) -> int:
        """Return the chief's number; all must call."""
        return self.gather(number)[0]

    def barrier(self):
        """Wait until all workers are here."""
        self.gather(0)

    @contextlib.contextmanager
    def folder_to_write(self, folder):
        """The chief's is `folder`; another worker's goes away in the end."""
        if self.is_chief:
            yield pathlib.Path(folder)
            return
        with tempfile.TemporaryDirectory() as own:
            yield pathlib.Path(own)

    @contextlib.contextmanager
    def watch(self, look=lambda: None):
        """A context: a worker that is gone ends it with a UserError.

        Args:
            look: is called first. It raises the reason if this worker knows it.
        """
        try:
            yield
        except _GONE as error:
            look()
            raise errors.UserError(
                f"Worker {self.index} of {self.count} has lost another one, "
                "whose own output says why. Start all of them again: they go "
                f"on from the last checkpoint. ({error.message})"
            ) from error


def of(strategy) -> SingleWorker | Cluster:
    """Those that train under a tf.distribute strategy."""
    if strategy.cluster_resolver is None:
        return SingleWorker()
    return Cluster(strategy)


def refuse_differences(processes: SingleWorker | Cluster, flags: dict):
    """Looks whether all workers have the same values of some flags.

    Else they would wait for each other, and for ever: all of them alive, each
    for another step.

    Args:
        processes: of of(); all must call.
        flags: {name: value}.

    Raises:
        UserError: names the first that differs.
    """
    for name, value in flags.items():
        if len(set(processes.gather(zlib.crc32(repr(value).encode())))) > 1:
            raise errors.UserError(
                f"--{name} is {value} for worker {processes.index} of "
                f"{processes.count}, "
                "and something else for another. Start all with the same flags."
            )


def check_tf_config():
    """Looks whether TF_CONFIG names a cluster and a place in it.

    Raises:
        UserError: says what is wrong with it.
    """
    text = os.environ.get("TF_CONFIG")
    fault = "it is not set" if text is None else _fault(text)
    if fault:
        raise errors.UserError(
            "Training on several machines needs TF_CONFIG in the environment, "
            'as {"cluster": {"worker": ["HOST:PORT", "HOST:PORT"]}, "task": '
            '{"type": "worker", "index": 0}}, with an index of its own for '
            f"each machine. Here {fault}."
        )


def _fault(text):
    """What is wrong with a TF_CONFIG, or None."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({error}): {text!r}"
    cluster, task = (
        config.get(key) if isinstance(config, dict) else None
        for key in ("cluster", "task")
    )
    if not isinstance(cluster, dict) or not cluster:
        return f"it has no cluster: {text!r}"
    for hosts in cluster.values():
        if not isinstance(hosts, list):
            return f"its cluster has no list of hosts: {hosts!r}"
    if not cluster.keys() <= set(_KINDS) or len(cluster.get("chief", ())) > 1:
        return (
            "its cluster has tasks other than workers and one chief: "
            f"{', '.join(cluster)}"
        )
    hosts = [host for kind in cluster for host in cluster[kind]]
    for host in hosts:
        is_one = re.fullmatch(r"\S+:\d+", str(host))
        if not is_one or hosts.count(host) > 1:
            return f"{host!r} is no HOST:PORT of its own"
    if not isinstance(task, dict):
        return f"it has no task: {text!r}"
    kind, index = task.get("type"), task.get("index")
    known = [(kind, i) for kind in cluster for i in range(len(cluster[kind]))]
    if (kind, index) not in known or type(index) is not int:
        return f"its cluster has no task {index!r} of type {kind!r}"
    return None
