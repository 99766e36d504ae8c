"""Benchmark harness: measured processes, timing and printed results."""

import argparse
import dataclasses
import datetime
import importlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
EOS = 1
SIZE = "hidden_size", "filter_size", "num_heads", "num_hidden_layers"
MODEL_SIZES = {
    name: dict(zip((*SIZE, "vocab_size"), sizes, strict=True))
    for name, sizes in {
        "tiny": (128, 512, 4, 2, 8_192),
        "small": (256, 1024, 4, 3, 8_192),
        "base": (512, 2048, 8, 6, 32_768),
        "nllb_600m": (1024, 4096, 16, 12, 256_206),
    }.items()
}
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}  # of Keras
_RESULTS = []
_PROBE = "--probe"


def define_sizes(*default):
    """Define --sizes, of which MODEL_SIZES has the names."""
    from absl import flags  # which the peers' Pythons may lack

    names = ", ".join(MODEL_SIZES)
    holder = flags.DEFINE_list("sizes", list(default), f"Of {names}.")
    flags.register_validator(
        holder, set(MODEL_SIZES).issuperset, f"must be some of {names}"
    )
    return holder


def argument_parser(description):
    """Return a parser whose --help begins with a module's docstring."""
    return argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def machine() -> str:
    """Return the date and a description of this machine."""
    return (
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} "
        f"cores, Python {platform.python_version()}"
    )


def report(name, value, unit, peer=None, ratio=None):
    """Print a result, beside that of a peer, and keep it for the JSON."""
    _RESULTS.append(
        dict(name=name, value=value, unit=unit, peer=peer, ratio=ratio)
    )
    comparison = f" = {ratio:.2f} x {peer}" if peer else ""
    print(f"{name}: {value:,.4g} {unit}{comparison}", flush=True)


def report_beside(name, value, unit, peer, peer_value):
    """Report a value beside that of a peer, or alone if that is None."""
    if peer_value is None:
        report(name, value, unit)
    else:
        peer = f"{peer} ({peer_value:,.4g})"
        report(name, value, unit, peer, value / peer_value)


def last_json(*command, **environment):
    """Run a command; return the JSON value on the last line it prints."""
    finished = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
    )
    return json.loads(finished.stdout.splitlines()[-1])


def measure_in_process(
    module, measure, environment=None, python=sys.executable, **settings
):
    """Return a measurement by a new Python process, `module --probe`.

    The memory and the threads of earlier measurements would disturb it here.

    Args:
        module: full name of a module that ends with run_measurement().
        measure: name of one of its measurements.
        environment: variables to set; None: none.
        python: the Python to run it with.
        **settings: JSON values.
    """
    arguments = json.dumps(settings | {"measure": measure})
    command = python, "-m", module, _PROBE, arguments
    return last_json(*command, **environment or {})


def has_module(python, name):
    """Return whether a Python has a module, without importing it."""
    code = "import importlib.util as u, sys; sys.exit(not u.find_spec(%r))"
    return subprocess.run([python, "-c", code % name]).returncode == 0


class Stored:
    """Measurements in a JSON file, in which each is stored when it is there.

    {name: {"settings": those of the measurement, "measured": its value}}
    """

    def __init__(self, path):
        """Open the file, which need not exist."""
        self._path, self.failed = pathlib.Path(path), []
        self._found = (
            json.loads(self._path.read_text()) if self._path.exists() else {}
        )

    def measure(self, name, function, **settings):
        """Return a stored measurement, or that of function(**settings).

        It is None if a process of the function fails: others come after it.
        """
        settings = json.loads(json.dumps(settings))
        found = self._found.get(name)
        if found and found["settings"] == settings:
            return found["measured"]
        print(f"Measuring {name}.", flush=True)
        start = time.perf_counter()
        try:
            measured = function(**settings)
        except subprocess.CalledProcessError as error:
            print(f"{name} failed: {error}", flush=True)
            self.failed.append(name)
            return None
        seconds = round(time.perf_counter() - start, 1)
        self._found[name] = {
            "date": str(datetime.date.today()),
            "seconds in all": seconds,
            "settings": settings,
            "measured": measured,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".tmp")
        partial.write_text(json.dumps(self._found, indent=1) + "\n")
        partial.replace(self._path)
        return measured


def is_probe():
    """Return whether this process is one of measure_in_process()."""
    return sys.argv[1:2] == [_PROBE]


def run_benchmark(main, measures=None, threading=None):
    """Run a benchmark, or the measurement that measure_in_process() names.

    The last line of a benchmark is a JSON list of its results, {name, value,
    unit, peer, ratio}. `main` may return an exit status.
    """
    if is_probe():
        return run_measurement(measures, threading)
    from absl import app  # which the peers' Pythons may lack

    from t2t_repro import errors

    def print_results(_):
        print(machine())
        try:
            status = main()
        except errors.UserError as error:
            status = f"Error: {error}"
        print(json.dumps(_RESULTS))
        return status

    return app.run(print_results)


def run_measurement(measures, threading=None):
    """Run the measurement that the command line names; print its JSON.

    Args:
        measures: {name: a function of the settings}.
        threading: tf.config.threading, to set the number of threads from the
            settings: "threads", if it is there, operations at the same time,
            with "intra_threads" threads each (by default as many).
    """
    settings = json.loads(sys.argv[2])
    if threading and "threads" in settings:
        threads = settings["threads"]
        intra_threads = settings.get("intra_threads", threads)
        threading.set_intra_op_parallelism_threads(intra_threads)
        threading.set_inter_op_parallelism_threads(threads)
    print(json.dumps(measures[settings["measure"]](settings)))


def best_of_turns(measures, turns, rate):
    """Call {name: function} in turns; return the best that each returned.

    Machines become slower or faster with time. `rate` is a function of what the
    functions return, and is highest for the best.
    """
    found = {name: [] for name in measures}
    for _ in range(turns):
        for name, measure in measures.items():
            found[name].append(measure())
    return {name: max(values, key=rate) for name, values in found.items()}


def time_calls(function, times, warm_up=1, clock=time.perf_counter):
    """Return the seconds of each of `times` calls, after others to warm up."""
    for _ in range(warm_up):
        function()
    seconds = []
    for _ in range(times):
        start = clock()
        function()
        seconds.append(clock() - start)
    return seconds


def time_and_memory(function, times):
    """Return "seconds" of calls, and "peak megabytes" of the process."""
    return {
        "seconds": time_calls(function, times),
        "peak megabytes": peak_megabytes(),
    }


def time_batches(search_of, settings):
    """Return {batch: {"first", "seconds"}} of searches of several batches.

    `search_of` returns a function of no arguments for the settings of one
    "batch". The first call of it, which may compile, is apart.
    """
    found = {}
    for batch in settings["batches"]:
        search = search_of(settings | {"batch": batch})
        (first,) = time_calls(search, 1, warm_up=0)
        seconds = time_calls(search, settings["times"], warm_up=0)
        found[batch] = {"first": first, "seconds": seconds}
    return found


def peak_megabytes():
    """Return the highest resident memory that this process has had, in MB.

    It includes Python, libraries, weights and whatever was built on the way.
    """
    status = pathlib.Path("/proc/self/status").read_text()  # proc(5)
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024 / 1e6


def random_inputs(settings):
    """Return random sentences [B, L] int32 that end with EOS."""
    shape = settings["batch"], settings["length"]
    generator = np.random.default_rng(0)
    inputs = generator.integers(3, settings["vocab_size"], shape, np.int32)
    inputs[:, -1] = EOS
    return inputs


def full_rows(settings):
    """Return rows as batches.assemble() does; each is one long sentence.

    Args:
        settings: "tokens" of each side, "length" of a row and "vocab_size".
    """
    length, vocab_size = settings["length"], settings["vocab_size"]
    shape = settings["tokens"] // length, length
    generator = np.random.default_rng(0)
    features = {}
    for side in ("inputs", "targets"):
        features[side] = generator.integers(2, vocab_size, shape, np.int32)
        features[f"{side}_segment"] = np.ones(shape, np.int32)
        features[f"{side}_position"] = np.tile(
            np.arange(length, dtype=np.int32), (shape[0], 1)
        )
    return features


def peak_matrix(settings):
    """Return the rows of a matrix whose product reaches a device's peak."""
    return 8_192 if settings["device"] == "gpu" else 1_024


def build_hparams(settings, **changes):
    """Return the settings' hparams set in their model size.

    Args:
        settings: may have "hparams_set", by default "base", and "hparams",
            values that differ from the set's.
        **changes: further values.
    """
    # Here, because the peers' Pythons may lack what the registry imports.
    from t2t_repro import registry

    # The problems would import TensorFlow, which JAX and PyTorch do without.
    registry.import_modules(importlib.import_module("t2t_repro.hparams"))
    changes |= {name: settings[name] for name in SIZE if name in settings}
    changes |= settings.get("hparams", {})
    hparams = registry.build_hparams(settings.get("hparams_set", "base"))
    return dataclasses.replace(hparams, **changes)
