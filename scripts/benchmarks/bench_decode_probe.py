"""Process of bench_decode that searches with a model of random weights.

It prints one JSON value. The number of threads is set before TensorFlow starts.
"""

import collections
import functools
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from scripts.benchmarks import harness
from t2t_repro import hparam
from t2t_repro.decoding import rules, search
from t2t_repro.models import building
from t2t_repro.runtime import devices
from t2t_repro.serving import to_ctranslate2
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import EOS, PAD
from t2t_repro.text.vocabulary_pair import Vocabularies

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


def convert(settings):
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


def measure_steps(settings):
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


def measure_profile(settings):
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


if __name__ == "__main__":
    harness.run_measurement(
        {
            "convert": convert,
            "search": measure_search,
            "without cache": measure_without_cache,
            "steps": measure_steps,
            "profile": measure_profile,
        },
        tf.config.threading,
    )
