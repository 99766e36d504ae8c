"""Workers by TF_CONFIG, and the single worker without it."""

import json
import signal
import zlib

import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.runtime import devices
from t2t_repro.training import job
from t2t_repro.training.options import Options

PAIR = {"worker": ["a:1", "b:1"]}
SIGNALS = signal.SIGINT, signal.SIGTERM


def config(cluster, kind, index):
    return json.dumps(
        {"cluster": cluster, "task": {"type": kind, "index": index}}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON .*: ''"),
        ("{}", "it lacks cluster, task: '{}'"),
        ('{"cluster": {"worker": ["a:1"]}}', "it lacks task: "),
        (config(PAIR, "worker", 2), "no task 2 of type 'worker'"),
        (config(PAIR, "chief", 0), "no task 0 of type 'chief'"),
        (config({"worker": "a:1"}, "worker", 0), "'a:1', where list"),
        (config({"worker": ["a"]}, "worker", 0), "'a' is not HOST:PORT"),
        (
            config({"worker": ["a:1", "a:1"]}, "worker", 0),
            "'a:1' is the HOST:PORT of two tasks",
        ),
        (
            config({"chief": ["a:1", "b:1"]}, "chief", 0),
            "tasks other than workers and one chief: chief",
        ),
    ],
)
def test_error_names_the_fault_of_tf_config(text, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    # Without a cluster or task, "auto" is a single machine.
    for distribution in ("multi_worker", *["auto"] * (text not in ("", "{}"))):
        with pytest.raises(errors.UserError, match=f"HOST:PORT.*{message}"):
            devices.strategy(distribution)


@pytest.mark.parametrize(
    "text", ["", " ", "{}", '{"environment": "cloud"}', '{"cluster": {}}']
)
def test_tf_config_without_a_task_is_of_a_single_machine(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    assert not devices.is_multi_worker("auto")
    assert devices.is_multi_worker("multi_worker")


def test_devices_of_a_process_that_has_trained_are_explained():
    tf.constant(1.0)
    options = Options(logical_devices=7)
    message = "chosen any more: .* earlier training .* use a new process"
    with pytest.raises(errors.UserError, match=message):
        job._choose_hardware(options)


def test_multi_worker_without_tf_config_is_refused(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(errors.UserError, match="Here it is not set"):
        devices.strategy("multi_worker")


@pytest.mark.parametrize("distribution", ["auto", "multi_worker"])
def test_tf_config_selects_multi_worker(distribution, monkeypatch):
    """The strategy is a fake, since a real one waits for the other worker."""
    monkeypatch.setenv("TF_CONFIG", config(PAIR, "worker", 1))
    before = [*map(signal.getsignal, SIGNALS)]

    def wait_for_others():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        signal.signal(signal.SIGTERM, lambda *_: None)  # as TensorFlow does
        return "several"

    monkeypatch.setattr(
        tf.distribute, "MultiWorkerMirroredStrategy", wait_for_others
    )
    assert devices.strategy(distribution) == "several"
    assert [*map(signal.getsignal, SIGNALS)] == before
    assert devices.strategy("one_device") != "several"


class Strategy:
    """Stand-in for MultiWorkerMirroredStrategy."""

    def __init__(self, cluster, kind, index, others=0):
        self.cluster_resolver = (
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(cluster), task_type=kind, task_id=index
            )
        )
        self.others = others
        self.num_replicas_in_sync = 4

    def reduce(self, operation, value, axis):
        """Return the sum of this worker's value and the others'."""
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
def test_first_worker_is_the_chief(cluster, task, index, tmp_path):
    worker = devices.Worker(Strategy(cluster, *task))
    assert (worker.count, worker.index) == (2, index)
    assert worker.is_chief is (index == 0)
    with worker.folder_to_write(tmp_path) as folder:
        assert (folder == tmp_path) is worker.is_chief
        assert folder.is_dir()
    assert folder.is_dir() is worker.is_chief


def test_different_flags_are_refused():
    same = zlib.crc32(b"'on'")
    worker = devices.Worker(Strategy(PAIR, "worker", 1, others=[same, 0]))
    devices.require_same_flags(worker, {"xla": "on"})
    message = "--xla is off for worker 1 of 2, and differs for another"
    with pytest.raises(errors.UserError, match=message):
        devices.require_same_flags(worker, {"xla": "off"})


def test_hardware_summary_names_number_of_workers():
    summary = devices.summary(Strategy(PAIR, "worker", 1), "float32", False)
    assert summary.startswith(
        "4 replicas on CPUs of 2 workers (MultiWorkerMirroredStrategy), "
    )


def test_lost_worker_ends_the_others():
    worker = devices.Worker(Strategy(PAIR, "worker", 1))
    gone = tf.errors.UnavailableError(None, None, "Socket closed")
    message = "Worker 1 of 2 has lost another.*Start all.*Socket closed"
    with (
        pytest.raises(errors.UserError, match=message),
        worker.report_lost_workers(),
    ):
        raise gone

    def diagnose():
        raise errors.UserError("The loss of step 3 is nan.")

    with (
        pytest.raises(errors.UserError, match="nan"),
        worker.report_lost_workers(diagnose),
    ):
        raise gone


def test_single_worker_is_the_chief(strategy_of, tmp_path):
    for replicas in (1, 2):
        worker = devices.Worker(strategy_of(replicas))
        assert (worker.count, worker.index, worker.is_chief) == (1, 0, True)
        assert worker.gather(15) == [15]
        with (
            pytest.raises(tf.errors.AbortedError),  # of no other worker
            worker.report_lost_workers(),
            worker.folder_to_write(tmp_path) as folder,
        ):
            assert folder == tmp_path
            raise tf.errors.AbortedError(None, None, "")
