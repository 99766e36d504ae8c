"""Generation after SIGKILL continues and ends with the same bytes."""

import os
import signal
import subprocess
import sys

import pytest
from small_corpora import read_files

from t2t_repro.data import manifest

# Reads lines "folder, when, number" and answers with the exit code of a fork.
# The fork generates a corpus of 5 + 1 shards in the folder, and kills itself
# "before" or "after" it renames its file of this number.
SCRIPT = """
import os, pathlib, signal, sys
from small_corpora import draw_pairs, generate_corpus
from t2t_repro.data import engines

pairs = draw_pairs(60)
pairs[13] = ("", "dropped")
rename, renamed = os.replace, 0

def generate(folder, when, number):
    def replace(source, target):
        global renamed
        renamed += 1
        if (when, renamed) == ("before", number):
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if (when, renamed) == ("after", number):
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace
    generate_corpus(
        pathlib.Path(folder),
        pairs,
        test=pairs[:4],
        engine=engines.ThreadEngine(2),
        shard_pairs=12,
        chunk_pairs=5,
    )

for line in sys.stdin:
    folder, when, number = line.split()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        generate(folder, when, int(number))
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""
# Vocabulary, unfinished.json, 1 shard of test, 5 of train, unfinished.json,
# manifest.json, in this order.
FILES = 10


@pytest.fixture(scope="module")
def run():
    """A function that runs a fork of the script and returns its exit code."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:

        def ask(folder, when="never", number=0):
            print(folder, when, number, file=process.stdin, flush=True)
            return int(process.stdout.readline())

        yield ask
        process.stdin.close()


@pytest.fixture(scope="module")
def uninterrupted_run(tmp_path_factory, run):
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert run(folder) == 0
    return read_files(folder)


def test_run_killed_after_every_file_keeps_finished_shards(
    tmp_path, run, uninterrupted_run, count_outcome
):
    times = {}
    # A run without unfinished.json learns the vocabulary again (2); the
    # manifest is written in two steps (2).
    for number in (1, 2, 1, 1, 1, 1, 1, 1, 1, 2):
        assert manifest.read(tmp_path) is None
        assert run(tmp_path, "after", number) == -signal.SIGKILL
        count_outcome("kills", "datagen", "tried")
        now = {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("*.arrow")}
        assert now == now | times
        times = now
    assert read_files(tmp_path) == uninterrupted_run
    count_outcome("kills", "datagen", "survived", 10)


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, FILES])
def test_run_killed_within_a_file_is_repeated_bit_identically(
    tmp_path, run, uninterrupted_run, count_outcome, number
):
    assert run(tmp_path, "before", number) == -signal.SIGKILL
    count_outcome("kills", "datagen", "tried")
    assert manifest.read(tmp_path) is None
    for path in tmp_path.glob("*.tmp"):
        os.truncate(path, path.stat().st_size // 2)
    assert run(tmp_path) == 0
    assert read_files(tmp_path) == uninterrupted_run
    count_outcome("kills", "datagen", "survived")
