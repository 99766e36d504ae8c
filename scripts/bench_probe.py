"""What the processes that benchmarks start have in common."""

import json
import pathlib
import resource
import sys
import time

import numpy as np

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


def run(measures):
    """Prints the JSON of the measure that the settings name."""
    settings = json.loads(sys.argv[1])
    print(json.dumps(measures[settings["measure"]](settings)))
