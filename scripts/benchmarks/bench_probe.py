"""What the processes that benchmarks start have in common."""

import dataclasses
import json
import pathlib
import resource
import sys
import time

import numpy as np

from t2t_repro import registry

EOS = 1


def timed(function, times):
    """Seconds of each of so many calls, after one that is not counted."""
    function()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return seconds


def resident_megabytes():
    """Memory of this process now."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def random_inputs(settings):
    """Sentences of a random model, [B, L], EOS last."""
    shape = settings["batch"], settings["length"]
    random = np.random.default_rng(0)
    inputs = random.integers(3, settings["vocab_size"], shape, np.int32)
    inputs[:, -1] = EOS
    return inputs


def hparams(settings, **changes):
    """Those of "base", in the size that the settings say."""
    registry.load_definitions()
    names = "hidden_size filter_size num_heads num_hidden_layers".split()
    changes |= {name: settings[name] for name in names}
    return dataclasses.replace(registry.build_hparams("base"), **changes)


def run(measures, threading=None):
    """Prints the JSON of the measure that the settings name.

    Args:
        measures: {name: a function of the settings}.
        threading: tf.config.threading, where the settings say the threads; and
            of one operation "intra_threads", if not all.
    """
    settings = json.loads(sys.argv[1])
    if threading:
        threads = settings["threads"]
        of_one = settings.get("intra_threads", threads)
        threading.set_intra_op_parallelism_threads(of_one)
        threading.set_inter_op_parallelism_threads(threads)
    print(json.dumps(measures[settings["measure"]](settings)))
