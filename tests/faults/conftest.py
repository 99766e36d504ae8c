"""Fixtures that run commands with faults, and damage the files they leave."""

import pathlib
import random
import signal
import subprocess
import time

import numpy as np
import pytest
import raw_text
from forked import ok

from t2t_repro import errors
from t2t_repro.runs import checkpoint_files

KILLED = (-signal.SIGKILL, -signal.SIGXFSZ)
FAULT_INJECTION_DIR = pathlib.Path(__file__).with_name("usr")
HPARAMS = (
    "hidden_size=16,filter_size=32,num_heads=2,num_hidden_layers=1,"
    "batch_tokens=256,learning_rate_warmup_steps=10"
)


def _draw_faults(changes, size, seconds):
    """Yield endless settings of random faults of three kinds.

    usr/fault_injection.py injects two; the third is SIGKILL after some time.
    """
    moments = random.Random(0)
    while True:
        yield {"fault": f"SIGKILL change {moments.randint(1, changes)}"}
        yield {"fault": f"SIGXFSZ size {moments.randint(100, size)}"}
        yield {"kill_after": moments.uniform(0, seconds)}


@pytest.fixture
def survive(count_outcome):
    """Return a function that kills a command again and again.

    Each run continues from the files of the killed one. A run that ends
    without a fault, as the first one, must leave what an uninterrupted command
    leaves.

    Args:
        subject: name of the killed work, for the count.
        run: function of a fault's settings that returns a CompletedProcess.
        check: function that compares the files with those of an uninterrupted
            command and removes them, so that the next run begins anew.
        changes: minimum number of changes of files by the command.
        size: bytes of the largest file.
        kills: number of kills.
    """

    def again_and_again(subject, run, check, changes, size, kills):
        began = time.monotonic()
        assert run().returncode == 0
        faults = _draw_faults(changes, size, time.monotonic() - began)
        check()
        pending = 0
        while kills or pending:
            result = run(**(next(faults) if kills else {}))
            if result.returncode:
                assert result.returncode in KILLED, result.stderr
                kills, pending = kills - 1, pending + 1
                count_outcome("kills", subject, "tried")
            else:
                check()
                count_outcome("kills", subject, "survived", pending)
                pending = 0

    return again_and_again


def _damage(path, seed, count):
    """Yield descriptions of damage that a file has; restore it at the end.

    Of three damages two flip a bit, and one cuts off the end.
    """
    whole = path.read_bytes()
    random_numbers = random.Random(f"{path.name} {seed}")
    try:
        for number in range(count):
            content = bytearray(whole)
            index = random_numbers.randrange(len(whole))
            if number % 3 == 2:
                del content[index:]
            else:
                content[index] ^= 1 << random_numbers.randrange(8)
            path.unlink()  # a process that has mapped it keeps the old one
            path.write_bytes(content)
            yield f"{'cut' if number % 3 == 2 else 'flipped'} at {index}"
    finally:
        path.unlink()
        path.write_bytes(whole)


@pytest.fixture
def damage(count_outcome):
    """Return a function that damages a file again and again and opens it.

    Each damage must be detected, by an error that names the file, or have no
    consequence.

    Args:
        subject: name of the file's owner, for the count.
        path: path of the file.
        name: text that an error must contain.
        open_it: function that opens the file and asserts that it has its old
            content. It may return another outcome, as "set aside".
        count: number of faults.
    """

    def try_all(subject, path, name, open_it, count):
        found = {}
        for how in _damage(path, 0, count):
            count_outcome("damaged files", subject, "tried")
            try:
                outcome = open_it() or "without consequence"
            except errors.UserError as error:
                named = str(name) in str(error)
                outcome = "detected by name" if named else f"unnamed: {error}"
            except AssertionError:
                outcome = "silent"
            except Exception as error:  # a user would see a traceback
                outcome = f"unexplained: {error!r}"
            count_outcome("damaged files", subject, outcome.partition(":")[0])
            found[how] = outcome
        bad = ("silent", "unnamed", "unexplained")
        assert not {
            how: outcome
            for how, outcome in found.items()
            if outcome.startswith(bad)
        }

    return try_all


class Commands:
    """Commands on random letters, whose translation is their reversal."""

    def __init__(self, folder, forked):
        self.folder, self.forked = folder, forked
        letters_of, splits = np.random.default_rng(0), {}
        for split, lines in (("train", 300), ("validation", 20), ("test", 20)):
            rows = letters_of.choice(list("abcdefghij"), (lines, 6))
            splits[split] = [(" ".join(x), " ".join(x[::-1])) for x in rows]
        raw_text.write(folder / "raw", splits, ("xx", "yy"))

    def data_flags(self, data_dir=None):
        """Return the flags of datagen and of the trainer."""
        return [
            "--problem=parallel_text",
            "--problem_args=name=letters,languages=xx-yy,vocab_size=270",
            f"--raw_dir={self.folder / 'raw'}",
            f"--data_dir={data_dir or self.folder / 'data'}",
        ]

    def data(self):
        """Return the data folder with a manifest; tests leave others."""
        (manifest,) = (self.folder / "data").glob("*/manifest.json")
        return manifest.parent

    def command(self, output_dir, *flags, fault=None, steps=12):
        """Return flags and environment of a run with checkpoints 4 and 8."""
        arguments = [
            *self.data_flags(),
            "--hparams_set=tiny",
            f"--hparams={HPARAMS}",
            f"--output_dir={output_dir}",
            "--deterministic",
            f"--train_steps={steps}",
            "--save_checkpoints_steps=4",
            "--eval_bleu_sentences=0",  # tracing a search takes seconds
            *flags,
        ]
        # Settings that are given twice would add up: the last ones count.
        last = {flag.partition("=")[0]: flag for flag in arguments}
        return self.faulty([*last.values()], output_dir, fault)

    def faulty(self, arguments, folder, fault):
        """Return flags and environment of a command; fault=None: without."""
        if fault:
            arguments = [*arguments, f"--usr_dir={FAULT_INJECTION_DIR}"]
        return arguments, {"FAULT": fault or "", "DISK": str(folder)}

    def start(self, output_dir, *flags, env=None, **settings):
        """Start the trainer in a fork; return the Command."""
        given, faults = self.command(output_dir, *flags, **settings)
        return self.forked.start("trainer", *given, env=faults | (env or {}))

    def train(self, output_dir, *flags, **settings):
        """Run the trainer in a fork; return its result."""
        return self.start(output_dir, *flags, **settings).wait()

    def run(self, name, folder, *flags, fault=None, **settings):
        """Run a command whose files are in `folder`; return its result."""
        arguments, env = self.faulty(flags, folder, fault)
        return self.forked(name, *arguments, env=env, **settings)


@pytest.fixture
def mount():
    """Return a function that mounts a folder; all are unmounted in the end."""
    mounted = set()

    def run(folder, *arguments):
        command = ["mount", *arguments, folder]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("This user cannot mount here.")
        mounted.add(folder)

    yield run
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def small_disk(mount, tmp_path):
    """Return a folder on a disk of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "-t", "tmpfs", "-o", "size=4m", "tmpfs")
    return folder


@pytest.fixture(scope="session")
def assert_same_run(read_events, assert_same_checkpoint):
    """Return a function that compares files, bits and losses of two folders."""

    def check(actual, expected):
        folders = [
            folder / checkpoint_files.CHECKPOINTS
            for folder in (actual, expected)
        ]
        files, expected_files = (
            sorted(path.name for path in folder.iterdir() if path.is_file())
            for folder in folders
        )
        assert files == expected_files
        for path in checkpoint_files.list_checkpoints(folders[1]):
            assert_same_checkpoint(folders[0] / path.name, path)
        losses, expected_losses = (
            read_events(folder)["validation/loss"]
            for folder in (actual, expected)
        )
        assert losses == expected_losses

    return check


@pytest.fixture(scope="session")
def commands(tmp_path_factory, forked):
    return Commands(tmp_path_factory.mktemp("faults"), forked)


@pytest.fixture(scope="session")
def trained(commands, tmp_path_factory):
    """Return the folder of an uninterrupted training: ckpt-4, -8, -12."""
    folder = tmp_path_factory.mktemp("trained")
    ok(commands.train(folder))
    return folder
