"""Who trains with whom, by TF_CONFIG; what a single process does instead."""

import json
import zlib

import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.training import hardware, workers

PAIR = {"worker": ["a:1", "b:1"]}


def config(cluster, kind, index):
    """As TF_CONFIG has it."""
    return json.dumps(
        {"cluster": cluster, "task": {"type": kind, "index": index}}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON .*: ''"),
        ("worker 0", "it is not JSON .*: 'worker 0'"),
        ("[]", r"it has no cluster: '\[\]'"),
        ("{}", "it has no cluster: '{}'"),
        ('{"cluster": {"worker": ["a:1"]}}', "it has no task: "),
        (config(PAIR, "worker", 2), "no task 2 of type 'worker'"),
        (config(PAIR, "worker", "0"), "no task '0' of type 'worker'"),
        (config(PAIR, "chief", 0), "no task 0 of type 'chief'"),
        (config(PAIR, ["worker"], 0), r"no task 0 of type \['worker'\]"),
        (config({"worker": "a:1"}, "worker", 0), "no list of hosts: 'a:1'"),
        (config({"worker": ["a"]}, "worker", 0), "'a' is no HOST:PORT"),
        (config({"worker": [1]}, "worker", 0), "1 is no HOST:PORT"),
        (
            config({"worker": ["a:1", "a:1"]}, "worker", 0),
            "'a:1' is no HOST:PORT of its own",
        ),
        (
            config({"worker": ["a:1"], "ps": ["b:1"]}, "ps", 0),
            "tasks other than workers and one chief: worker, ps",
        ),
        (
            config({"chief": ["a:1", "b:1"]}, "chief", 0),
            "tasks other than workers and one chief: chief",
        ),
    ],
)
def test_what_is_wrong_with_a_config_is_named(text, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    for distribution in ("auto", "multi_worker"):
        with pytest.raises(errors.UserError, match=f"HOST:PORT.*{message}"):
            hardware.strategy(distribution)


def test_several_machines_need_a_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(errors.UserError, match="Here it is not set"):
        hardware.strategy("multi_worker")


@pytest.mark.parametrize("distribution", ["auto", "multi_worker"])
def test_a_config_makes_one_of_several(distribution, monkeypatch):
    """The strategy itself would wait for the other worker."""
    monkeypatch.setenv("TF_CONFIG", config(PAIR, "worker", 1))
    monkeypatch.setattr(
        tf.distribute, "MultiWorkerMirroredStrategy", lambda: "several"
    )
    assert hardware.strategy(distribution) == "several"
    assert hardware.strategy("one_device") != "several"


class Strategy:
    """What of a MultiWorkerMirroredStrategy a Cluster looks at."""

    def __init__(self, cluster, kind, index, others=0):
        self.cluster_resolver = (
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(cluster), task_type=kind, task_id=index
            )
        )
        self.others = others
        self.num_replicas_in_sync = 4

    def reduce(self, operation, value, axis):
        """The sum of this worker's value and the others'."""
        assert (operation, axis) == ("SUM", None)
        return value + self.others


@pytest.mark.parametrize(
    ("cluster", "task", "index"),
    [
        (PAIR, ("worker", 0), 0),
        (PAIR, ("worker", 1), 1),
        ({"worker": ["b:1"], "chief": ["a:1"]}, ("chief", 0), 0),
        ({"worker": ["b:1"], "chief": ["a:1"]}, ("worker", 0), 1),
    ],
)
def test_the_first_worker_is_the_chief(cluster, task, index, tmp_path):
    processes = workers.for_strategy(Strategy(cluster, *task))
    assert (processes.count, processes.index) == (2, index)
    assert processes.is_chief is (index == 0)
    with processes.folder_to_write(tmp_path) as folder:
        assert (folder == tmp_path) is processes.is_chief
        assert folder.is_dir()
    assert folder.is_dir() is processes.is_chief


def test_one_worker_asks_nobody(monkeypatch):
    """TensorFlow sums no plain tensor over several GPUs of one machine."""
    monkeypatch.setattr(Strategy, "reduce", None)
    processes = workers.for_strategy(Strategy({"worker": ["a:1"]}, "worker", 0))
    assert processes.gather(7) == [7]


def test_workers_hear_each_other():
    processes = workers.for_strategy(
        Strategy(PAIR, "worker", 1, others=[15, 0])
    )
    assert processes.gather(2) == [15, 2]


def test_workers_must_have_the_same_flags():
    same = zlib.crc32(b"'on'")
    processes = workers.for_strategy(
        Strategy(PAIR, "worker", 1, others=[same, 0])
    )
    workers.require_same_flags(processes, {"xla": "on"})
    message = "--xla is off for worker 1 of 2, and something else for another"
    with pytest.raises(errors.UserError, match=message):
        workers.require_same_flags(processes, {"xla": "off"})


def test_workers_are_described():
    assert hardware.summary(Strategy(PAIR, "worker", 1), "float32", False) == (
        "4 replicas on CPUs of 2 workers (MultiWorkerMirroredStrategy), "
        "float32, XLA off"
    )


def test_a_worker_that_is_lost_ends_the_others():
    processes = workers.for_strategy(Strategy(PAIR, "worker", 1))
    gone = tf.errors.UnavailableError(None, None, "Socket closed")
    message = "Worker 1 of 2 has lost another one.*Start all.*Socket closed"
    with (
        pytest.raises(errors.UserError, match=message),
        processes.report_lost_workers(),
    ):
        raise gone

    def look():
        raise errors.UserError("The loss of step 3 is nan.")

    with (
        pytest.raises(errors.UserError, match="nan"),
        processes.report_lost_workers(look),
    ):
        raise gone


def test_a_single_process_is_the_chief(strategy_of, tmp_path):
    for replicas in (1, 2):
        processes = workers.for_strategy(strategy_of(replicas))
        assert (processes.count, processes.index, processes.is_chief) == (
            1,
            0,
            True,
        )
        assert processes.gather(15) == [15]
        with (
            processes.report_lost_workers(),
            processes.folder_to_write(tmp_path) as folder,
        ):
            assert folder == tmp_path
