"""Check that older TensorFlow runtimes answer exports as this one does.

    python -m scripts.release.check_runtimes FOLDER

It installs each older TensorFlow with its TF Text into FOLDER, unless it is
there, exports small models of every kind, and runs every signature in this
runtime and in the older ones. Strings, flags and lengths must be equal, floats
within a tolerance. The table from which the exporter derives `min_runtime`
must equal what the runtimes register; --write_table writes it. The last line
is JSON. The exit status is 1 after any difference.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

import keras
import numpy as np
from absl import app, flags

from t2t_repro import hparam, registry
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.runs.run import Run
from t2t_repro.serving import exporting, saved_model
from t2t_repro.text.sentence_piece import Bpe, Unigram
from t2t_repro.text.vocabulary_pair import Vocabularies

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
COUNTED = "exports", "outputs", "different", "largest_difference"
BATCHES = [SENTENCES, SENTENCES[:1], SENTENCES[1:2]]


def main(arguments):
    if len(arguments) != 2:
        raise app.UsageError("Give one FOLDER for the older runtimes.")
    folder = pathlib.Path(arguments[1]).resolve()
    pythons = [*(install(folder, version) for version in OLDER), sys.executable]
    with tempfile.TemporaryDirectory() as exports:
        exports = write_exports(pathlib.Path(exports))
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
    """Print a line for each signature of two probes; return them as dicts."""
    versions = {key: runtime[key] for key in ("tensorflow", "tensorflow_text")}
    rows = {}
    for export, signatures in reference["outputs"].items():
        found = runtime["outputs"][export]
        if "error" in found:
            print(f"{runtime['tensorflow']} {export}: {found['error']}")
        for name, expected in signatures.items():
            counts = dict.fromkeys(COUNTED, 0)
            row = rows.setdefault(name, versions | {"signature": name} | counts)
            row["exports"] += 1
            # A runtime that cannot run an export has no outputs.
            actual = found.get(name, [{}] * len(expected))
            for outputs, others in zip(expected, actual, strict=True):
                for key, values in outputs.items():
                    gap = compare_values(values, others.get(key))
                    row["outputs"] += 1
                    row["different"] += gap is None or gap > TOLERANCE
                    largest = row["largest_difference"]
                    row["largest_difference"] = max(largest, gap or 0)
    rows = [rows[name] for name in sorted(rows)]
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
    """Return whether the committed table differs from probes, oldest first.

    With `write`, write it instead.
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


# Small exports of every kind, which check_runtimes loads in older runtimes.
#
# Those of the run in tests/fixtures translate number words. The others have
# random weights: the models and vocabularies of tests/toys, variants of the
# Transformer, and an ensemble.

TESTS = pathlib.Path(__file__).parents[2] / "tests"
SOURCES = ["two birds sing", "the cat sat on the mat", "a dog ran today"] * 5
TARGETS = ["ZWEI VÖGEL", "DIE KATZE SAẞ", "QUAKT"] * 5
# Short: models with random weights rarely end an output.
_LENGTHS = {"extra_length": 5, "max_input_length": 100}
_SMALL = {
    "hidden_size": 16,
    "filter_size": 32,
    "num_heads": 2,
    "num_hidden_layers": 1,
    "max_length": 128,
}


class Random(NamedTuple):
    """Models with random weights."""

    hparams_set: str
    vocabularies: str  # a key of _vocabularies()
    hparams: dict = {}
    models: int = 1


HALVES = "float16", "bfloat16"  # dtypes of weights
# Exports of the run, and what they decode with.
OF_RUN = {
    "beam_search": {},
    "compiled": {"xla": "on"},
    **dict.fromkeys(HALVES, {}),
    "greedy": {"beam_size": 1, "raw_scores": True},
    "rules": {
        "min_length": 9,
        "no_repeat_ngram_size": 2,
        "coverage_penalty": 0.2,
    },
    "sampling": {"sampling_temp": 1.0, "sampling_keep_top_p": 0.9},
    "sampling_top_k": {"sampling_temp": 1.0, "sampling_keep_top_k": 9},
}
OF_RANDOM_WEIGHTS = {
    "ensemble": Random("tiny", "separate", models=2),
    "relative_positions": Random("transformer_relative", "shared"),
    "learned_positions": Random(
        "table3_e_learned_positions",
        "shared",
        {"restricted_attention": 3, "ffn_activation": "gelu"},
    ),
    "additive_attention": Random("base_additive", "separate"),
    "toy_gru": Random("toy_gru", "characters"),
    "bytenet": Random("bytenet_tiny", "shared"),
}


def write_exports(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write all exports; return {name: folder of the SavedModel}."""
    registry.load_definitions(TESTS / "toys")
    run = Run.open(TESTS / "fixtures" / "run" / "run")
    exports = {}
    for name, search in OF_RUN.items():
        exports[name] = exporting.write(
            run,
            folder / name,
            decode_hparams=hparam.DecodeHParams(**_LENGTHS | search),
            weights_dtype=name if name in HALVES else "float32",
        )
    vocabularies = _vocabularies()
    for name, kind in OF_RANDOM_WEIGHTS.items():
        pair = vocabularies[kind.vocabularies]
        exports[name] = saved_model.export(
            [_build(kind, pair, seed) for seed in range(kind.models)],
            pair,
            hparam.DecodeHParams(beam_size=3, **_LENGTHS),
            folder / name,
            card={},
        )
    return exports


def _vocabularies():
    """Return {name: vocabularies}."""
    characters = registry.vocabularies["characters"].value
    shared = Bpe.learn(SOURCES + TARGETS, 320)
    return {
        "shared": Vocabularies.shared(shared),
        "separate": Vocabularies(shared, Unigram.learn(TARGETS, 277)),
        "characters": Vocabularies(
            characters.learn(SOURCES, 90), characters.learn(TARGETS, 90)
        ),
    }


def _build(kind, vocabularies, seed):
    """Build a small model with random weights."""
    hparams = registry.build_hparams(kind.hparams_set)
    names = {field.name for field in dataclasses.fields(hparams)}
    settings = {name: _SMALL[name] for name in names & _SMALL.keys()}
    if not vocabularies.is_shared and "num_heads" in names:
        settings["shared_embedding_and_softmax_weights"] = False
    hparams = dataclasses.replace(hparams, **settings | kind.hparams)
    keras.utils.set_random_seed(seed)
    return building.build(hparams, **vocabularies.sizes)


if __name__ == "__main__":
    flags.DEFINE_bool("write_table", False, "Write the table of operations.")
    app.run(main)
