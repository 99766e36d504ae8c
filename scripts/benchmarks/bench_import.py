"""Benchmark of an imported model beside the systems that it comes from.

    python -m scripts.benchmarks.bench_import --peer_python=PEERS/bin/python \\
        --tokenizer_dir=opus-mt-en-mg --text=train.en

A random MarianMTModel in the shape of opus-mt-en-de (6 + 6 layers, 512 wide,
58,101 tokens) translates sentences of LENGTH subwords into outputs of twice
that length, by beam search: by the SavedModel of the imported run, by
transformers, and by CTranslate2 after its own conversion. All have float32 and
as many threads as there are cores. They take turns, each in a process of its
own, and a ratio is the median of the turns'.

--peer_python has torch, transformers and ctranslate2 (pip install torch
transformers ctranslate2 sentencepiece sacremoses). check_huggingface says where
the tokenizer is from.
"""

import json
import pathlib
import statistics
import tempfile

from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro import hparam, registry
from t2t_repro.importing import huggingface, run_writer
from t2t_repro.runs import run
from t2t_repro.serving import exporting

_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python that has the peers.", required=True
)
_TOKENIZER_DIR = flags.DEFINE_string(
    "tokenizer_dir", None, "Folder of the tokenizer's files.", required=True
)
_TEXT = flags.DEFINE_string(
    "text", None, "File with a sentence per line.", required=True
)
_SENTENCES = flags.DEFINE_integer("sentences", 64, "Sentences of a turn.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sentences of a batch.")
_TURNS = flags.DEFINE_integer("turns", 3, "Turns of each system.")
_BEAMS = flags.DEFINE_integer("beam_size", 4, "Beams.")

LENGTH = 16  # subwords of an input, with EOS; outputs have twice as many
OURS = "imported SavedModel"
PEERS = (
    "transformers",
    "CTranslate2, 1 worker",
    "CTranslate2, a worker for each core",
)


def main(_):
    harness.print_machine()
    registry.load_definitions()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        settings = {
            "folder": str(folder),
            "tokenizer_dir": _TOKENIZER_DIR.value,
            "beam_size": _BEAMS.value,
            "batch": _BATCH.value,
            "length": 2 * LENGTH,
        }
        _measure_peer("write", settings)
        run = _import(folder)
        write_lines(run, folder / "lines.txt")
        export(run, folder / "export")
        _measure_peer("convert", settings)
        speeds = {name: [] for name in (OURS, *PEERS)}
        for _ in range(_TURNS.value):
            speeds[OURS].append(
                harness.measure_in_process(
                    "scripts.benchmarks.bench_import_run", "export", **settings
                )
            )
            for name in PEERS:
                speeds[name].append(_measure_peer(name, settings))
    report(speeds)
    harness.print_json()


def _measure_peer(measure, settings):
    arguments = json.dumps(settings | {"measure": measure})
    module = "scripts.benchmarks.bench_import_peers"
    return harness.last_json(_PEER_PYTHON.value, "-m", module, arguments)


def _import(folder):
    found = huggingface.read(folder / "model")
    run_writer.write(found, "huggingface", folder / "run", "en-mg")
    return run.open_run(folder / "run")


def write_lines(run, path):
    """Write lines of the text that have LENGTH subwords."""
    lines = pathlib.Path(_TEXT.value).read_text("utf-8").splitlines()
    encoded = run.vocabularies.source.encode(lines)
    fitting = [
        line
        for line, ids in zip(lines, encoded, strict=True)
        if len(ids) == LENGTH
    ][: _SENTENCES.value]
    if len(fitting) < _SENTENCES.value:
        raise app.UsageError(
            f"{_TEXT.value} has {len(fitting)} lines of {LENGTH} subwords; "
            f"{_SENTENCES.value} are needed."
        )
    path.write_text("".join(f"{line}\n" for line in fitting), "utf-8")


def export(run, folder):
    """Export the run with outputs of a fixed length."""
    search = hparam.DecodeHParams(
        beam_size=_BEAMS.value,
        alpha=1.0,
        length_penalty_offset=0,
        min_length=2 * LENGTH,
        extra_length=LENGTH,
    )
    exporting.write(run, folder, decode_hparams=search)


def report(speeds):
    """Report sentences a second, and the ratios of ours to the peers'."""
    median = statistics.median(speeds[OURS])
    for name, values in speeds.items():
        harness.report(name, statistics.median(values), "sentences/s")
        if name == OURS:
            continue
        ratio = statistics.median(
            ours / theirs
            for ours, theirs in zip(speeds[OURS], values, strict=True)
        )
        harness.report(f"{OURS} / {name}", median, "sentences/s", name, ratio)


if __name__ == "__main__":
    app.run(main)
