"""Training by two processes, compared with one process, and with faults."""

import contextlib
import json
import re
import socket

import numpy as np
import pytest
from forked import ok

from t2t_repro.runs import checkpoint_files, checkpoints

# Each test starts two processes, each of which traces the training step.
pytestmark = pytest.mark.slow
STEPS = 6
SECONDS = 3600  # workers that take longer wait for each other for ever
SMALL = "hidden_size=16,filter_size=32,num_heads=2,batch_tokens=256"
# Workers share the modules of --usr_dir, so that one without a fault has one
# before a step that never comes.
NO_FAULT = "SIGTERM step 0"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def free_ports(count):
    """Return ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="module")
def train_pair(commands):
    """Return a function that trains with two workers, each with a fault.

    It returns their exit codes and texts.
    """

    def train(output_dir, *flags, faults=(NO_FAULT, NO_FAULT), **settings):
        cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
        processes = []
        for index, fault in enumerate(faults):
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": cluster, "task": task})
            processes.append(
                commands.start(
                    output_dir,
                    *flags,
                    fault=fault,
                    env={"TF_CONFIG": config},
                    **settings,
                )
            )
        results = [process.wait(SECONDS) for process in processes]
        printed = [result.stdout + result.stderr for result in results]
        return [result.returncode for result in results], printed

    return train


def files_of(folder):
    """Return the files of a folder, without times and processes in names."""
    return sorted(
        str(path.relative_to(folder)).partition(".tfevents")[0]
        for path in folder.rglob("*")
    )


def assert_close(actual, expected, name):
    """Check weights, moments and step, to 1e-5 of the largest value."""
    stored, wanted = (
        checkpoints.CheckpointReader(folder / "checkpoints" / name)
        for folder in (actual, expected)
    )
    assert stored.shapes == wanted.shapes
    assert stored.vocabulary == wanted.vocabulary
    for path in wanted.shapes.keys() - {"vocabulary_sha256", OBJECT_GRAPH}:
        value = wanted.tensor(path)
        limit = 1e-5 * np.abs(value).max()
        np.testing.assert_allclose(
            stored.tensor(path), value, rtol=0, atol=limit, err_msg=path
        )


@pytest.fixture(scope="module")
def uninterrupted_run(train_pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    codes, printed = train_pair(folder, steps=STEPS)
    assert codes == [0, 0], "\n".join(printed)
    for text in printed:
        assert "2 replicas on CPUs of 2 workers (MultiWorker" in text
        assert "per replica: 1/2 of it" in text
    return folder


def test_two_workers_update_as_one(commands, uninterrupted_run, tmp_path):
    """Dropout is on, and only the first worker makes the data."""
    ok(commands.train(tmp_path, steps=STEPS))
    assert files_of(uninterrupted_run) == files_of(tmp_path)
    for step in (4, STEPS):
        assert_close(uninterrupted_run, tmp_path, f"ckpt-{step}")


def test_two_workers_with_xla_make_the_same_updates(
    train_pair, uninterrupted_run, tmp_path
):
    """Each compiles Adam's update for its own copies of the weights."""
    codes, printed = train_pair(tmp_path, "--xla=on", steps=4)
    assert codes == [0, 0], "\n".join(printed)
    assert_close(tmp_path, uninterrupted_run, "ckpt-4")


def test_signal_to_one_worker_stops_both_and_they_resume_to_the_same_bits(
    train_pair, uninterrupted_run, assert_same_run, tmp_path
):
    """The chief translates some sentences while the other worker waits."""
    translate = "--eval_bleu_sentences=9"
    codes, printed = train_pair(
        tmp_path, translate, faults=(NO_FAULT, "SIGTERM step 3"), steps=STEPS
    )
    assert codes == [143, 143], "\n".join(printed)
    for text in printed:
        assert "Stopped after step 3; checkpoint ckpt-3." in text
    codes, printed = train_pair(tmp_path, translate, steps=STEPS)
    assert codes == [0, 0], "\n".join(printed)
    for text in printed:
        assert f"Continuing from {tmp_path}/checkpoints/ckpt-3." in text
    assert_same_run(tmp_path, uninterrupted_run)


@pytest.mark.parametrize("dead", [0, 1])
def test_worker_ends_when_the_other_is_killed(train_pair, tmp_path, dead):
    faults = [NO_FAULT, NO_FAULT]
    faults[dead] = "SIGKILL step 6"
    codes, printed = train_pair(tmp_path, faults=faults, steps=STEPS)
    assert codes[dead] == -9
    assert codes[1 - dead] == 1, printed[1 - dead]
    message = f"Error: Worker {1 - dead} of 2 has lost another worker, whose"
    assert message in printed[1 - dead]
    listed = checkpoint_files.list_checkpoints(tmp_path / "checkpoints")
    assert [path.name for path in listed] == ["ckpt-4"]


def test_worker_ends_when_the_chief_cannot_generate_data(train_pair, tmp_path):
    missing = "--problem_args=name=none,languages=aa-bb,vocab_size=300"
    codes, (chief, other) = train_pair(tmp_path, missing)
    assert codes == [1, 1]
    assert "validation.aa" in chief
    assert "Worker 1 of 2 has lost another worker" in other


def test_both_workers_end_when_a_loss_is_not_finite(train_pair, tmp_path):
    absurd = "learning_rate_constant=3e30,learning_rate_warmup_steps=10"
    codes, printed = train_pair(
        tmp_path,
        f"--hparams={SMALL},{absurd}",
        "--save_checkpoints_steps=1",
        steps=STEPS,
    )
    assert codes == [1, 1]
    for text in printed:
        # Which of the two comes first depends on how the processor rounds.
        found = "(loss of|update of|validation loss after) step [23] "
        assert re.search(f"Error: The {found}", text)
