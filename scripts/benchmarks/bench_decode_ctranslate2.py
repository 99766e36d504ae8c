"""CTranslate2's searches, timed; for bench_decode.py.

python -m scripts.benchmarks.bench_decode_ctranslate2 SETTINGS.json

Prints one JSON value. A process of its own, without TensorFlow.
"""

import json
import pathlib
import time

import ctranslate2
import sentencepiece

from scripts.benchmarks import harness


def open_model(settings):
    """A folder of t2t_repro/serving/to_ctranslate2.py."""
    return ctranslate2.Translator(
        settings["folder"],
        compute_type="float32",
        inter_threads=settings["workers"],
        intra_threads=settings["threads"],
    )


def measure_search(settings):
    """Seconds of a batch for every worker, of one forced output length."""
    model, folder = open_model(settings), pathlib.Path(settings["folder"])
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    rows = harness.random_inputs(settings)[:, :-1]  # it adds EOS
    source = [[names[i] for i in row] for row in rows] * settings["workers"]
    return harness.time_calls(
        lambda: model.translate_batch(
            source,
            max_batch_size=settings["batch"],
            beam_size=settings["beam_size"],
            min_decoding_length=settings["length"],
            max_decoding_length=settings["length"],
        ),
        settings["times"],
    )


def measure_file(settings):
    """Seconds for a file; translations, their ids, unnormalised scores."""
    model = open_model(settings)
    pieces = sentencepiece.SentencePieceProcessor(
        model_file=f"{settings['folder']}/vocab.model"
    )
    lines = pathlib.Path(settings["inputs"]).read_text("utf-8").splitlines()

    def translate(lines):
        found = model.translate_batch(
            pieces.Encode(lines, out_type=str),
            max_batch_size=settings["batch"],
            beam_size=settings["beam_size"],
            length_penalty=settings["length_penalty"],
            # By default 1, and EOS out of the first softmax's sum.
            min_decoding_length=0,
            return_scores=True,
        )
        return found, pieces.Decode([one.hypotheses[0] for one in found])

    translate(lines[: settings["batch"]])
    began = time.perf_counter()
    found, texts = translate(lines)
    return {
        "seconds": time.perf_counter() - began,
        "texts": texts,
        "ids": [pieces.PieceToId(one.hypotheses[0]) for one in found],
        # The sum, over the length to the power of the penalty.
        "scores": [one.scores[0] for one in found],
    }


if __name__ == "__main__":
    harness.run_measurement({"search": measure_search, "file": measure_file})
