"""datagen that is killed goes on, and ends with the bytes it would have had."""

import json
import os
import signal
import subprocess
import sys

import pytest

from t2t_repro.data import manifest

# Makes a corpus of 5 + 1 shards in the folder argv[1], and kills itself
# "before" or "after" the file number argv[3] of this run gets its name.
SCRIPT = """
import os, pathlib, random, signal, sys
from t2t_repro.data import encode, generate

encode.CHUNK_PAIRS = 5
choices = random.Random(0)
words = ["an", "bed", "can", "dan", "ebb", "fad"]
lines = [" ".join(choices.choices(words, k=5)) for _ in range(60)]
pairs = [(line, line[::-1]) for line in lines]
pairs[13] = ("", "dropped")
rename, when, number, named = os.replace, sys.argv[2], int(sys.argv[3]), 0

def replace(source, target):
    global named
    named += 1
    if (when, named) == ("before", number):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
    if (when, named) == ("after", number):
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = replace
generate.generate(
    pathlib.Path(sys.argv[1]),
    {"train": lambda: iter(pairs), "test": lambda: iter(pairs[:4])},
    generate.Spec(300, max_length=40),
    {"problem": "toy"},
    num_workers=2,
    shard_pairs=12,
)
"""
# In this order: vocabulary, unfinished.json, 1 shard of test, 5 of train,
# unfinished.json, manifest.json.
FILES = 10


def run(folder, when="never", number=0):
    """The exit code of the script."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, folder, when, str(number)],
        capture_output=True,
        timeout=1200,
    ).returncode


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run(folder) == 0
    return contents(folder)


def test_an_undisturbed_run_leaves_what_the_manifest_names(undisturbed):
    made = json.loads(undisturbed["manifest.json"])
    shards = [
        shard["file"]
        for split in made["splits"].values()
        for shard in split["shards"]
    ]
    assert len(shards) == 6
    assert set(undisturbed) == {"manifest.json", "vocab.model", *shards}


def test_killed_after_every_file(tmp_path, undisturbed, count_outcome):
    """Each run goes on where the last one was; no shard is made again."""
    times = {}
    # Without unfinished.json a vocabulary is learned again; with all shards,
    # the manifest is written in two steps.
    for number in (1, 2, 1, 1, 1, 1, 1, 1, 1, 2):
        assert manifest.read(tmp_path) is None
        assert run(tmp_path, "after", number) == -signal.SIGKILL
        count_outcome("kills", "datagen", "tried")
        now = {
            path.name: path.stat().st_mtime_ns
            for path in tmp_path.glob("*.arrow")
        }
        assert now == now | times
        times = now
    assert contents(tmp_path) == undisturbed
    count_outcome("kills", "datagen", "survived", 10)


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 10])
def test_killed_in_the_middle_of_a_file(
    tmp_path, undisturbed, count_outcome, number
):
    """What is written of it, under a temporary name, is no harm."""
    assert number <= FILES
    assert run(tmp_path, "before", number) == -signal.SIGKILL
    count_outcome("kills", "datagen", "tried")
    assert manifest.read(tmp_path) is None
    for path in tmp_path.glob("*.tmp"):
        os.truncate(path, path.stat().st_size // 2)
    assert run(tmp_path) == 0
    assert contents(tmp_path) == undisturbed
    count_outcome("kills", "datagen", "survived")
