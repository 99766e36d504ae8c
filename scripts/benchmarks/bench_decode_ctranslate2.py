"""Process of bench_decode that searches with CTranslate2, without TensorFlow.

It prints one JSON value.
"""

import json
import pathlib
import time

import ctranslate2
import sentencepiece

from scripts.benchmarks import harness


def open_model(settings):
    """Open a folder that serving/to_ctranslate2.py wrote."""
    return ctranslate2.Translator(
        settings["folder"],
        compute_type="float32",
        inter_threads=settings["workers"],
        intra_threads=settings["threads"],
    )


def measure_search(settings):
    """Return seconds and memory of searches at one forced output length.

    Every worker searches one batch.
    """
    model, folder = open_model(settings), pathlib.Path(settings["folder"])
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    rows = harness.random_inputs(settings)[:, :-1]  # CTranslate2 adds EOS
    source = [[names[i] for i in row] for row in rows] * settings["workers"]
    return harness.time_and_memory(
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
    """Translate a file; return seconds and texts."""
    model = open_model(settings)
    pieces = sentencepiece.SentencePieceProcessor(
        model_file=f"{settings['folder']}/vocab.model"
    )
    lines = pathlib.Path(settings["inputs"]).read_text("utf-8").splitlines()

    def translate(lines):
        results = model.translate_batch(
            pieces.Encode(lines, out_type=str),
            max_batch_size=settings["batch"],
            beam_size=settings["beam_size"],
            length_penalty=settings["length_penalty"],
            # The default of 1 removes EOS from the first softmax.
            min_decoding_length=0,
        )
        return pieces.Decode([result.hypotheses[0] for result in results])

    translate(lines[: settings["batch"]])
    start = time.perf_counter()
    texts = translate(lines)
    return {"seconds": time.perf_counter() - start, "texts": texts}


if __name__ == "__main__":
    harness.run_measurement({"search": measure_search, "file": measure_file})
