"""Process of bench_decode that translates with a trained run.

It prints one JSON value.
"""

import json
import pathlib
import time

import tensorflow as tf

from scripts.benchmarks import bench_decode_variants, harness
from t2t_repro import hparam, registry
from t2t_repro.decoding import score, search, translate
from t2t_repro.runs.run import load_models, open_run
from t2t_repro.serving import to_ctranslate2
from t2t_repro.text import parallel_files
from t2t_repro.text.vocabulary import EOS

SCORED_AT_ONCE = 32  # sentences


class RunAndText:
    """A run's models and vocabularies, with the lines of a file."""

    def __init__(self, settings):
        registry.load_definitions()
        run = open_run(pathlib.Path(settings["output_dir"]))
        self.models, _ = load_models(run)
        self.vocabularies = run.vocabularies
        self.lines = list(parallel_files.read_lines(settings["inputs"]))

    def translator(self, settings):
        hparams = hparam.DecodeHParams(beam_size=settings["beam_size"])
        return translate.Translator(self.models, self.vocabularies, hparams)


def convert(settings):
    """Write the model for CTranslate2."""
    run = RunAndText(settings)
    to_ctranslate2.export(
        run.models,
        run.vocabularies,
        hparam.DecodeHParams(),
        settings["folder"],
        card={},
    )


def measure_file(settings):
    """Translate the file; return seconds, texts and number of subwords."""
    run = RunAndText(settings)
    translator = run.translator(settings)
    list(translator.translate(run.lines[: settings["batch"]]))
    start = time.perf_counter()
    texts = [result.texts[0] for result in translator.translate(run.lines)]
    seconds = time.perf_counter() - start
    tokens = sum(map(len, run.vocabularies.target.encode(texts)))
    return {"seconds": seconds, "texts": texts, "tokens": tokens}


def measure_scores(settings):
    """Return log-probabilities of outputs, which are ids without EOS."""
    run = RunAndText(settings)
    outputs = json.loads(pathlib.Path(settings["outputs"]).read_text())
    pairs = list(
        zip(
            run.vocabularies.source.encode(run.lines),
            outputs,
            strict=True,
        )
    )
    scores = []
    for first in range(0, len(pairs), SCORED_AT_ONCE):
        batch = pairs[first : first + SCORED_AT_ONCE]
        inputs = tf.ragged.constant([ids for ids, _ in batch]).to_tensor()
        targets = tf.ragged.constant([ids + [EOS] for _, ids in batch])
        log_probs = score.sentence_log_probs(
            run.models, inputs, targets.to_tensor()
        )
        scores += log_probs.numpy().tolist()
    return scores


def measure_variants(settings):
    """Count the outputs that each variant of the search changes, and ties."""
    run = RunAndText(settings)
    hparams = hparam.DecodeHParams(beam_size=settings["beam_size"])
    ids = run.vocabularies.source.encode(run.lines[: settings["compared"]])
    rows = tf.ragged.constant(ids, dtype=tf.int32).to_tensor().numpy()
    expected = search.search(run.models, tf.constant(rows), hparams)
    results = dict(bench_decode_variants.variants(run.models, rows, hparams))
    if len(run.models) == 1:
        results["no cache"] = bench_decode_variants.without_cache(
            run.models[0], rows, hparams
        )
    return {
        name: bench_decode_variants.compare(result, expected)._asdict()
        for name, result in results.items()
    }


def measure_memory(settings):
    """Return MB of memory after a tenth of the sentences, and after all."""
    run = RunAndText(settings)
    translator, megabytes = run.translator(settings), []
    for _ in range(0, settings["sentences"], len(run.lines)):
        list(translator.translate(run.lines))
        megabytes.append(harness.resident_megabytes())
    return [megabytes[len(megabytes) // 10], megabytes[-1]]


if __name__ == "__main__":
    harness.run_measurement(
        {
            "convert": convert,
            "file": measure_file,
            "scores": measure_scores,
            "variants": measure_variants,
            "memory": measure_memory,
        },
        tf.config.threading,
    )
