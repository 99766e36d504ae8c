"""A trained run of ours translates, timed; for bench_decode.py.

python scripts/bench_decode_run.py SETTINGS.json

Prints one JSON value.
"""

import json
import pathlib
import time

import bench_decode_variants
import bench_probe
import tensorflow as tf

from t2t_repro import hparam, registry, runs
from t2t_repro.decoding import score, search, translate
from t2t_repro.serving import to_ctranslate2
from t2t_repro.text import parallel_files
from t2t_repro.text.vocabulary import EOS

SCORED_AT_ONCE = 32  # sentences


class Opened:
    """What is measured: a run's model on a file."""

    def __init__(self, settings):
        registry.load_definitions()
        run = runs.open_run(pathlib.Path(settings["output_dir"]))
        self.models, _ = runs.load_models(run)
        self.vocabularies = run.vocabularies
        self.lines = list(parallel_files.read_lines(settings["inputs"]))

    def translator(self, settings):
        hparams = hparam.DecodeHParams(beam_size=settings["beam_size"])
        return translate.Translator(self.models, self.vocabularies, hparams)


def convert(settings):
    """Writes the model for CTranslate2."""
    opened = Opened(settings)
    to_ctranslate2.export(
        opened.models,
        opened.vocabularies,
        hparam.DecodeHParams(),
        settings["folder"],
        card={},
    )


def measure_file(settings):
    """Seconds for the file, and its translations."""
    opened = Opened(settings)
    translator = opened.translator(settings)
    list(translator.translate(opened.lines[: settings["batch"]]))
    began = time.perf_counter()
    texts = [one.texts[0] for one in translator.translate(opened.lines)]
    seconds = time.perf_counter() - began
    tokens = sum(map(len, opened.vocabularies.target.encode(texts)))
    return {"seconds": seconds, "texts": texts, "tokens": tokens}


def measure_scores(settings):
    """Log-probabilities of outputs, given as ids without EOS."""
    opened = Opened(settings)
    outputs = json.loads(pathlib.Path(settings["outputs"]).read_text())
    pairs = list(
        zip(
            opened.vocabularies.source.encode(opened.lines),
            outputs,
            strict=True,
        )
    )
    scores = []
    for first in range(0, len(pairs), SCORED_AT_ONCE):
        part = pairs[first : first + SCORED_AT_ONCE]
        inputs = tf.ragged.constant([ids for ids, _ in part]).to_tensor()
        targets = tf.ragged.constant([ids + [EOS] for _, ids in part])
        found = score.sentence_log_probs(
            opened.models, inputs, targets.to_tensor()
        )
        scores += found.numpy().tolist()
    return scores


def measure_variants(settings):
    """How many outputs differ between ways to search, and how many are ties."""
    opened = Opened(settings)
    hparams = hparam.DecodeHParams(beam_size=settings["beam_size"])
    ids = opened.vocabularies.source.encode(
        opened.lines[: settings["compared"]]
    )
    rows = tf.ragged.constant(ids, dtype=tf.int32).to_tensor().numpy()
    expected = search.search(opened.models, tf.constant(rows), hparams)
    found = dict(bench_decode_variants.variants(opened.models, rows, hparams))
    if len(opened.models) == 1:
        found["no cache"] = bench_decode_variants.without_cache(
            opened.models[0], rows, hparams
        )
    return {
        name: bench_decode_variants.compare(one, expected)._asdict()
        for name, one in found.items()
    }


def measure_memory(settings):
    """Memory after a tenth of so many sentences, and after all."""
    opened = Opened(settings)
    translator, megabytes = opened.translator(settings), []
    for _ in range(0, settings["sentences"], len(opened.lines)):
        list(translator.translate(opened.lines))
        megabytes.append(bench_probe.resident_megabytes())
    return [megabytes[len(megabytes) // 10], megabytes[-1]]


bench_probe.run(
    {
        "convert": convert,
        "file": measure_file,
        "scores": measure_scores,
        "variants": measure_variants,
        "memory": measure_memory,
    },
    tf.config.threading,
)
