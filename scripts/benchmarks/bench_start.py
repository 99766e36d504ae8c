"""Benchmark of the start of commands: seconds to the first line of output.

    python -m scripts.benchmarks.bench_start --output_dir=RUN \\
        --against=REVISION

The peer is a process that imports TensorFlow and reads the weights. All
processes take turns, and the fastest turn of each counts. --against also
measures the commands of another revision of the repository, or of a checkout in
a folder. The last line is a JSON list of {name, value, unit, peer, ratio}.
"""

import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro.runs.run import Run
from t2t_repro.serving import version_folders

RUN = harness.ROOT / "tests" / "fixtures" / "run" / "run"  # of number words
_OUTPUT_DIR = flags.DEFINE_string("output_dir", str(RUN), "Trained run.")
_SENTENCE = flags.DEFINE_string("sentence", "sixty-two", "Text to translate.")
_AGAINST = flags.DEFINE_string(
    "against", None, "Revision, or folder of a checkout, to compare with."
)
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


def seconds_to_first_line(arguments, folder):
    """Return the seconds until `python ARGUMENTS` prints a line."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
        process.stdout.read()
    if not line or process.returncode:
        raise RuntimeError(f"Failed in {folder}: {' '.join(arguments)}")
    return seconds


def commands(folder):
    """Yield the name, the arguments and the weights of each command.

    The weights are None for a command without a model.

    Args:
        folder: empty folder for a copy of the run, in which `evaluate` stores
            scores, an export, and a file of one sentence.
    """
    run = folder / "run"
    shutil.copytree(_OUTPUT_DIR.value, run)
    (checkpoint,) = Run.open(run).checkpoints()
    text, export = folder / "sentence", folder / "export"
    text.write_text(f"{_SENTENCE.value}\n", "utf-8")
    t2t = "-m", "t2t_repro"
    with_run = f"--output_dir={run}", f"--checkpoint_path={checkpoint}"
    subprocess.run(
        [sys.executable, *t2t, "exporter", *with_run, f"--export_dir={export}"],
        cwd=harness.ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    version = version_folders.newest_version(export)
    variables = export / str(version) / "variables" / "variables"
    for name, arguments, weights in (
        ("--help", (), None),
        ("datagen --help", (), None),
        ("decoder --help", (), None),
        ("show --hparams_set=base", (), None),
        ("decoder", (*with_run, f"--decode_from_file={text}"), checkpoint),
        (
            "evaluate",
            (*with_run, f"--sources={text}", f"--references={text}"),
            checkpoint,
        ),
        (
            "query",
            (f"--export_dir={export}", f"--inputs={_SENTENCE.value}"),
            variables,
        ),
    ):
        yield f"t2t {name}", (*t2t, *name.split(), *arguments), weights


def measure(name, arguments, weights, other):
    """Measure a command here, in another checkout, and its peer."""
    processes = {"here": (arguments, harness.ROOT)}
    if weights:
        processes[PEER] = (("-c", READ, str(weights)), harness.ROOT)
    if other:
        processes[_AGAINST.value] = (arguments, other)
    turns = collections.defaultdict(list)
    for _ in range(_TURNS.value):
        for label, (command, folder) in processes.items():
            turns[label].append(seconds_to_first_line(command, folder))
    seconds = {label: min(values) for label, values in turns.items()}
    here = seconds.pop("here")
    for label, peer in (seconds or {"": None}).items():
        harness.report_beside(name, here, "s", label, peer)


def main(_):
    harness.print_machine()
    with tempfile.TemporaryDirectory() as name:
        folder, other = pathlib.Path(name), None
        if _AGAINST.value:
            other = pathlib.Path(_AGAINST.value).resolve()
            if not other.is_dir():
                other = folder / "other"
                harness.copy_commit(_AGAINST.value, other)
        for command in commands(folder):
            measure(*command, other)
    harness.print_json()


if __name__ == "__main__":
    app.run(main)
