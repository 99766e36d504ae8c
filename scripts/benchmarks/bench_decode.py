"""Benchmark of decoding, with CTranslate2 on the same weights as the peer.

    python -m scripts.benchmarks.bench_decode \\
        --output_dir=RUN --inputs=FILE --references=FILE

With --xla, the peers of single sentences compiled by XLA are those uncompiled,
in turns within a process, and CTranslate2, all with one thread and in CPU time.

Models with random weights search at one forced output length. If RUN is given,
its model also translates all of FILE. Our search and CTranslate2, both in
float32, take turns, and the best turn of each counts. The last line is a JSON
list of {name, value, unit, peer, ratio}.

With --pytorch and --imported=nllb_600m, transformers writes a random model of
this size in Hugging Face's files. It is imported, also with a tenth of its
subwords, and exported, and translates sentences beside transformers and a model
of the same shape in CTranslate2: speed, and the memory of each process.
"""

import functools
import pathlib
import statistics
import sys
import tempfile
import time

import keras
import numpy as np
import sacrebleu
import tensorflow as tf
from absl import flags
from sentencepiece import sentencepiece_model_pb2

import t2t_repro
from scripts.benchmarks import harness
from t2t_repro import hparam, registry
from t2t_repro.decoding import compiled, rules, search, translate
from t2t_repro.importing import huggingface, imported, run_writer
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.runs.run import Run
from t2t_repro.runtime import devices
from t2t_repro.serving import exporting, saved_model
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import SPACE, Bpe
from t2t_repro.text.vocabulary import EOS, PAD
from t2t_repro.text.vocabulary_pair import Vocabularies

_SIZES = harness.define_sizes("small", "base")
_TURNS = flags.DEFINE_integer("turns", 2, "Turns of each library.")
_TIMES = flags.DEFINE_integer("times", 3, "Timed searches in each turn.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Trained run.")
_INPUTS = flags.DEFINE_string(
    "inputs", None, "File of sentences for the run to translate."
)
flags.register_multi_flags_validator(
    (_OUTPUT_DIR, _INPUTS),
    lambda given: len({*map(bool, given.values())}) == 1,
    "--output_dir and --inputs need each other",
)
_REFERENCES = flags.DEFINE_string(
    "references", None, "File of their reference translations."
)
_XLA = flags.DEFINE_bool(
    "xla", False, "Compare compiled with uncompiled searches of one sentence."
)
_IMPORTED = flags.DEFINE_list(
    "imported", [], "Sizes of models of Hugging Face to import and to serve."
)
_PYTORCH = flags.DEFINE_string(
    "pytorch", None, "Python that has torch and transformers, for --imported."
)

PEAK = "peak megabytes"
THREADS = 2
# The decoder's settings for a file: concurrent operations, one thread each.
OURS = {"threads": THREADS, "intra_threads": 1}
# The decoder's for single sentences: devices.choose_threads_for_one_sentence().
THREADS_FOR_ONE = {"tiny": 1, "small": 1, "base": THREADS}
COMMON = {"beam_size": 4, "batch": 32, "length": 30}
# CTranslate2 divides scores by length ** length_penalty.
OF_CTRANSLATE2 = {"length_penalty": 0.6}

# Searches with a model of random weights, each in a process of its own: the
# number of threads is set before TensorFlow starts.


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
    spec.model_type, spec.byte_fallback = spec.BPE, True
    spec.pad_id, spec.eos_id, spec.unk_id, spec.bos_id = PAD, EOS, 2, -1
    return Bpe(proto.SerializeToString())


def random_model(settings):
    """Build a model whose random weights are the same in every process."""
    hparams = harness.build_hparams(settings)
    policy = harness.POLICIES[settings.get("dtype", "float32")]
    keras.utils.set_random_seed(0)
    return building.build(hparams, settings["vocab_size"], policy)


class Endless:
    """Model that never predicts EOS, so that outputs have full length."""

    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        return getattr(self._model, name)

    def decode_step(self, *args):
        outputs = self._model.decode_step(*args)
        is_eos = tf.range(outputs.logits.shape[-1]) == EOS
        logits = tf.where(is_eos, rules.FORBIDDEN, outputs.logits)
        return outputs._replace(logits=logits)


def convert_random(settings):
    """Write the model for CTranslate2."""
    vocabulary = numbered_vocabulary(settings["vocab_size"])
    export([random_model(settings)], Vocabularies.shared(vocabulary), settings)


def export(models, vocabularies, settings):
    """Write models for CTranslate2."""
    exporting.export_ctranslate2(
        models,
        vocabularies,
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
    hparams = hparam.DecodeHParams(
        beam_size=settings["beam_size"], extra_length=0
    )
    search_fn = tf.function(
        lambda inputs: search.search(
            [Endless(model)], inputs, hparams, constants=constants
        ),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    ).get_concrete_function()
    rows = (tf.constant(harness.random_inputs(settings)),)
    return harness.time_and_memory(
        lambda: devices.map_shards(
            search_fn, rows, (), settings["threads"]
        ).ids.numpy(),
        settings["times"],
    )


def build_search(settings, xla, **arguments):
    """Return a function of inputs, whose outputs are as long as they are.

    With xla="on" it is compiled. Its cache has room for longer outputs, which
    it has for all sentences. Other arguments are those of compiled.Search.
    """
    model = Endless(random_model(settings))
    model.max_output_lengths = lambda lengths: lengths
    hparams = hparam.DecodeHParams(beam_size=settings["beam_size"], xla=xla)
    rule = search.build_rules(hparams)
    find = compiled.Search([model], hparams, rule, **arguments)
    return lambda inputs: find(inputs, inputs[:, :0]).ids.numpy()


def measure_batches(settings):
    """Return {batch: seconds} of searches on one device.

    "xla": whether they are compiled.
    """
    xla = "on" if settings["xla"] else "off"
    find = build_search(settings, xla, num_shards=1)

    def search_of(settings):
        inputs = tf.constant(harness.random_inputs(settings))
        return lambda: find(inputs)

    return harness.time_batches(search_of, settings)


def count_search(settings):
    """Return {batch: {"FLOPs", "bytes"}} of a search, at the least.

    A step reads the weights of the decoder, and the keys and values of all
    beams so far and of the source. It writes float32 logits, which are read for
    their maxima, for the sum of their exponentials, and for the candidates.
    """
    model = random_model(settings)
    beams, length = settings["beam_size"], settings["length"]
    weights = sum(
        weight.shape.num_elements()
        for weight in model.trainable_variables
        if "encoder" not in weight.path
    )
    entries = beams * length * length / 2 + length * length  # of all steps
    channels = 2 * model.hparams.hidden_size * model.hparams.decoder_layers
    numbers = entries * channels  # of a sentence
    logits = 4 * beams * length * model.vocab_size
    encoder = model.flops(length, 0)
    decoder = model.flops(length, length) - encoder
    size = {"float32": 4, "bfloat16": 2}[settings["dtype"]]
    return {
        batch: {
            "FLOPs": batch * (encoder + beams * decoder),
            "bytes": size * (length * weights + batch * numbers)
            + 4 * batch * logits,
        }
        for batch in settings["batches"]
    }


def export_random(settings):
    """Write the model for `t2t serve`; its outputs are as long as its inputs.

    It has random weights. "xla": whether the export is compiled.
    """
    xla = "on" if settings["xla"] else "off"
    vocabulary = numbered_vocabulary(settings["vocab_size"])
    saved_model.export(
        [random_model(settings)],
        Vocabularies.shared(vocabulary),
        hparam.DecodeHParams(extra_length=0, xla=xla),
        settings["folder"],
        card={},
    )


def measure_compiled(settings):
    """Return CPU seconds of single sentences, compiled or not, in turns."""
    inputs = tf.constant(harness.random_inputs(settings))
    searches = {
        xla: functools.partial(
            build_search(settings, xla, one_sentence=True), inputs
        )
        for xla in ("off", "on")
    }
    time_call = functools.partial(
        harness.time_calls, times=1, warm_up=0, clock=time.process_time
    )
    first = {xla: time_call(find)[0] for xla, find in searches.items()}
    seconds = {xla: [] for xla in searches}
    for _ in range(settings["times"]):
        for xla, find in searches.items():
            seconds[xla] += time_call(find)
    return {"first": first, "seconds": seconds}


# Translations with a trained run, each measured in a process of its own.


def open_run(settings):
    """Open the trained run."""
    registry.load_definitions()
    return Run.open(settings["output_dir"])


def convert_run(settings):
    """Write the model for CTranslate2."""
    run = open_run(settings)
    export(run.models(), run.vocabularies, settings)


def translate_file(settings):
    """Translate the file; return seconds, texts and number of subwords."""
    run = open_run(settings)
    lines = list(parallel_files.read_lines(settings["inputs"]))
    hparams = hparam.DecodeHParams(beam_size=settings["beam_size"])
    translator = translate.BatchTranslator(
        run.models(), run.vocabularies, hparams
    )
    list(translator.translate(lines[: settings["batch"]]))
    start = time.perf_counter()
    texts = [result.texts[0] for result in translator.translate(lines)]
    seconds = time.perf_counter() - start
    tokens = sum(map(len, run.vocabularies.target.encode(texts)))
    return {"seconds": seconds, "texts": texts, "tokens": tokens}


# Imports of a random model of many languages. Its vocabulary has w4, w5, ….

LANGUAGES = "eng_Latn", "deu_Latn"
_SPECIAL = "<s>", "<pad>", "</s>", "<unk>"
# Hparams of such a model, for one of the same shape.
_PRE_NORM = {
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
    "attention_bias": True,
}


def sentences(settings, count):
    """Return sentences of words that are a subword each, with EOS `length`."""
    size = settings["length"] - 1, settings["vocab_size"] - 10
    words = np.random.default_rng(0).integers(4, size[1], (count, size[0]))
    return [" ".join(f"w{i}" for i in row) for row in words]


def write_tokenizer(settings):
    """Write the files of an NLLB's tokenizer, and a text of a tenth of it."""
    folder = pathlib.Path(settings["folder"])
    proto = sentencepiece_model_pb2.ModelProto()
    kind = proto.SentencePiece.Type.Value
    count = settings["vocab_size"] - 10
    words = [f"{SPACE}w{i}" for i in range(len(_SPECIAL), count)]
    proto.pieces.add(piece="<unk>", type=kind("UNKNOWN"))
    for name in ("<s>", "</s>"):
        proto.pieces.add(piece=name, type=kind("CONTROL"))
    for word in words:
        proto.pieces.add(piece=word, score=-1)
    model = proto.SerializeToString()
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    tokens = [*_SPECIAL, *words]
    added = [
        {"id": count + i, "content": name}
        for i, name in enumerate((*LANGUAGES, "<mask>"))
    ]
    content = {
        "model": {"vocab": {token: i for i, token in enumerate(tokens)}},
        "added_tokens": added,
    }
    files.write_json(folder / "tokenizer.json", content)
    config = {"tokenizer_class": "NllbTokenizer"}
    files.write_json(folder / "tokenizer_config.json", config)
    lines = sentences(settings, settings["batch"])
    lines += sentences(settings, count // 10 // settings["length"])
    (folder / "text").write_text("\n".join(lines), "utf-8")


def import_model(settings):
    """Import the model, perhaps trimmed; return the highest memory."""
    registry.load_definitions()
    folder = pathlib.Path(settings["folder"])
    found = huggingface.read(folder)
    if settings["trimmed"]:
        found = imported.trim(found, [folder / "text"])
    run_dir = pathlib.Path(settings["run"])
    run_writer.write(found, "huggingface", run_dir, "-".join(LANGUAGES))
    return {PEAK: harness.peak_megabytes()}


def export_imported(settings):
    """Export it with outputs as long as the inputs; return the same."""
    registry.load_definitions()
    run = Run.open(settings["run"])
    changes = {"extra_length": 0, "beam_size": settings["beam_size"]}
    exporting.write(
        run,
        settings["export"],
        decode_hparams=run.search.override(changes),
        weights_dtype=settings["dtype"],
    )
    return {PEAK: harness.peak_megabytes()}


def translate_imported(settings):
    """Return seconds of translations by the export, and the highest memory."""
    lines = sentences(settings, settings["batch"])
    model = t2t_repro.load(settings["export"])
    return harness.time_and_memory(
        lambda: model.translate(lines), settings["times"]
    )


MEASUREMENTS = {
    "tokenizer": write_tokenizer,
    "import": import_model,
    "export": export_imported,
    "translate": translate_imported,
    "convert random": convert_random,
    "search": measure_search,
    "compiled": measure_compiled,
    "batches": measure_batches,
    "count": count_search,
    "export random": export_random,
    "convert": convert_run,
    "file": translate_file,
}


def run(measure, program="bench_decode", python=sys.executable, **settings):
    """Return a measurement of another process of a program."""
    return harness.measure_in_process(
        f"scripts.benchmarks.{program}", measure, python=python, **settings
    )


def best_turns(measure, settings, others, threads, rate):
    """Measure libraries in turns; return {layout: best measurement}.

    `others` are functions by layout. CTranslate2 has `threads` of one worker,
    or as many workers with one each.
    """
    layouts = {"CTranslate2": {"workers": 1, "threads": threads}}
    if threads > 1:
        name = f"CTranslate2, {threads} workers"
        layouts[name] = {"workers": threads, "threads": 1}

    def measure_peer(layout):
        layout = settings | layout | OF_CTRANSLATE2
        return run(measure, "peers", **layout) | layout

    measures = {
        name: functools.partial(measure_peer, layout)
        for name, layout in layouts.items()
    }
    return harness.best_of_turns(others | measures, _TURNS.value, rate)


def measure_speed(name, settings, ours, threads):
    """Measure sentences per second and memory at one forced output length."""
    settings = settings | {"times": _TIMES.value}
    rate = functools.partial(sentences_per_second, settings["batch"])
    search_ours = functools.partial(run, "search", **settings | ours)
    others = {"ours": search_ours}
    peers = best_turns("search", settings, others, threads, rate)
    best = peers.pop("ours")
    tokens = rate(best) * settings["length"]
    harness.report(f"{name}: target tokens", tokens, "tokens/s")
    report_speed_and_memory(name, best, peers, rate)


def sentences_per_second(batch, measured):
    """Return the speed of measured searches, one batch for each worker."""
    sentences = batch * measured.get("workers", 1)
    return sentences / statistics.median(measured["seconds"])


def report_speed_and_memory(name, best, peers, rate):
    """Report a measurement beside those of peers, {layout: measurement}."""
    for layout, theirs in peers.items():
        rates = rate(best), "sentences/s", layout, rate(theirs)
        harness.report_beside(name, *rates)
        megabytes = best[PEAK], "MB", layout, theirs[PEAK]
        harness.report_beside(f"{name}: peak memory", *megabytes)


def measure_random_model(size, folder):
    """Run all measurements that need no training."""
    settings = COMMON | harness.MODEL_SIZES[size]
    settings |= {"folder": str(folder / size)}
    run("convert random", threads=THREADS, **settings)
    measure_speed(f"{size}, batch 32, 2 threads", settings, OURS, THREADS)
    one = settings | {"batch": 1}  # for which one thread of CTranslate2 is best
    ours = {"threads": THREADS_FOR_ONE[size]}
    measure_speed(f"{size}, batch 1", one, ours, 1)


def compare_compiled(size, folder):
    """Report CPU time of one sentence: compiled, uncompiled, CTranslate2."""
    settings = COMMON | harness.MODEL_SIZES[size] | {"folder": str(folder)}
    settings |= {"batch": 1, "times": 20, "threads": 1, "workers": 1}
    run("convert random", **settings)
    for length in (12, 30):
        settings["length"] = length
        turns = []  # of (compiled, uncompiled, CTranslate2) in ms
        for _ in range(_TURNS.value):
            measured = run("compiled", **settings)
            seconds = [measured["seconds"][xla] for xla in ("on", "off")]
            peer = settings | OF_CTRANSLATE2
            seconds.append(run("CPU seconds", "peers", **peer))
            turns.append([1000 * statistics.median(s) for s in seconds])
        on, *others = map(min, zip(*turns, strict=True))
        name = f"{size}, one sentence of {length} subwords, compiled"
        peers = "uncompiled", "CTranslate2, one thread"
        for peer, milliseconds in zip(peers, others, strict=True):
            harness.report_beside(name, on, "ms", peer, milliseconds)
        first = measured["first"]["on"]
        harness.report(f"{name}: trace and compilation", first, "s")


def measure_file(settings):
    """Measure speed and BLEU of a whole file, with both libraries."""

    def rate(translated):
        return len(translated["texts"]) / translated["seconds"]

    ours = {"ours": functools.partial(run, "file", **settings | OURS)}
    peers = best_turns("file", settings, ours, THREADS, rate)
    best = peers.pop("ours")
    tokens = best["tokens"] / best["seconds"]
    harness.report("file: target tokens", tokens, "tokens/s")
    for layout, theirs in peers.items():
        rates = rate(best), "sentences/s", layout, rate(theirs)
        harness.report_beside("file", *rates)
    if _REFERENCES.value:
        text = pathlib.Path(_REFERENCES.value).read_text("utf-8")
        references = [text.split("\n")[:-1]]
        our_bleu, peer_bleu = (
            sacrebleu.corpus_bleu(texts, references).score
            for texts in (best["texts"], peers["CTranslate2"]["texts"])
        )
        harness.report_beside(
            "file: BLEU", our_bleu, "13a", "CTranslate2", peer_bleu
        )


def measure_imported(size, folder):
    """Measure import and translation beside both libraries."""
    settings = COMMON | harness.MODEL_SIZES[size] | {"threads": THREADS}
    settings |= {"folder": str(folder), "times": _TIMES.value, "batch": 8}
    run("write M2M-100", "peers", _PYTORCH.value, **settings)
    run("tokenizer", **settings)
    exports, memory = {}, {}
    for name in ("ours", "bfloat16", "trimmed"):
        paths = {
            key: str(folder / f"{name}_{key}") for key in ("run", "export")
        }
        if name == "bfloat16":
            paths["run"] = exports["ours"]["run"]
        else:
            trims = {"trimmed": name == "trimmed"}
            memory[name] = run("import", **settings | paths | trims)[PEAK]
        dtype = "bfloat16" if name == "bfloat16" else "float32"
        run("export", dtype=dtype, **settings | paths)
        exports[name] = paths
    shape = {"folder": str(folder / "ctranslate2"), "hparams": _PRE_NORM}
    run("convert random", **settings | shape)
    for batch in (8, 1):
        settings["batch"] = batch
        rate = functools.partial(sentences_per_second, batch)
        others = {
            name: functools.partial(run, "translate", **settings | paths)
            for name, paths in exports.items()
        }
        others["transformers"] = functools.partial(
            run, "translate M2M-100", "peers", _PYTORCH.value, **settings
        )
        threads = THREADS if batch > 1 else 1
        peers = best_turns("search", settings | shape, others, threads, rate)
        best, name = peers.pop("ours"), f"{size}, imported, batch {batch}"
        report_speed_and_memory(name, best, peers, rate)
    loaded = peers["transformers"]["loaded megabytes"]
    for name, megabytes in memory.items():
        values = megabytes, "MB", "transformers", loaded
        harness.report_beside(f"{size}, import, {name}: memory", *values)


def main():
    if _IMPORTED.value and not _PYTORCH.value:
        print("Skipping --imported: name a Python with --pytorch.")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for size in _SIZES.value:
            if _XLA.value:
                compare_compiled(size, folder / size)
            else:
                measure_random_model(size, folder)
        for size in _IMPORTED.value if _PYTORCH.value else ():
            measure_imported(size, folder / f"imported_{size}")
        if _OUTPUT_DIR.value:
            settings = COMMON | {
                "threads": THREADS,
                "output_dir": _OUTPUT_DIR.value,
                "inputs": _INPUTS.value,
                "folder": str(folder / "run"),
            }
            run("convert", **settings)
            measure_file(settings)


if __name__ == "__main__":
    harness.run_benchmark(main, MEASUREMENTS, tf.config.threading)
