"""Benchmark of decoding, with CTranslate2 on the same weights as the peer.

    python -m scripts.benchmarks.bench_decode \\
        --output_dir=RUN --inputs=FILE --references=FILE

Models with random weights search at one forced output length. If RUN is given,
its model also translates all of FILE. Our search and CTranslate2, both in
float32, take turns, and the best turn of each counts. The last line is a JSON
list of {name, value, unit, peer, ratio}.
"""

import collections
import functools
import json
import pathlib
import statistics
import tempfile
import time

import keras
import numpy as np
import sacrebleu
import tensorflow as tf
from absl import app, flags
from sentencepiece import sentencepiece_model_pb2

from scripts.benchmarks import harness, search_variants
from t2t_repro import hparam, registry
from t2t_repro.decoding import rules, score, search, translate
from t2t_repro.models import building
from t2t_repro.runs.run import Run
from t2t_repro.runtime import devices
from t2t_repro.serving import to_ctranslate2
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import EOS, PAD
from t2t_repro.text.vocabulary_pair import Vocabularies

# Searches with a model of random weights, each in a process of its own: the
# number of threads is set before TensorFlow starts.

IDS = tf.TensorSpec([None, None], tf.int32)


def numbered_vocabulary(size):
    """Return a vocabulary of bytes and of subwords named w259, w260, …"""
    proto = sentencepiece_model_pb2.ModelProto()
    kind = proto.SentencePiece.Type.Value
    proto.pieces.add(piece="<pad>", type=kind("CONTROL"))
    proto.pieces.add(piece="</s>", type=kind("CONTROL"))
    proto.pieces.add(piece="<unk>", type=kind("UNKNOWN"))
    for byte in range(256):
        proto.pieces.add(piece=f"<0x{byte:02X}>", type=kind("BYTE"))
    for i in range(len(proto.pieces), size):
        proto.pieces.add(piece=f"w{i}", type=kind("NORMAL"))
    spec = proto.trainer_spec
    spec.byte_fallback = True
    spec.pad_id, spec.eos_id, spec.unk_id, spec.bos_id = PAD, EOS, 2, -1
    return Bpe(proto.SerializeToString())


def random_model(settings):
    """Build a model whose random weights are the same in every process."""
    hparams = harness.build_hparams(settings)
    keras.utils.set_random_seed(0)
    return building.build(hparams, settings["vocab_size"])


class Endless:
    """Model that never predicts EOS, so that outputs have full length.

    Args:
        model: the model that decodes.
        after_step: a function of the logits of every step, which returns them.
    """

    def __init__(self, model, after_step=tf.identity):
        self._model = model
        self._after_step = after_step

    def __getattr__(self, name):
        return getattr(self._model, name)

    def decode_step(self, *args):
        outputs = self._model.decode_step(*args)
        is_eos = tf.range(outputs.logits.shape[-1]) == EOS
        logits = tf.where(is_eos, rules.FORBIDDEN, outputs.logits)
        return outputs._replace(logits=self._after_step(logits))


def forced_search(model, settings, constants=None):
    """Return a function of inputs [B, L] whose outputs have L subwords."""
    hparams = hparam.DecodeHParams(
        beam_size=settings["beam_size"], extra_length=0
    )
    return tf.function(
        lambda inputs: search.search(
            [model], inputs, hparams, constants=constants
        ),
        input_signature=[IDS],
    )


def convert_random(settings):
    """Write the model for CTranslate2."""
    to_ctranslate2.export(
        [random_model(settings)],
        Vocabularies.shared(numbered_vocabulary(settings["vocab_size"])),
        hparam.DecodeHParams(),
        settings["folder"],
        card={},
    )


def measure_search(settings):
    """Return seconds of searches, and the highest memory."""
    model = random_model(settings)
    constants = search.decoding_constants(  # once, as in the decoder
        [model], one_sentence=settings["batch"] == 1
    )
    search_fn = forced_search(Endless(model), settings, constants)
    rows = (tf.constant(harness.random_inputs(settings)),)
    return harness.time_and_memory(
        lambda: devices.map_shards(
            search_fn, rows, (), settings["threads"]
        ).ids.numpy(),
        settings["times"],
    )


def measure_without_cache(settings):
    """Return seconds of decoding without a cache.

    Every step decodes all positions. The source is encoded once, and each of
    the B * W rows is extended greedily, which is less work than beam search.
    """
    model = random_model(settings)
    inputs = harness.random_inputs(settings)
    inputs = tf.constant(inputs.repeat(settings["beam_size"], 0))  # [B * W, L]

    def features(ids):
        places = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
        return ids, tf.ones_like(ids), places

    encode = tf.function(lambda: model.encode(*features(inputs))[0])
    rows, length = inputs.shape
    targets_spec = tf.TensorSpec((rows, None), tf.int32)
    memory_spec = tf.TensorSpec((rows, length, settings["hidden_size"]))

    @tf.function(input_signature=[targets_spec, memory_spec])
    def advance(targets, memory):
        padded = tf.pad(targets, ((0, 0), (0, 1)), constant_values=2)
        x, _ = model.decode(*features(padded), memory, tf.ones_like(inputs))
        best = tf.argmax(model.softmax.logits(x[:, -1:]), -1, tf.int32)
        return tf.concat([targets, best], 1)

    def decode():
        memory, targets = encode(), inputs[:, :0]
        for _ in range(length):
            targets = advance(targets, memory)
        return targets.numpy()

    return harness.time_calls(decode, settings["times"])


def measure_steps_of_search(settings):
    """Return seconds of each step: the minimum over several searches."""
    timestamps, searches = [], []

    def record_time(logits):
        recorded = tf.py_function(
            lambda _: timestamps.append(time.perf_counter()),
            [logits[0, 0, 0]],
            [],
        )
        with tf.control_dependencies([recorded]):
            return tf.identity(logits)

    model = Endless(random_model(settings), record_time)
    search_fn = forced_search(model, settings)
    for _ in range(settings["times"] + 1):
        timestamps.clear()
        search_fn(harness.random_inputs(settings)).ids.numpy()
        searches.append(np.diff(timestamps))
    return np.min(searches[1:], axis=0).tolist()


def measure_operations(settings):
    """Return seconds of a search, in total and by type of operation.

    A session of TensorFlow 1 reports the time of every operation. There is one
    thread, so that operations do not overlap.
    """
    model = random_model(settings)
    module = tf.Module()
    module.weights = [weight.value for weight in model.weights]
    module.search = forced_search(Endless(model), settings)
    v1, used = tf.compat.v1, collections.Counter()
    config = v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=module.search)
        with v1.Session(graph=tf.Graph(), config=config) as session:
            loaded = v1.saved_model.load(session, ["serve"], folder)
            signature = loaded.signature_def["serving_default"]
            name = signature.inputs["inputs"].name
            metadata = v1.RunMetadata()
            search_once = functools.partial(
                session.run,
                signature.outputs["ids"].name,
                {name: harness.random_inputs(settings)},
                v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
                metadata,
            )
            (seconds,) = harness.time_calls(search_once, 1)
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            # "name = Type(inputs)"
            kind = node.timeline_label.partition(" = ")[2].partition("(")[0]
            micros = node.op_end_rel_micros - node.op_start_rel_micros
            # oneDNN's operations replace TensorFlow's of the same type.
            used[kind.removeprefix("_Mkl")] += micros / 1e6
    return {"seconds": seconds, "operations": used}


# Translations with a trained run, each measured in a process of its own.

SCORED_AT_ONCE = 32  # sentences


class RunAndText:
    """A run's models and vocabularies, with the lines of a file."""

    def __init__(self, settings):
        registry.load_definitions()
        run = Run.open(settings["output_dir"])
        self.models = run.models()
        self.vocabularies = run.vocabularies
        self.lines = list(parallel_files.read_lines(settings["inputs"]))

    def translator(self, settings):
        hparams = hparam.DecodeHParams(beam_size=settings["beam_size"])
        return translate.Translator(self.models, self.vocabularies, hparams)


def convert_run(settings):
    """Write the model for CTranslate2."""
    run = RunAndText(settings)
    to_ctranslate2.export(
        run.models,
        run.vocabularies,
        hparam.DecodeHParams(),
        settings["folder"],
        card={},
    )


def translate_file(settings):
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


def measure_variants_of_run(settings):
    """Count the outputs that each variant of the search changes, and ties."""
    run = RunAndText(settings)
    hparams = hparam.DecodeHParams(beam_size=settings["beam_size"])
    ids = run.vocabularies.source.encode(run.lines[: settings["compared"]])
    rows = tf.ragged.constant(ids, dtype=tf.int32).to_tensor().numpy()
    expected = search.search(run.models, tf.constant(rows), hparams)
    results = dict(search_variants.variants(run.models, rows, hparams))
    if len(run.models) == 1:
        results["no cache"] = search_variants.without_cache(
            run.models[0], rows, hparams
        )
    return {
        name: search_variants.compare(result, expected)._asdict()
        for name, result in results.items()
    }


def measure_memory_of_run(settings):
    """Return MB of memory after a tenth of the sentences, and after all."""
    run = RunAndText(settings)
    translator, megabytes = run.translator(settings), []
    for _ in range(0, settings["sentences"], len(run.lines)):
        list(translator.translate(run.lines))
        megabytes.append(harness.resident_megabytes())
    return [megabytes[len(megabytes) // 10], megabytes[-1]]


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

PEER = "bench_decode_ctranslate2"
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


def run(measure, program="bench_decode", **settings):
    """Return a measurement of another process of a program."""
    return harness.measure_in_process(
        f"scripts.benchmarks.{program}", measure, **settings
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
        turns["ours"].append(run("search", **settings | ours))
        for layout, workers, each in layouts(threads):
            peer = settings | {"workers": workers, "threads": each}
            measured = run("search", PEER, **peer)
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
    ours = min(run("search", times=3, **settings | OURS)["seconds"])
    settings["threads"] = THREADS  # the operations without cache are large
    without = min(run("without cache", times=1, **settings))
    peer = f"without cache ({16 / without:.3g})"
    label = f"{name}: 16 sentences of 60 subwords"
    harness.report(label, 16 / ours, "sentences/s", peer, without / ours)


def measure_steps(name, settings):
    """Measure a late step of a search relative to an early one."""
    settings = settings | {"batch": 8, "length": 110, "threads": THREADS}
    seconds = run("steps", times=3, **settings)
    early, late = (statistics.median(seconds[i - 5 : i + 5]) for i in (10, 100))
    harness.report(
        f"{name}: step 100", late * 1e3, "ms", "step 10", late / early
    )


def measure_profile(name, settings):
    """Measure the share of each kind of operation, on one thread."""
    profile = run("profile", threads=1, **settings)
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
    run("convert random", threads=THREADS, **settings)
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
        ours.append(run("file", **settings | OURS))
        for layout, workers, each in layouts(THREADS):
            peer = settings | {"workers": workers, "threads": each}
            # CTranslate2 divides scores by length ** length_penalty.
            translated = run("file", PEER, length_penalty=0.6, **peer)
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
    ours = run("file", **settings | greedy)["texts"]
    theirs = run("file", PEER, **peer | greedy)["texts"]
    pairs = list(zip(ours, theirs, strict=True))
    for number, (our_text, peer_text) in enumerate(pairs, 1):
        if our_text != peer_text:
            print(f"  {number} ours:        {our_text}")
            print(f"  {number} CTranslate2: {peer_text}")
    agreed = sum(ours == theirs for ours, theirs in pairs) / len(pairs) * 100
    harness.report("greedy outputs that agree", agreed, "%")
    searched = run("file", PEER, **peer)
    outputs = folder / "outputs.json"
    outputs.write_text(json.dumps(searched["ids"]))
    scores = run("scores", outputs=str(outputs), **settings)
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
    compared = run("variants", compared=_COMPARED.value, **settings)
    for name, counts in compared.items():
        unit = f"of {counts['sentences']}"
        harness.report(f"{name}: other outputs", counts["different"], unit)
        harness.report(f"{name}: of these, ties", counts["ties"], "")


def measure_memory(settings):
    """Measure the growth of memory with the number of sentences."""
    early, late = run("memory", sentences=_SENTENCES.value, **settings)
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
            run("convert", **settings)
            measure_file(settings)
            measure_agreement(settings, folder)
            measure_variants(settings)
            measure_memory(settings)
    harness.print_json()


if __name__ == "__main__":
    if harness.is_probe():
        harness.run_measurement(
            {
                "convert random": convert_random,
                "search": measure_search,
                "without cache": measure_without_cache,
                "steps": measure_steps_of_search,
                "profile": measure_operations,
                "convert": convert_run,
                "file": translate_file,
                "scores": measure_scores,
                "variants": measure_variants_of_run,
                "memory": measure_memory_of_run,
            },
            tf.config.threading,
        )
    else:
        app.run(main)
