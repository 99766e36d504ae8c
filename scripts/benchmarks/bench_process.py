"""What benchmarks measure in other processes: models of three sizes."""

import json
import pathlib
import subprocess
import sys

SCRIPTS = pathlib.Path(__file__).parent
SIZES = {
    "tiny": {
        "hidden_size": 128,
        "filter_size": 512,
        "num_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": 8_192,
    },
    "small": {
        "hidden_size": 256,
        "filter_size": 1024,
        "num_heads": 4,
        "num_hidden_layers": 3,
        "vocab_size": 8_192,
    },
    "base": {
        "hidden_size": 512,
        "filter_size": 2048,
        "num_heads": 8,
        "num_hidden_layers": 6,
        "vocab_size": 32_768,
    },
}


def last_json(*command):
    """The JSON that a process prints on its last line."""
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(found.stdout.splitlines()[-1])


def probe(script, measure, **settings):
    """A measure of bench_SCRIPT.py, which ends with bench_probe.run."""
    asked = json.dumps(settings | {"measure": measure})
    path = SCRIPTS / f"bench_{script}.py"
    return last_json(sys.executable, str(path), asked)
