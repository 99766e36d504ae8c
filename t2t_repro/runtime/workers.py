"""Workers, the processes that train together: this one, or TF_CONFIG's.

All run the same program with the same flags, and compute the same updates. The
first worker, the chief, writes the files of the run; the others read them, so
that all need the same shared folders.

TensorFlow's coordination service detects a lost worker: after 10 s without a
heartbeat, or sooner by its closed socket. All workers that wait for it then
receive an UnavailableError. Collectives have no timeout of their own: it would
have to exceed the time in which the chief generates the data, and TensorFlow
offers it only for debugging, since each collective then needs a thread.
"""

import contextlib
import json
import os
import pathlib
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.runtime import graph

_KINDS = ("chief", "worker")  # kinds of tasks that train, by index
# Errors that TensorFlow raises for a lost worker.
_LOST_WORKER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class SingleWorker:
    """The only process of a training run."""

    count, index = 1, 0
    is_chief = True

    def gather(self, number: int) -> list[int]:
        """Return the numbers of all workers, in their order."""
        return [number]

    def broadcast(self, number: int) -> int:
        """Return the chief's number."""
        return number

    def barrier(self) -> None:
        """Wait for all workers."""

    def folder_to_write(
        self, folder: pathlib.Path | str
    ) -> AbstractContextManager[pathlib.Path]:
        """Return a context with the folder for this worker's files."""
        return contextlib.nullcontext(pathlib.Path(folder))

    def report_lost_workers(
        self, diagnose: Callable[[], None] = lambda: None
    ) -> AbstractContextManager[None]:
        """Return a context that raises a UserError if a worker is lost."""
        return contextlib.nullcontext()


class ClusterWorker:
    """One of several processes, with the methods of SingleWorker."""

    def __init__(self, strategy: tf.distribute.Strategy):
        """Find this process in the cluster of a MultiWorkerMirroredStrategy."""
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
        self._sum = graph.function(
            lambda numbers: strategy.reduce("SUM", numbers, axis=None),
            input_signature=[tf.TensorSpec([self.count], tf.int64)],
        )

    def gather(self, number: int) -> list[int]:
        """Return the numbers of all workers, in order; all must call it."""
        if self.count == 1:  # reduce accepts no plain tensor on several GPUs
            return [number]
        own = np.zeros(self.count, np.int64)
        own[self.index] = number
        return self._sum(tf.constant(own)).numpy().tolist()

    def broadcast(self, number: int) -> int:
        """Return the chief's number; all must call it."""
        return self.gather(number)[0]

    def barrier(self) -> None:
        """Wait for all workers; all must call it."""
        self.gather(0)

    @contextlib.contextmanager
    def folder_to_write(
        self, folder: pathlib.Path | str
    ) -> Iterator[pathlib.Path]:
        """Yield `folder` to the chief, a temporary one to other workers."""
        if self.is_chief:
            yield pathlib.Path(folder)
            return
        with tempfile.TemporaryDirectory() as temporary:
            yield pathlib.Path(temporary)

    @contextlib.contextmanager
    def report_lost_workers(
        self, diagnose: Callable[[], None] = lambda: None
    ) -> Iterator[None]:
        """Raise a UserError if another worker is lost within the context.

        Args:
            diagnose: called first; raises the reason if this worker knows it.
        """
        try:
            yield
        except _LOST_WORKER_ERRORS as error:
            diagnose()
            raise errors.UserError(
                f"Worker {self.index} of {self.count} has lost another worker, "
                "whose output says why. Start all workers again: they resume "
                f"from the last checkpoint. ({error.message})"
            ) from error


def for_strategy(
    strategy: tf.distribute.Strategy,
) -> SingleWorker | ClusterWorker:
    """Build this process's worker for a tf.distribute strategy."""
    if strategy.cluster_resolver is None:
        return SingleWorker()
    return ClusterWorker(strategy)


def require_same_flags(
    worker: SingleWorker | ClusterWorker, flags: Mapping[str, Any]
) -> None:
    """Require that all workers have the same values of some flags.

    Workers with different flags would wait for each other forever.

    Args:
        worker: result of for_strategy(). All workers must call.
        flags: {name: value}.

    Raises:
        UserError: names the first flag that differs.
    """
    for name, value in flags.items():
        if len(set(worker.gather(zlib.crc32(repr(value).encode())))) > 1:
            raise errors.UserError(
                f"--{name} is {value} for worker {worker.index} of "
                f"{worker.count}, and differs for another worker. Start all "
                "workers with the same flags."
            )


def names_task() -> bool:
    """Return whether TF_CONFIG has a cluster or a task, even a wrong one.

    Platforms set it to "" or to {"environment": "cloud"} on a single machine.
    """
    text = os.environ.get("TF_CONFIG", "").strip() or "{}"
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return True
    return not isinstance(config, dict) or bool(
        config.get("cluster") or config.get("task")
    )


def check_tf_config() -> None:
    """Check that TF_CONFIG names a cluster and this machine's task in it.

    Raises:
        UserError: says what is wrong with TF_CONFIG.
    """
    text = os.environ.get("TF_CONFIG")
    fault = "it is not set" if text is None else _fault(text)
    if fault:
        raise errors.UserError(
            "Training on several machines needs TF_CONFIG in the environment, "
            'such as {"cluster": {"worker": ["HOST:PORT", "HOST:PORT"]}, '
            '"task": {"type": "worker", "index": 0}}, with a different index '
            f"on each machine. Here {fault}."
        )


def _fault(text):
    """Return what is wrong with a TF_CONFIG, or None."""
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
        if not re.fullmatch(r"\S+:\d+", str(host)):
            return f"{host!r} is not HOST:PORT"
        if hosts.count(host) > 1:
            return f"{host!r} is the HOST:PORT of two tasks"
    if not isinstance(task, dict):
        return f"it has no task: {text!r}"
    kind, index = task.get("type"), task.get("index")
    known = [(kind, i) for kind in cluster for i in range(len(cluster[kind]))]
    if (kind, index) not in known or type(index) is not int:
        return f"its cluster has no task {index!r} of type {kind!r}"
    return None
