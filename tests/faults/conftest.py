"""Fixtures: trainings in processes of their own, which signals can stop."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.training import checkpoints

ROOT = pathlib.Path(__file__).parents[2]
HPARAMS = (
    "hidden_size=16,filter_size=32,num_heads=2,num_hidden_layers=1,"
    "batch_tokens=256,learning_rate_warmup_steps=10"
)
# A module for --usr_dir. FAULT="SIGTERM step 3" sends that signal before the
# third step of the process, "SIGKILL index 2" before the second index of a
# checkpoint gets its name, when its data already has; "FILL step 3" fills the
# disk of DISK.
SABOTEUR = '''
"""Signals that come when they hurt."""

import contextlib
import itertools
import os
import signal

from t2t_repro.training import step

name, place, number = os.environ["FAULT"].split()


def fill_disk():
    with contextlib.suppress(OSError):
        with open(os.environ["DISK"] + "/filler", "wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass


def strike():
    if name == "FILL":
        fill_disk()
    else:
        os.kill(os.getpid(), signal.Signals[name])


def sabotage(function, is_one=lambda *args: True):
    numbers = itertools.count(1)

    def sabotaged(*args):
        if is_one(*args) and next(numbers) == int(number):
            strike()
        return function(*args)

    return sabotaged


def build_sabotaged(*args):
    train_step = build(*args)
    sabotaged = sabotage(train_step)
    counted = train_step.experimental_get_tracing_count
    sabotaged.experimental_get_tracing_count = counted
    return sabotaged


build = step.build_train_step
if place == "step":
    step.build_train_step = build_sabotaged
else:
    os.replace = sabotage(
        os.replace, lambda source, target: str(target).endswith(".index")
    )
'''


class Trainings:
    """python -m t2t_repro.trainer, on letters and the same reversed."""

    def __init__(self, folder, forked):
        self.folder, self._forked = folder, forked
        (folder / "raw").mkdir()
        (folder / "usr").mkdir()
        (folder / "usr" / "saboteur.py").write_text(SABOTEUR)
        random = np.random.default_rng(0)
        for split, lines in (("train", 300), ("validation", 20), ("test", 20)):
            letters = random.choice(list("abcdefghij"), (lines, 6))
            for language, step in (("xx", 1), ("yy", -1)):
                text = "".join(f"{' '.join(row[::step])}\n" for row in letters)
                (folder / "raw" / f"{split}.{language}").write_text(text)

    def command(self, output_dir, *flags, fault=None, steps=12):
        """Arguments and environment of a training that saves every 4 steps."""
        arguments = [
            "--problem=parallel_text",
            "--problem_args=name=letters,languages=xx-yy,vocab_size=270",
            f"--raw_dir={self.folder / 'raw'}",
            f"--data_dir={self.folder / 'data'}",
            "--hparams_set=tiny",
            f"--hparams={HPARAMS}",
            f"--output_dir={output_dir}",
            "--deterministic",
            f"--train_steps={steps}",
            "--save_checkpoints_steps=4",
            *flags,
        ]
        if fault:
            arguments.append(f"--usr_dir={self.folder / 'usr'}")
        return arguments, {"FAULT": fault or "", "DISK": str(output_dir)}

    def start(self, output_dir, *flags, env=None, **settings):
        """-> Popen."""
        arguments, faults = self.command(output_dir, *flags, **settings)
        return subprocess.Popen(
            [sys.executable, "-m", "t2t_repro.trainer", *arguments],
            cwd=ROOT,
            env=os.environ | faults | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    def train(self, output_dir, *flags, **settings):
        """-> exit code, what was printed."""
        arguments, env = self.command(output_dir, *flags, **settings)
        result = self._forked("trainer", *arguments, env=env)
        return result.returncode, result.stdout + result.stderr


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of its own, of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("No disk can be mounted here.")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _state(output_dir, path):
    reader = tf.train.load_checkpoint(str(output_dir / "checkpoints" / path))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


@pytest.fixture(scope="session")
def assert_same_training(read_events):
    """A function of two folders: the same files, bits and losses."""

    def check(actual, expected):
        files, expected_files = (
            sorted(file.name for file in (folder / "checkpoints").iterdir())
            for folder in (actual, expected)
        )
        assert files == expected_files
        for path in checkpoints.list_checkpoints(expected / "checkpoints"):
            state = _state(actual, path.name)
            for name, value in _state(expected, path.name).items():
                np.testing.assert_array_equal(
                    state.pop(name), value, err_msg=f"{path.name} {name}"
                )
            assert not state
        losses, expected_losses = (
            read_events(folder)["validation/loss"]
            for folder in (actual, expected)
        )
        assert losses == expected_losses

    return check


@pytest.fixture(scope="session")
def trainings(tmp_path_factory, forked):
    return Trainings(tmp_path_factory.mktemp("faults"), forked)
