"""datagen as a process that is stopped, started again, and started twice."""

import os
import signal
import subprocess
import sys

import pytest
from made_up_words import problem_flags, write_raw


def interrupt(process):
    """Send Control-C until the process ends; return stdout and stderr.

    Python drops a KeyboardInterrupt that is raised in a callback of its
    garbage collector, of which libraries have some.
    """
    for _ in range(100):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=0.5)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.communicate()


@pytest.mark.slow
def test_control_c_ends_datagen_and_next_run_generates_data(run, tmp_path):
    write_raw(tmp_path / "raw", train=40_000)  # some seconds of work
    process = subprocess.Popen(
        [sys.executable, "-m", "t2t_repro.datagen", *problem_flags(tmp_path)],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Not before: the import of numpy.random swallows a Control-C.
    for line in process.stderr:
        if line.startswith("encode train"):
            break
    _, shown = interrupt(process)
    # A second Control-C may meet a process that is leaving; for a shell, both
    # are 130.
    assert process.returncode in (130, -signal.SIGINT), shown
    assert "Interrupted." in shown
    assert not list(tmp_path.glob("data/*/manifest.json"))
    made = run("datagen", *problem_flags(tmp_path))
    assert "train: 40,000 of 40,000 pairs" in made.stdout, made.stderr
    again = run("datagen", *problem_flags(tmp_path), "--verify")
    assert "The data is there" in again.stdout
    assert "Every file in" in again.stdout
