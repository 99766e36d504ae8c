"""Benchmark of data: encoding, packing, planning, batches and memory.

    python -m scripts.benchmarks.bench_data \\
        --text=train.en:train.de --packed=news:news.en:news.de

Ratios compare two measurements of the same run. The last line is a JSON list of
{name, value, unit, peer, ratio}.
"""

import itertools
import pathlib
import tempfile
import threading
import time

import numpy as np
import sentencepiece
import tensorflow as tf
from absl import flags

from scripts.benchmarks import harness
from t2t_repro.data import (
    batch_plan,
    batches,
    corpus,
    encode,
    engines,
    generate,
    manifest,
)
from t2t_repro.data.settings import CorpusSettings
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import Bpe

# Opening, planning and reading a corpus, in a process of its own: memory left
# behind by another measurement would hide what this one takes.

STEPS = 400  # batches of 25,000 tokens on each side


class PeakMemory(threading.Thread):
    """Thread that reads the memory without mapped files every 10 ms."""

    def __init__(self):
        super().__init__(daemon=True)
        self.base = self.highest = harness.megabytes("RssAnon")
        self._done = threading.Event()

    def run(self):
        while not self._done.wait(0.01):
            self.highest = max(self.highest, harness.megabytes("RssAnon"))

    def growth(self):
        """Stop the thread; return the highest value minus the first, in MB."""
        self._done.set()
        self.join()
        return self.highest - self.base


def read_batches(mapped, plan, steps):
    """Read `steps` batches through tf.data; return their real tokens."""
    dataset = batches.training_dataset(
        mapped, plan, 0, steps, tf.distribute.InputContext()
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    for _ in dataset.with_options(options):
        pass
    return sum(
        harness.num_tokens(mapped, plan.batch(step)) for step in range(steps)
    )


def measure_corpus(settings):
    """Return planning time, speed, CPU and memory for a corpus of shards."""
    # TensorFlow allocates its memory before the measurement begins.
    for _ in tf.data.Dataset.range(10).prefetch(2):
        pass
    peak = PeakMemory()
    peak.start()
    start = time.perf_counter()
    mapped = corpus.Corpus([pathlib.Path(path) for path in settings["shards"]])
    hparams = harness.build_hparams(
        settings, batching=settings["batching"], reshuffle_buckets=False
    )
    plan = batch_plan.build(mapped.lengths, hparams, seed=0)
    planned = time.perf_counter()
    read_batches(mapped, plan, 20)  # loads the files into the page cache
    reading, cpu = time.perf_counter(), time.process_time()
    tokens = read_batches(mapped, plan, STEPS)
    seconds = time.perf_counter() - reading
    cpu = time.process_time() - cpu
    return {
        "planning": planned - start,
        "batches through tf.data": tokens / seconds,
        "CPU of a batch": cpu / STEPS * 1e6,
        "memory, not mapped": peak.growth(),
    }


_TEXT = flags.DEFINE_multi_string(
    "text",
    None,
    "INPUTS:TARGETS, aligned files. They are encoded, and repeated to make the "
    "large corpora.",
    required=True,
)
_PACKED = flags.DEFINE_multi_string(
    "packed",
    [],
    "NAME:INPUTS:TARGETS, aligned files to pack, those of one NAME together.",
)
_WORKERS = flags.DEFINE_integer("num_workers", 2, "Number of encoding threads.")

SIZES = (100_000, 400_000, 1_600_000, 4_000_000)  # pairs
VOCAB_SIZE = 8_000
ROW_LENGTH = 256


def read_all_pairs(names):
    """Return all pairs of files named as "INPUTS:TARGETS"."""
    return [
        pair
        for files in names
        for pair in parallel_files.read_pairs(
            *map(pathlib.Path, files.split(":"))
        )
    ]


def measure_encoding(folder, pairs):
    """Measure reading, encoding and writing of text.

    The peer is SentencePiece's own call for many sentences.
    """
    generated = generate.generate(
        folder,
        {"train": lambda: pairs},
        CorpusSettings(vocab_size=VOCAB_SIZE),
        {},
    )
    vocabularies = manifest.open_vocabularies(folder)
    encoder = encode.Encoder(vocabularies, ROW_LENGTH)
    text = {
        key: generated["splits"]["train"][key]
        for key in ("read", "text_sha256")
    }

    def encode_split():
        for path in folder.glob("*.arrow"):
            path.unlink()
        encode.encode_split(
            folder,
            "train",
            (pair for pair in read_all_pairs(_TEXT.value)),
            text,
            encoder,
            engines.ThreadEngine(_WORKERS.value),
            generate.SHARD_PAIRS,
        )

    processor = sentencepiece.SentencePieceProcessor(
        model_proto=vocabularies.source.model
    )
    lines = list(itertools.chain.from_iterable(pairs))

    def encode_lines():
        processor.Encode(lines, num_threads=_WORKERS.value)

    peer, rate = (
        len(pairs) / min(harness.time_calls(function, 2))
        for function in (encode_lines, encode_split)
    )
    name = f"encoding, {_WORKERS.value} workers"
    harness.report(
        name, rate, "pairs/s", "SentencePiece's batch call", rate / peer
    )


def measure_packing(name, pairs):
    """Measure the slots of rows, with a vocabulary learned from the text."""
    lines = itertools.chain.from_iterable(pairs)
    vocabulary = Bpe.learn(lines, VOCAB_SIZE)
    lengths = np.array(
        [
            list(map(len, vocabulary.encode(side)))
            for side in zip(*pairs, strict=True)
        ]
    )
    lengths = lengths[:, lengths.max(axis=0) <= ROW_LENGTH]
    lengths = np.random.default_rng(0).permutation(lengths, axis=1)
    tokens = lengths.sum(axis=1)

    def slots(row_lengths):
        rows = batch_plan.pack(*lengths, row_lengths).max() + 1
        return rows * sum(row_lengths)

    ours = slots(batch_plan.packed_row_lengths(*tokens, ROW_LENGTH))
    harness.report(
        f"packed rows, {name}",
        ours / tokens.sum(),
        "slots per token",
        "rows of equal lengths",
        ours / slots((ROW_LENGTH, ROW_LENGTH)),
    )


def repeat(folder, pairs):
    """Write and yield shards of so many random pairs of a corpus."""
    small = manifest.open_corpus(folder, "train")
    sentences = {side: small.sentences(side) for side in corpus.SIDES}
    generator = np.random.default_rng(0)
    for first in range(0, pairs, generate.SHARD_PAIRS):
        count = min(generate.SHARD_PAIRS, pairs - first)
        rows = generator.integers(len(small), size=count).tolist()
        ids = {
            side: [lists[i] for i in rows] for side, lists in sentences.items()
        }
        path = folder / f"{pairs:08d}-{first:08d}.arrow"
        corpus.write_shard(path, ids, {}, VOCAB_SIZE)
        yield path


def measure_corpora(folder):
    """Measure planning, batches and memory for corpora of growing size."""
    figures = {}
    for size in SIZES:
        shards = [str(path) for path in repeat(folder, size)]
        for batching in ("packed", "bucketed"):
            figures[batching, size] = harness.measure_in_process(
                "scripts.benchmarks.bench_data",
                "corpus",
                batching=batching,
                shards=shards,
            )
    units = {
        "planning": "s",
        "batches through tf.data": "real tokens/s",
        "CPU of a batch": "us",
        "memory, not mapped": "MB",
    }
    for (batching, size), measured in figures.items():
        for name, unit in units.items():
            least, value = figures[batching, SIZES[0]][name], measured[name]
            label = f"{name}, {batching}, {size:,} pairs"
            if size == SIZES[0]:
                harness.report(label, value, unit)
            else:
                peer = f"{SIZES[0]:,} pairs"
                harness.report(label, value, unit, peer, value / least)


def main():
    pairs = read_all_pairs(_TEXT.value)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        measure_encoding(folder, pairs)
        measure_corpora(folder)
    named = [files.split(":", 1) for files in _PACKED.value]
    for name in dict.fromkeys(name for name, _ in named):
        files = [files for other, files in named if other == name]
        measure_packing(name, read_all_pairs(files))


if __name__ == "__main__":
    harness.run_benchmark(main, {"corpus": measure_corpus})
