"""Process of bench_import that has transformers and CTranslate2."""

import json
import os
import pathlib
import shutil
import time

from scripts.benchmarks import harness

VOCAB_SIZE = 58_101  # of opus-mt-en-de


def write(settings):
    """Write a random model in the shape of opus-mt-en-de."""
    from scripts.release import random_marian

    folder = pathlib.Path(settings["folder"]) / "model"
    shutil.copytree(settings["tokenizer_dir"], folder)
    ids = json.loads((folder / "vocab.json").read_text("utf-8"))
    tokens = [token for token in ids if token != "<pad>"]
    tokens += [f"unused{i}" for i in range(len(tokens), VOCAB_SIZE - 1)]
    text = json.dumps({token: i for i, token in enumerate([*tokens, "<pad>"])})
    (folder / "vocab.json").write_text(text, "utf-8")
    model = random_marian.build(
        VOCAB_SIZE,
        seed=0,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
    )
    model.save_pretrained(folder)
    return 0


def convert(settings):
    """Convert the model by CTranslate2's own converter."""
    import ctranslate2

    folder = pathlib.Path(settings["folder"])
    converter = ctranslate2.converters.TransformersConverter(
        str(folder / "model")
    )
    converter.convert(str(folder / "ctranslate2"))
    return 0


def _lines_and_tokenizer(settings):
    import transformers

    folder = pathlib.Path(settings["folder"])
    lines = (folder / "lines.txt").read_text("utf-8").splitlines()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder / "model")
    return lines, tokenizer


def measure_transformers(settings):
    """Return sentences a second of generate()."""
    import torch
    import transformers

    lines, tokenizer = _lines_and_tokenizer(settings)
    model = transformers.MarianMTModel.from_pretrained(
        pathlib.Path(settings["folder"]) / "model"
    ).eval()

    def translate(batch):
        output = model.generate(
            **tokenizer(batch, return_tensors="pt", padding=True),
            num_beams=settings["beam_size"],
            min_new_tokens=settings["length"],
            max_new_tokens=settings["length"],
        )
        return tokenizer.batch_decode(output, skip_special_tokens=True)

    with torch.inference_mode():
        return _speed(translate, lines, settings["batch"])


def measure_threads(settings):
    """Return sentences a second of CTranslate2, a batch on all threads."""
    return _measure_ctranslate2(settings, 1, os.cpu_count())


def measure_workers(settings):
    """Return sentences a second of CTranslate2, a batch on each thread."""
    return _measure_ctranslate2(settings, os.cpu_count(), 1)


def _measure_ctranslate2(settings, workers, threads):
    import ctranslate2

    lines, tokenizer = _lines_and_tokenizer(settings)
    translator = ctranslate2.Translator(
        str(pathlib.Path(settings["folder"]) / "ctranslate2"),
        compute_type="float32",
        inter_threads=workers,
        intra_threads=threads,
    )

    def translate(batch):
        source = [
            tokenizer.convert_ids_to_tokens(ids)
            for ids in tokenizer(batch)["input_ids"]
        ]
        found = translator.translate_batch(
            source,
            max_batch_size=settings["batch"],
            beam_size=settings["beam_size"],
            min_decoding_length=settings["length"],
            max_decoding_length=settings["length"],
        )
        return tokenizer.batch_decode(
            [
                tokenizer.convert_tokens_to_ids(result.hypotheses[0])
                for result in found
            ]
        )

    return _speed(translate, lines, workers * settings["batch"])


def _speed(translate, lines, size):
    translate(lines[:size])
    start = time.perf_counter()
    for first in range(0, len(lines), size):
        translate(lines[first : first + size])
    return len(lines) / (time.perf_counter() - start)


if __name__ == "__main__":
    harness.run_measurement(
        {
            "write": write,
            "convert": convert,
            "transformers": measure_transformers,
            "CTranslate2, 1 worker": measure_threads,
            "CTranslate2, a worker for each core": measure_workers,
        }
    )
