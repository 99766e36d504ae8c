"""Benchmark of decoding, with CTranslate2 on the same weights as the peer.

    python -m scripts.benchmarks.bench_decode \\
        --output_dir=RUN --inputs=FILE --references=FILE

Models of random weights search at one forced output length; a trained RUN
translates a whole FILE (left out without one). Ours and CTranslate2's, in
float32, take turns, and the best of each counts. The last line is a JSON list
of {name, value, unit, peer, ratio}.
"""

import collections
import json
import pathlib
import statistics
import tempfile

import sacrebleu
from absl import app, flags

from scripts.benchmarks import harness

_SIZES = flags.DEFINE_list("sizes", ["small", "base"], "Of models.")
_TURNS = flags.DEFINE_integer("turns", 2, "Turns of each.")
_TIMES = flags.DEFINE_integer("times", 3, "Searches that are timed, each turn.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "A run of the trainer.")
_INPUTS = flags.DEFINE_string("inputs", None, "Sentences for it.")
_REFERENCES = flags.DEFINE_string("references", None, "Their translations.")
_SENTENCES = flags.DEFINE_integer(
    "sentences", 20_000, "Sentences after which memory is measured."
)
_COMPARED = flags.DEFINE_integer(
    "compared", 64, "Sentences that are searched in all ways."
)

THREADS = 2
# As decoder has it for a file: operations at the same time, a thread for each.
OURS = {"threads": THREADS, "intra_threads": 1}
# And for a conversation: TensorFlow's own way.
OURS_FOR_ONE = {"threads": THREADS}
COMMON = {"beam_size": 4, "batch": 32, "length": 30}
# Types of operations, by what they are for. A gather is of caches, or of ids,
# scores and embeddings, which are small beside them.
KINDS = {
    "matrix products": "MatMul _FusedMatMul FusedMatMul Einsum BatchMatMul "
    "BatchMatMulV2 BatchMatMulV3",
    "softmax and top-k": "Softmax LogSoftmax TopKV2",
    "reordering of caches (gathers)": "GatherV2 GatherNd ResourceGather",
    "the loop itself": "Enter Exit Merge Switch NextIteration LoopCond",
}


def run(script, measure, **settings):
    """What a process measures."""
    return harness.measure_in_process(
        f"scripts.benchmarks.bench_decode_{script}", measure, **settings
    )


def layouts(threads):
    """CTranslate2's: name, workers, and threads of each."""
    yield "CTranslate2", 1, threads
    if threads > 1:
        yield f"CTranslate2, {threads} workers", threads, 1


def measure_speed(name, settings, threads):
    """Sentences a second at one forced output length.

    Args:
        threads: of CTranslate2, to which one is best for one sentence.
    """
    settings = settings | {"times": _TIMES.value}
    ours = OURS if settings["batch"] > 1 else OURS_FOR_ONE
    rates = collections.defaultdict(list)
    for _ in range(_TURNS.value):
        took = statistics.median(run("probe", "search", **settings | ours))
        rates["ours"].append(settings["batch"] / took)
        for layout, workers, each in layouts(threads):
            other = settings | {"workers": workers, "threads": each}
            took = statistics.median(run("ctranslate2", "search", **other))
            rates[layout].append(settings["batch"] * workers / took)
    ours = max(rates.pop("ours"))
    tokens = ours * settings["length"]
    harness.report(f"{name}: target tokens", tokens, "tokens/s")
    for layout, theirs in rates.items():
        peer = f"{layout} ({max(theirs):,.4g})"
        ratio = ours / max(theirs)
        harness.report(name, ours, "sentences/s", peer, ratio)


def measure_cache(name, settings):
    """A search beside one that decodes from the first position each time."""
    settings = settings | {"batch": 16, "length": 60}
    ours = min(run("probe", "search", times=3, **settings | OURS))
    settings["threads"] = THREADS  # whose operations are large
    without = min(run("probe", "without cache", times=1, **settings))
    peer = f"without cache ({16 / without:.3g})"
    label = f"{name}: 16 sentences of 60 subwords"
    harness.report(label, 16 / ours, "sentences/s", peer, without / ours)


def measure_steps(name, settings):
    """A late step of one search beside an early one."""
    settings = settings | {"batch": 8, "length": 110, "threads": THREADS}
    seconds = run("probe", "steps", times=3, **settings)
    early, late = (statistics.median(seconds[i - 5 : i + 5]) for i in (10, 100))
    harness.report(
        f"{name}: step 100", late * 1e3, "ms", "step 10", late / early
    )


def measure_profile(name, settings):
    """Where the time of a search goes, on one thread."""
    found = run("probe", "profile", threads=1, **settings)
    used, whole = collections.Counter(found["operations"]), found["seconds"]
    # What no operation takes is between them. Much of it is the tracing's own.
    between = whole - sum(used.values())
    for kind, types in KINDS.items():
        seconds = sum(used.pop(one, 0) for one in types.split())
        harness.report(f"{name}: {kind}", seconds / whole * 100, "%")
    harness.report(f"{name}: between operations", between / whole * 100, "%")
    for kind, seconds in used.most_common(3):
        harness.report(f"{name}: {kind}", seconds / whole * 100, "%")


def measure_random_model(size, folder):
    """All that needs no training."""
    settings = (
        COMMON | harness.MODEL_SIZES[size] | {"folder": str(folder / size)}
    )
    run("probe", "convert", threads=THREADS, **settings)
    measure_speed(f"{size}, batch 32, 2 threads", settings, THREADS)
    measure_speed(f"{size}, batch 1", settings | {"batch": 1}, 1)
    measure_cache(size, settings)
    measure_steps(size, settings)
    measure_profile(size, settings)


def measure_file(settings):
    """A whole file: speed, and BLEU of both."""
    ours, theirs = [], collections.defaultdict(list)
    for _ in range(_TURNS.value):
        ours.append(run("run", "file", **settings | OURS))
        for layout, workers, each in layouts(THREADS):
            other = settings | {"workers": workers, "threads": each}
            # Its penalty, to the power of which it takes the length.
            found = run("ctranslate2", "file", length_penalty=0.6, **other)
            theirs[layout].append(found)
    best = min(ours, key=lambda found: found["seconds"])
    rate = len(best["texts"]) / best["seconds"]
    tokens = best["tokens"] / best["seconds"]
    harness.report("file: target tokens", tokens, "tokens/s")
    for layout, found in theirs.items():
        other = len(best["texts"]) / min(one["seconds"] for one in found)
        peer = f"{layout} ({other:,.4g})"
        harness.report("file", rate, "sentences/s", peer, rate / other)
    if _REFERENCES.value:
        text = pathlib.Path(_REFERENCES.value).read_text("utf-8")
        references = [text.split("\n")[:-1]]
        mine, other = (
            sacrebleu.corpus_bleu(texts, references).score
            for texts in (best["texts"], theirs["CTranslate2"][0]["texts"])
        )
        peer = f"CTranslate2 ({other:.4g})"
        harness.report("file: BLEU", mine, "13a", peer, mine / other)


def measure_agreement(settings, folder):
    """Greedy outputs of both, and our score of its beam search's outputs."""
    other = settings | {"workers": 1, "length_penalty": 0.0}
    greedy = {"beam_size": 1}
    mine = run("run", "file", **settings | greedy)["texts"]
    theirs = run("ctranslate2", "file", **other | greedy)["texts"]
    pairs = list(zip(mine, theirs, strict=True))
    for number, (one, two) in enumerate(pairs, 1):
        if one != two:
            print(
                f"  {number} ours:        {one}\n  {number} CTranslate2: {two}"
            )
    agreed = sum(one == two for one, two in pairs) / len(pairs) * 100
    harness.report("greedy outputs that agree", agreed, "%")
    found = run("ctranslate2", "file", **other)
    outputs = folder / "outputs.json"
    outputs.write_text(json.dumps(found["ids"]))
    scores = run("run", "scores", outputs=str(outputs), **settings)
    differences = [
        abs(one - two) for one, two in zip(scores, found["scores"], strict=True)
    ]
    harness.report(
        "largest difference of log-probabilities", max(differences), "nats"
    )


def measure_variants(settings):
    """Whether batches, order, padding, XLA or the cache change an output.

    Where the best scores are less than 1e-5 apart, rounding may choose.
    """
    compared = run("run", "variants", compared=_COMPARED.value, **settings)
    for name, found in compared.items():
        unit = f"of {found['sentences']}"
        harness.report(f"{name}: other outputs", found["different"], unit)
        harness.report(f"{name}: of these, ties", found["ties"], "")


def measure_memory(settings):
    """Whether it grows with sentences."""
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
