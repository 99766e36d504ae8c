"""Two processes train as one does, stop together, and go on together."""

import contextlib
import json
import socket

import numpy as np
import pytest
import tensorflow as tf

STEPS = 6
WITHOUT = ("_CHECKPOINTABLE_OBJECT_GRAPH", "vocabulary_sha256")


def free_ports(count):
    """Ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="module")
def pair_of(trainings):
    """A function of a folder and faults -> exit codes, what was printed."""

    def train(output_dir, *flags, faults=(None, None), **settings):
        cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
        processes = []
        for index, fault in enumerate(faults):
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": cluster, "task": task})
            processes.append(
                trainings.start(
                    output_dir,
                    *flags,
                    fault=fault,
                    env={"TF_CONFIG": config},
                    **settings,
                )
            )
        printed = [process.communicate(timeout=300)[0] for process in processes]
        return [process.returncode for process in processes], printed

    return train


def files_of(folder):
    """Its files, but for what names a moment or a process."""
    return sorted(
        str(path.relative_to(folder)).partition(".tfevents")[0]
        for path in folder.rglob("*")
    )


def assert_close(actual, expected, name, **tolerance):
    """Weights, moments and step of a checkpoint, relative to the largest."""
    stored, wanted = (
        tf.train.load_checkpoint(str(folder / "checkpoints" / name))
        for folder in (actual, expected)
    )
    names = wanted.get_variable_to_shape_map()
    assert stored.get_variable_to_shape_map() == names
    for path in names:
        if path.startswith(("weights/", "momentum/", "velocity/", "step/")):
            value = wanted.get_tensor(path)
            np.testing.assert_allclose(
                stored.get_tensor(path),
                value,
                rtol=1e-5,
                atol=1e-5 * np.abs(value).max(),
                err_msg=path,
            )


@pytest.fixture(scope="module")
def undisturbed(pair_of, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    codes, printed = pair_of(folder, steps=STEPS)
    assert codes == [0, 0], "\n".join(printed)
    for text in printed:
        assert "2 replicas on CPUs of 2 workers (MultiWorker" in text
        assert "per replica: 1/2 of it" in text
    return folder


def test_two_workers_update_as_one(trainings, undisturbed, tmp_path):
    """Dropout is on. The data is made by the first worker only."""
    code, printed = trainings.train(tmp_path, steps=STEPS)
    assert code == 0, printed
    assert files_of(undisturbed) == files_of(tmp_path)
    for step in (4, STEPS):
        assert_close(undisturbed, tmp_path, f"ckpt-{step}")


def test_a_signal_to_one_worker_stops_all(
    pair_of, undisturbed, assert_same_training, tmp_path
):
    """And both go on from the first one's checkpoint, to the same bits."""
    codes, printed = pair_of(
        tmp_path, faults=(None, "SIGTERM step 3"), steps=STEPS
    )
    assert codes == [143, 143], "\n".join(printed)
    for text in printed:
        assert "Stopped after step 3; checkpoint ckpt-3." in text
    codes, printed = pair_of(tmp_path, steps=STEPS)
    assert codes == [0, 0], "\n".join(printed)
    for text in printed:
        assert f"Continuing from {tmp_path}/checkpoints/ckpt-3." in text
    assert_same_training(tmp_path, undisturbed)
