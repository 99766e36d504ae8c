"""Exported models: their graph, their files, and what they say of attention."""

import collections
import concurrent.futures
import dataclasses
import itertools
import math
import queue
import shutil
import threading
import types

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from t2t_repro import errors, hparam
from t2t_repro.decoding import compiled, translate
from t2t_repro.io import files
from t2t_repro.serving import (
    requests,
    saved_model,
    served_model,
    version_folders,
)

SIGNATURES = [
    "attention",
    "attention_heads",
    "n_best",
    "score",
    "serving_default",
    "subwords",
    "translate",
]
TEXT_OPERATIONS = {  # TF Text's, which TensorFlow Serving contains
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceIdToStringOp",
    "SentencepieceDetokenizeOp",
}
HOSTILE = [b"", b"\xff\xfe a dog", "🐶".encode(), b"\0", b"x" * 100_000]


def test_all_operations_are_those_of_tensorflow_and_tf_text(exported):
    found = set(saved_model.operations(saved_model.read_graph(exported / "2")))
    card = files.read_json(exported / "2" / saved_model.MODEL_CARD)
    assert card["operations"] == sorted(found)
    assert card["min_runtime"] == OLDEST
    assert "StatefulPartitionedCall" in found
    assert any("While" in name for name in found)  # in functions
    assert found - set(dir(tf.raw_ops)) == TEXT_OPERATIONS
    assert not {name for name in found if "PyFunc" in name}
    # TF Serving has no XLA for GPUs, and does not use that for CPUs.
    assert not {name for name in found if "Xla" in name}


def test_signature_is_traced_once(vocabularies, monkeypatch, tmp_path):
    """A trace takes most of the time of an export."""
    traces = []

    class Copy(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def translate(self, inputs):
            traces.append("translate")
            return {"outputs": inputs}

        def signatures(self):
            return {"serving_default": self.translate}

    monkeypatch.setattr(served_model, "ServedModel", lambda *_: Copy())
    saved_model.export([], vocabularies, hparam.DecodeHParams(), tmp_path, {})
    assert traces == ["translate"]


@pytest.mark.parametrize("signature", SIGNATURES)
def test_any_bytes_have_a_row_in_every_output(local, signature):
    inputs = {"inputs": HOSTILE}
    if signature == "score":
        inputs["targets"] = HOSTILE[::-1]
    if signature in ("subwords", "translate"):
        inputs |= {
            "prefixes": HOSTILE[::-1],
            "beam_size": [0, 1, 2, 3, 4],
            "n_best": [3, 1, 0, 2, 1],
            "alpha": [-1.0, 0.0, 1.0, 2.0, 0.6],
        }
    for name, array in local(signature, **inputs).items():
        assert len(array) == len(HOSTILE), name
    cut = local("serving_default", inputs=HOSTILE)["truncated"]
    assert cut.tolist() == [False, False, False, False, True]


def test_input_is_cut_beyond_max_input_length(local, separate_vocabularies):
    """max_input_length is 40, EOS included; each Z is a piece of one byte."""
    lines = ["Z" * count for count in (37, 38, 39)]
    ids = separate_vocabularies.source.encode(lines)
    assert list(map(len, ids)) == [39, 40, 41]
    found = local("serving_default", inputs=lines)["truncated"]
    assert found.tolist() == [False, False, True]


def test_warm_up_requests_call_every_signature(exported, local):
    warm_up = list(saved_model.read_warm_up(exported / "2"))
    assert [one.model_spec.signature_name for one in warm_up] == SIGNATURES
    for request in warm_up:
        inputs = {
            name: tf.make_ndarray(tensor)
            for name, tensor in request.inputs.items()
        }
        found = local(request.model_spec.signature_name, **inputs)
        assert not found["truncated"].any()
        assert len({len(values) for values in inputs.values()}) == 1
        short, long = (len(text) for text in inputs["inputs"])
        assert 0 < short < long


def test_every_weight_is_stored_in_16_bits(exported, build_exportable):
    (model,), *_ = build_exportable(1)
    card = files.read_json(exported / "2" / saved_model.MODEL_CARD)
    assert card["weights_dtype"] == "bfloat16"
    path = exported / "2" / "variables" / "variables"
    stored = tf.train.load_checkpoint(str(path))
    numbers = collections.Counter()
    for name, dtype in stored.get_variable_to_dtype_map().items():
        shape = stored.get_variable_to_shape_map()[name]
        numbers[dtype] += math.prod(shape)
    assert numbers[tf.bfloat16] == model.count_params()
    assert not numbers[tf.float32]


@pytest.fixture(scope="module")
def rounded_translator(build_exportable):
    """Return a Translator in float32 with the rounded weights of the export."""
    models, vocabularies, search = build_exportable(1)
    for weight in models[0].weights:
        weight.assign(tf.cast(tf.cast(weight.value, "bfloat16"), tf.float32))
    return translate.BatchTranslator(models, vocabularies, search)


def test_16_bit_export_scores_as_rounded_weights(rounded_translator, local):
    inputs, targets = ["two birds sing", "birds"], ["ZWEI VÖGEL", "QUAKT"]
    pairs = zip(inputs, targets, strict=True)
    expected = list(rounded_translator.score(pairs))
    outputs = local("score", inputs=inputs, targets=targets)
    np.testing.assert_allclose(
        outputs["scores"], [score.total for score in expected], rtol=1e-4
    )
    lengths = [len(score.pieces) for score in expected]
    assert outputs["lengths"].tolist() == lengths


def test_weight_beyond_float16_is_an_error(build_exportable, tmp_path):
    models, *others = build_exportable(2)
    weight = models[0].weights[0]
    weight.assign(weight + 1e5)
    message = f"float16 cannot hold {weight.path}.*1e\\+05"
    with pytest.raises(errors.UserError, match=message):
        saved_model.export(models, *others, tmp_path, {}, "float16")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("listed", "damage"),
    [
        ({"a": 1}, r"is damaged: it\['files'\]\['a'\] is 1, where str belongs"),
        ({"../../secret": "0"}, "'../../secret' leads out of"),
    ],
)
def test_card_with_other_files_is_refused(exported, tmp_path, listed, damage):
    copy = shutil.copytree(exported / "2", tmp_path / "2")
    files.write_json(copy / saved_model.MODEL_CARD, {"files": listed})
    with pytest.raises(errors.UserError, match=damage):
        saved_model.read_verified_card(copy)


def test_two_exports_into_one_folder_become_two_versions(tmp_path, monkeypatch):
    pause, printed = threading.Event(), queue.Queue()

    def write(model, vocabularies, card, folder):
        assert pause.wait(60)
        (folder / version_folders.GRAPH).write_text(card["run"])

    def export(run):
        saved_model.export(
            [], None, hparam.DecodeHParams(), tmp_path, {"run": run}
        )

    monkeypatch.setattr(
        served_model, "ServedModel", lambda *_: types.SimpleNamespace()
    )
    monkeypatch.setattr(saved_model, "_write", write)
    monkeypatch.setattr(
        files, "print", lambda text, **_: printed.put(text), raising=False
    )
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        exports = pool.map(export, "ab")
        message = printed.get(timeout=20)
        pause.set()
        list(exports)  # raises what they raised
    assert f"which writes to {tmp_path}" in message
    assert version_folders.list_versions(tmp_path) == [1, 2]
    paths = [tmp_path / number / version_folders.GRAPH for number in "12"]
    assert {path.read_text() for path in paths} == {"a", "b"}


def test_warm_up_has_a_request_for_each_bucket(vocabularies, tmp_path):
    (tmp_path / saved_model.WARM_UP_REQUESTS).parent.mkdir()
    buckets = {"sentences": (1, 8), "lengths": (16, 32)}
    saved_model.write_warm_up(tmp_path, {}, vocabularies, buckets)
    shapes = collections.Counter()
    for request in saved_model.read_warm_up(tmp_path):
        lines = tf.make_ndarray(request.inputs["inputs"]).tolist()
        (ids,) = vocabularies.source.encode([lines[0].decode()])
        length = int(compiled.padded_length(len(ids)))
        shapes[request.model_spec.signature_name, len(lines), length] += 1
    names = ("n_best", "serving_default")
    expected = itertools.product(names, *buckets.values())
    assert shapes == dict.fromkeys(expected, 1)


@pytest.mark.slow
def test_compiled_export_gives_the_same_outputs(
    build_exportable, tmp_path, monkeypatch, capfd
):
    """Of greedy search, and as of two sentences, which have no bucket."""
    buckets = {"sentences": (1,), "lengths": (16,)}
    monkeypatch.setattr(served_model, "BUCKETS", buckets)
    models, vocabularies, search = build_exportable(1)
    search = dataclasses.replace(search, beam_size=1, xla="on")
    folder = saved_model.export(
        models, vocabularies, search, tmp_path, {}, "bfloat16"
    )
    assert "--xla_cpu_compilation_enabled" in capfd.readouterr().err
    card = files.read_json(folder / saved_model.MODEL_CARD)
    assert card["xla_buckets"] == {k: list(v) for k, v in buckets.items()}
    found = saved_model.load(folder).signatures["serving_default"]
    for line in ("birds", "birds " * 30):
        outputs = found(inputs=tf.constant([line]))
        others = found(inputs=tf.constant([line, "fish"]))
        assert outputs["outputs"][0] == others["outputs"][0]
        np.testing.assert_allclose(
            outputs["scores"], others["scores"][:1], atol=1e-5
        )


TEXTS = ["two birds sing", "", "birds", "🐶 the cat sat on the mat"]


def test_attention_is_that_of_the_translator(rounded_translator, local):
    """A blank line is EOS alone, and has no output."""
    mean = local("attention", inputs=TEXTS)
    heads = local("attention_heads", inputs=TEXTS)
    weights = heads.pop("weights")  # [B, layers, H, T, L]
    assert weights.shape[2] > 1
    np.testing.assert_allclose(weights.mean(2), mean.pop("weights"), atol=1e-6)
    for name, array in mean.items():
        assert array.tolist() == heads[name].tolist()
    assert not mean["truncated"].any()
    for i, text in enumerate(TEXTS):
        source, target = ["</s>"], []
        if text:
            trace = rounded_translator.attention(text)
            source, target = trace.source, trace.target
            assert mean["outputs"][i].decode() == trace.outputs
            found = weights[i, :, :, : len(target), : len(source)]
            np.testing.assert_allclose(found, trace.weights.cross, atol=1e-5)
        for side, expected in (("source", source), ("target", target)):
            length = mean[f"{side}_lengths"][i]
            pieces = [x.decode() for x in mean[f"{side}_pieces"][i]]
            assert pieces[:length] == expected and not any(pieces[length:])
        assert not weights[i, :, :, len(target) :].any()
        assert not weights[i, ..., len(source) :].any()


TIGHT = requests.Limits(max_batch_size=3, max_batch_bytes=8)


def test_split_limits_number_and_bytes():
    lines = ["aa", "b", "cccc", "éé", "x" * 50, "d", "", "", "e"]
    assert list(TIGHT.split(lines)) == [
        [0, 1],
        [2, 3],  # 2 x 4 bytes
        [4],  # beyond the limits, which the server reports
        [5, 6, 7],
        [8],
    ]


@given(st.lists(st.text(max_size=12)))
def test_split_keeps_every_line_and_the_limits(lines):
    batches = list(TIGHT.split(lines))
    assert [i for batch in batches for i in batch] == list(range(len(lines)))
    for batch in batches:
        longest = max(len(lines[i].encode()) for i in batch)
        assert TIGHT.allow(len(batch), longest) or len(batch) == 1


OLDEST, *_, NEWEST = saved_model.GRAPH_DEF_VERSIONS


def test_newest_version_of_the_table_is_the_installed_tensorflow():
    """Otherwise run scripts.release.check_runtimes with --write_table."""
    assert tf.__version__.startswith(f"{NEWEST}.")
    assert (
        saved_model.GRAPH_DEF_VERSIONS[NEWEST] == tf.version.GRAPH_DEF_VERSION
    )


@pytest.fixture
def graph():
    """Return a graph that every version has the operations of."""
    graph = meta_graph_pb2.MetaGraphDef()
    graph.graph_def.node.add(op="Range").attr["Tidx"].type = types_pb2.DT_INT32
    graph.graph_def.library.function.add().node_def.add(op="TensorListGetItem")
    assert saved_model.runtime_requirements(graph) == {}
    assert saved_model.min_runtime({}) == OLDEST
    return graph


def test_new_operation_in_function_is_named_with_its_version(graph):
    graph.graph_def.library.function[0].node_def.add(op="DecodeJxl")
    graph.graph_def.node.add(op="DecodeWebP")
    found = saved_model.runtime_requirements(graph)
    assert found == {"DecodeJxl": "2.21", "DecodeWebP": "2.20"}
    assert saved_model.min_runtime(found) == "2.21"
    message = saved_model.runtime_message(found)
    assert "needs TensorFlow or TF Serving 2.21 or newer" in message
    assert "DecodeJxl (2.21), DecodeWebP (2.20)." in message


def test_new_attribute_and_new_dtype_are_named(graph):
    function = graph.graph_def.library.function[0]
    function.node_def[0].attr["Tshape"].type = types_pb2.DT_INT64
    graph.graph_def.node[0].attr["Tidx"].type = types_pb2.DT_UINT64
    assert saved_model.runtime_requirements(graph) == {
        "Range.Tidx=DT_UINT64": "2.20",
        "TensorListGetItem.Tshape": "2.21",
    }


@pytest.mark.parametrize("version", saved_model.GRAPH_DEF_VERSIONS)
def test_min_consumer_needs_a_runtime_that_reads_it(graph, version):
    consumer = saved_model.GRAPH_DEF_VERSIONS[version]
    graph.graph_def.versions.min_consumer = consumer
    found = saved_model.runtime_requirements(graph)
    assert saved_model.min_runtime(found) == version
    assert found == (
        {} if version == OLDEST else {f"GraphDef version {consumer}": version}
    )
