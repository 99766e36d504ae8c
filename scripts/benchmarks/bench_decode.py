"""Benchmark of decoding, with CTranslate2 on the same weights as the peer.

    python -m scripts.benchmarks.bench_decode \\
        --output_dir=RUN --inputs=FILE --references=FILE

Models with random weights search at one forced output length. If RUN is given,
its model also translates all of FILE. Our search and CTranslate2, both in
float32, take turns, and the best turn of each counts. The last line is a JSON
list of {name, value, unit, peer, ratio}.
"""

import collections
import json
import pathlib
import statistics
import tempfile

import sacrebleu
from absl import app, flags

from scripts.benchmarks import harness

_SIZES = flags.DEFINE_list("sizes", ["small", "base"], "Model sizes.")
_TURNS = flags.DEFINE_integer("turns", 2, "Turns of each library.")
_TIMES = flags.DEFINE_integer("times", 3, "Timed searches in each turn.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Trained run.")
_INPUTS = flags.DEFINE_string(
    "inputs", None, "File of sentences for the run to translate."
)
_REFERENCES = flags.DEFINE_string(
    "references", None, "File of their reference translations."
)
_SENTENCES = flags.DEFINE_integer(
    "sentences", 20_000, "Sentences after which memory is measured."
)
_COMPARED = flags.DEFINE_integer(
    "compared",
    64,
    "Sentences that are translated with every variant of the search.",
)

THREADS = 2
# The decoder's settings for a file: concurrent operations, one thread each.
OURS = {"threads": THREADS, "intra_threads": 1}
# The decoder's for single sentences: devices.choose_threads_for_one_sentence().
OURS_FOR_ONE = {
    "tiny": {"threads": 1},
    "small": {"threads": 1},
    "base": {"threads": THREADS},
}
COMMON = {"beam_size": 4, "batch": 32, "length": 30}
# Types of operations, grouped by purpose. Gathers read the caches, and also
# ids, scores and embeddings, which are much smaller.
KINDS = {
    "matrix products": "MatMul _FusedMatMul FusedMatMul Einsum BatchMatMul "
    "BatchMatMulV2 BatchMatMulV3",
    "softmax and top-k": "Softmax LogSoftmax TopKV2",
    "reordering of caches (gathers)": "GatherV2 GatherNd ResourceGather",
    "the loop itself": "Enter Exit Merge Switch NextIteration LoopCond",
}


def run(script, measure, **settings):
    """Return a measurement of the process bench_decode_SCRIPT."""
    return harness.measure_in_process(
        f"scripts.benchmarks.bench_decode_{script}", measure, **settings
    )


def layouts(threads):
    """Yield name, workers and threads per worker for CTranslate2."""
    yield "CTranslate2", 1, threads
    if threads > 1:
        yield f"CTranslate2, {threads} workers", threads, 1


def measure_speed(name, settings, ours, threads):
    """Measure sentences per second and memory at one forced output length.

    Args:
        name: name of the printed results.
        settings: settings of the model and the search.
        ours: our threads.
        threads: CTranslate2's threads; one is fastest for one sentence.
    """
    settings = settings | {"times": _TIMES.value}
    turns = collections.defaultdict(list)
    for _ in range(_TURNS.value):
        turns["ours"].append(run("probe", "search", **settings | ours))
        for layout, workers, each in layouts(threads):
            peer = settings | {"workers": workers, "threads": each}
            measured = run("ctranslate2", "search", **peer)
            turns[layout].append(measured | {"workers": workers})

    def rate(measured):
        sentences = settings["batch"] * measured.get("workers", 1)
        return sentences / statistics.median(measured["seconds"])

    fastest = {layout: max(runs, key=rate) for layout, runs in turns.items()}
    best = fastest.pop("ours")
    tokens = rate(best) * settings["length"]
    harness.report(f"{name}: target tokens", tokens, "tokens/s")
    for layout, theirs in fastest.items():
        harness.report_beside(
            name, rate(best), "sentences/s", layout, rate(theirs)
        )
        harness.report_beside(
            f"{name}: peak memory",
            best["peak megabytes"],
            "MB",
            layout,
            theirs["peak megabytes"],
        )


def measure_cache(name, settings):
    """Measure a search with and without a cache.

    Without a cache, each step decodes from the first position.
    """
    settings = settings | {"batch": 16, "length": 60}
    ours = min(run("probe", "search", times=3, **settings | OURS)["seconds"])
    settings["threads"] = THREADS  # the operations without cache are large
    without = min(run("probe", "without cache", times=1, **settings))
    peer = f"without cache ({16 / without:.3g})"
    label = f"{name}: 16 sentences of 60 subwords"
    harness.report(label, 16 / ours, "sentences/s", peer, without / ours)


def measure_steps(name, settings):
    """Measure a late step of a search relative to an early one."""
    settings = settings | {"batch": 8, "length": 110, "threads": THREADS}
    seconds = run("probe", "steps", times=3, **settings)
    early, late = (statistics.median(seconds[i - 5 : i + 5]) for i in (10, 100))
    harness.report(
        f"{name}: step 100", late * 1e3, "ms", "step 10", late / early
    )


def measure_profile(name, settings):
    """Measure the share of each kind of operation, on one thread."""
    profile = run("probe", "profile", threads=1, **settings)
    used, whole = collections.Counter(profile["operations"]), profile["seconds"]
    # The remaining time passes between operations, much of it due to tracing.
    between = whole - sum(used.values())
    for kind, types in KINDS.items():
        seconds = sum(used.pop(name, 0) for name in types.split())
        harness.report(f"{name}: {kind}", seconds / whole * 100, "%")
    harness.report(f"{name}: between operations", between / whole * 100, "%")
    for kind, seconds in used.most_common(3):
        harness.report(f"{name}: {kind}", seconds / whole * 100, "%")


def measure_random_model(size, folder):
    """Run all measurements that need no training."""
    settings = (
        COMMON | harness.MODEL_SIZES[size] | {"folder": str(folder / size)}
    )
    run("probe", "convert", threads=THREADS, **settings)
    measure_speed(f"{size}, batch 32, 2 threads", settings, OURS, THREADS)
    one = settings | {"batch": 1}
    measure_speed(f"{size}, batch 1", one, OURS_FOR_ONE[size], 1)
    measure_cache(size, settings)
    measure_steps(size, settings)
    measure_profile(size, settings)


def measure_file(settings):
    """Measure speed and BLEU of a whole file, with both libraries."""
    ours, theirs = [], collections.defaultdict(list)
    for _ in range(_TURNS.value):
        ours.append(run("run", "file", **settings | OURS))
        for layout, workers, each in layouts(THREADS):
            peer = settings | {"workers": workers, "threads": each}
            # CTranslate2 divides scores by length ** length_penalty.
            translated = run("ctranslate2", "file", length_penalty=0.6, **peer)
            theirs[layout].append(translated)
    best = min(ours, key=lambda translated: translated["seconds"])
    rate = len(best["texts"]) / best["seconds"]
    tokens = best["tokens"] / best["seconds"]
    harness.report("file: target tokens", tokens, "tokens/s")
    for layout, turns in theirs.items():
        seconds = min(turn["seconds"] for turn in turns)
        peer_rate = len(best["texts"]) / seconds
        harness.report_beside("file", rate, "sentences/s", layout, peer_rate)
    if _REFERENCES.value:
        text = pathlib.Path(_REFERENCES.value).read_text("utf-8")
        references = [text.split("\n")[:-1]]
        our_bleu, peer_bleu = (
            sacrebleu.corpus_bleu(texts, references).score
            for texts in (best["texts"], theirs["CTranslate2"][0]["texts"])
        )
        harness.report_beside(
            "file: BLEU", our_bleu, "13a", "CTranslate2", peer_bleu
        )


def measure_agreement(settings, folder):
    """Measure agreement with CTranslate2.

    Greedy outputs are compared, and the log-probabilities that both give to
    the outputs of CTranslate2's beam search.
    """
    peer = settings | {"workers": 1, "length_penalty": 0.0}
    greedy = {"beam_size": 1}
    ours = run("run", "file", **settings | greedy)["texts"]
    theirs = run("ctranslate2", "file", **peer | greedy)["texts"]
    pairs = list(zip(ours, theirs, strict=True))
    for number, (our_text, peer_text) in enumerate(pairs, 1):
        if our_text != peer_text:
            print(f"  {number} ours:        {our_text}")
            print(f"  {number} CTranslate2: {peer_text}")
    agreed = sum(ours == theirs for ours, theirs in pairs) / len(pairs) * 100
    harness.report("greedy outputs that agree", agreed, "%")
    searched = run("ctranslate2", "file", **peer)
    outputs = folder / "outputs.json"
    outputs.write_text(json.dumps(searched["ids"]))
    scores = run("run", "scores", outputs=str(outputs), **settings)
    differences = [
        abs(ours - theirs)
        for ours, theirs in zip(scores, searched["scores"], strict=True)
    ]
    harness.report(
        "largest difference of log-probabilities", max(differences), "nats"
    )


def measure_variants(settings):
    """Count outputs that batches, order, padding, XLA or the cache change.

    A tie is an output whose best scores are less than 1e-5 apart: rounding
    decides.
    """
    compared = run("run", "variants", compared=_COMPARED.value, **settings)
    for name, counts in compared.items():
        unit = f"of {counts['sentences']}"
        harness.report(f"{name}: other outputs", counts["different"], unit)
        harness.report(f"{name}: of these, ties", counts["ties"], "")


def measure_memory(settings):
    """Measure the growth of memory with the number of sentences."""
    early, late = run("run", "memory", sentences=_SENTENCES.value, **settings)
    name = f"memory after {_SENTENCES.value:,} sentences"
    harness.report(name, late, "MB", "a tenth of them", late / early)


def main(_):
    harness.print_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for size in _SIZES.value:
            measure_random_model(size, folder)
        if _OUTPUT_DIR.value:
            settings = COMMON | {
                "threads": THREADS,
                "output_dir": _OUTPUT_DIR.value,
                "inputs": _INPUTS.value,
                "folder": str(folder / "run"),
            }
            run("run", "convert", **settings)
            measure_file(settings)
            measure_agreement(settings, folder)
            measure_variants(settings)
            measure_memory(settings)
    harness.print_json()


if __name__ == "__main__":
    app.run(main)
