"""Check that older TensorFlow runtimes answer exports as this one does.

    python -m scripts.release.check_runtimes FOLDER

It installs each older TensorFlow with its TF Text into FOLDER, unless it is
there, exports small models of every kind, and runs every signature in this
runtime and in the older ones. Strings, flags and lengths must be equal, floats
within a tolerance. The table from which the exporter derives `min_runtime`
must equal what the runtimes register; --write_table writes it. The last line
is JSON. The exit status is 1 after any difference.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from absl import app, flags

from scripts.release import runtime_exports
from t2t_repro.io import files
from t2t_repro.serving import saved_model

OLDER = ("2.19", "2.20")  # ascending
PACKAGES = ("tensorflow", "tensorflow-text")
PROBE = pathlib.Path(__file__).with_name("runtime_probe.py")
# Relative to the larger of 1 and the number: kernels may sum in another order.
TOLERANCE = 1e-5
# Bytes in Latin-1, as the probe reads them.
SENTENCES = [
    "two hundred and six",
    "",
    "forty-two birds",
    "x" * 100_000,  # longer than max_input_length
    "🐶 two ﬁve ½".encode().decode("latin-1"),
    "\xff\xfe not UTF-8",
    "\0",
    "one\ttwo\nthree",
]
LINE = (
    "TensorFlow {tensorflow}, TF Text {tensorflow_text}, {signature}: "
    "{different} of {outputs} outputs of {exports} exports differ, floats "
    "by at most {largest_difference:.1g}"
)
BATCHES = [SENTENCES, SENTENCES[:1], SENTENCES[1:2]]


def main(arguments):
    if len(arguments) != 2:
        raise app.UsageError("Give one FOLDER for the older runtimes.")
    folder = pathlib.Path(arguments[1]).resolve()
    pythons = [*(install(folder, version) for version in OLDER), sys.executable]
    with tempfile.TemporaryDirectory() as exports:
        exports = runtime_exports.write(pathlib.Path(exports))
        *older, reference = (probe(python, exports) for python in pythons)
    for name, outputs in reference["outputs"].items():
        if "error" in outputs:
            raise SystemExit(f"{name}: {outputs['error']}")
    rows = [row for runtime in older for row in compare(runtime, reference)]
    table_differs = check_table([*older, reference], flags.FLAGS.write_table)
    print(json.dumps(rows))
    sys.exit(table_differs or any(row["different"] for row in rows))


def install(folder, version):
    """Install TensorFlow and TF Text; return the path of their Python."""
    environment = folder / version
    python = environment / "bin" / "python"
    done = environment / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        packages = [f"{name}=={version}.*" for name in PACKAGES]
        pip = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *packages], check=True)
        done.touch()
    return python


def probe(python, exports):
    """Return what runtime_probe prints in a runtime."""
    request = {
        "exports": {name: str(path) for name, path in exports.items()},
        "batches": BATCHES,
    }
    finished = subprocess.run(
        [python, "-I", PROBE],  # -I: without this project
        check=True,
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(finished.stdout.splitlines()[-1])


def compare(runtime, reference):
    """Print a line for each signature in a runtime; return them as dicts.

    Args:
        runtime: result of probe() in an older runtime.
        reference: that in the runtime of the exporter.
    """
    counts = collections.defaultdict(collections.Counter)
    largest = collections.defaultdict(float)  # differences of floats
    for export, signatures in reference["outputs"].items():
        found = runtime["outputs"][export]
        if "error" in found:
            print(f"{runtime['tensorflow']} {export}: {found['error']}")
        for name, expected in signatures.items():
            counts[name]["exports"] += 1
            # A runtime that cannot run an export has no outputs.
            actual = found.get(name, [{}] * len(expected))
            for outputs, others in zip(expected, actual, strict=True):
                for key, values in outputs.items():
                    difference = compare_values(values, others.get(key))
                    counts[name]["outputs"] += 1
                    if difference is None or difference > TOLERANCE:
                        counts[name]["different"] += 1
                    largest[name] = max(largest[name], difference or 0)
    versions = {key: runtime[key] for key in ("tensorflow", "tensorflow_text")}
    rows = [
        {
            **versions,
            "signature": name,
            "exports": count["exports"],
            "outputs": count["outputs"],
            "different": count["different"],
            "largest_difference": largest[name],
        }
        for name, count in sorted(counts.items())
    ]
    for row in rows:
        print(LINE.format_map(row), flush=True)
    return rows


def compare_values(expected, actual):
    """Return the largest relative difference of floats; None if unequal.

    Args:
        expected: nested lists of one type.
        actual: those of another runtime; None if it has no such output.
    """
    if expected == actual:
        return 0.0
    expected, actual = np.array(expected), np.array(actual)
    if expected.dtype.kind != "f" or expected.shape != actual.shape:
        return None
    unequal = expected != actual  # excludes equal infinities
    expected, actual = expected[unequal], actual[unequal]
    scale = np.maximum(1, np.maximum(abs(expected), abs(actual)))
    with np.errstate(invalid="ignore"):  # infinity / infinity
        difference = float(np.max(abs(expected - actual) / scale))
    return difference if np.isfinite(difference) else None


def check_table(probes, write):
    """Return whether the committed table differs from the runtimes.

    Args:
        probes: results of probe(), oldest first.
        write: whether to write the table instead.
    """
    table = {"graph_def_versions": {}, "first_versions": {}}
    known = set(probes[0]["features"])
    for result in probes:
        version = ".".join(result["tensorflow"].split(".")[:2])
        table["graph_def_versions"][version] = result["graph_def_version"]
        new = set(result["features"]) - known
        known |= new
        table["first_versions"] |= {
            feature: version
            for feature in sorted(new)
            if not any(is_part(feature, other) for other in new)
        }
    if write:
        files.write_json(saved_model.TABLE, table)
        return False
    differs = files.read_json(saved_model.TABLE) != table
    print(
        "The table of operations is "
        + ("outdated: use --write_table." if differs else "up to date.")
    )
    return differs


def is_part(feature, other):
    """Return whether a feature is an attribute or dtype of another one."""
    return feature.startswith((f"{other}.", f"{other}="))


if __name__ == "__main__":
    flags.DEFINE_bool("write_table", False, "Write the table of operations.")
    app.run(main)
