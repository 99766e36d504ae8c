"""Benchmark of the start of commands: seconds to the first line of output.

    python -m scripts.benchmarks.bench_start --output_dir=RUN

The peer is a process that imports TensorFlow and reads the weights. Both take
turns, and the fastest turn of each counts. The last line is a JSON list of
{name, value, unit, peer, ratio}. compare_commits compares revisions.
"""

import functools
import operator
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from absl import flags

from scripts.benchmarks import harness
from t2t_repro import registry
from t2t_repro.runs.run import Run
from t2t_repro.serving import version_folders

RUN = harness.ROOT / "tests" / "fixtures" / "run" / "run"  # of number words
_OUTPUT_DIR = flags.DEFINE_string("output_dir", str(RUN), "Trained run.")
_SENTENCE = flags.DEFINE_string("sentence", "sixty-two", "Text to translate.")
_TURNS = flags.DEFINE_integer("turns", 5, "Turns of each process.")

READ = """
import sys
import tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
for name in reader.get_variable_to_shape_map():
    reader.get_tensor(name)
print("read", flush=True)
"""
PEER = "import of TensorFlow and weights"


def seconds_to_first_line(arguments):
    """Return the seconds until `python ARGUMENTS` prints a line."""
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=harness.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
        process.stdout.read()
    if not line or process.returncode:
        raise RuntimeError(f"Failed: {' '.join(arguments)}")
    return seconds


def commands(folder):
    """Yield the name, the arguments and the weights of each command.

    The weights are None for a command without a model. The folder gets a copy
    of the run, in which `evaluate` stores scores, and an export.
    """
    run = folder / "run"
    shutil.copytree(_OUTPUT_DIR.value, run)
    registry.load_definitions()
    (checkpoint,) = Run.open(run).checkpoints()
    text, export = folder / "sentence", folder / "export"
    text.write_text(f"{_SENTENCE.value}\n", "utf-8")
    t2t = "-m", "t2t_repro"
    of_run = f"--output_dir={run}", f"--checkpoint_path={checkpoint}"
    subprocess.run(
        [sys.executable, *t2t, "exporter", *of_run, f"--export_dir={export}"],
        cwd=harness.ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    version = version_folders.newest_version(export)
    variables = export / str(version) / "variables" / "variables"
    query = f"--export_dir={export}", f"--inputs={_SENTENCE.value}"
    both_sides = f"--sources={text}", f"--references={text}"
    for name, arguments, weights in (
        ("--help", (), None),
        ("datagen --help", (), None),
        ("decoder --help", (), None),
        ("show --hparams_set=base", (), None),
        ("decoder", (*of_run, f"--decode_from_file={text}"), checkpoint),
        ("evaluate", (*of_run, *both_sides), checkpoint),
        ("query", query, variables),
    ):
        yield f"t2t {name}", (*t2t, *name.split(), *arguments), weights


def measure(name, arguments, weights):
    """Measure a command, and its peer if it reads weights."""
    processes = {name: arguments}
    if weights:
        processes[PEER] = "-c", READ, str(weights)
    seconds = harness.best_of_turns(
        {
            each: functools.partial(seconds_to_first_line, command)
            for each, command in processes.items()
        },
        _TURNS.value,
        operator.neg,
    )
    harness.report_beside(name, seconds[name], "s", PEER, seconds.get(PEER))


def main():
    with tempfile.TemporaryDirectory() as name:
        for command in commands(pathlib.Path(name)):
            measure(*command)


if __name__ == "__main__":
    harness.run_benchmark(main)
