"""The oldest TensorFlow that an export's model card names."""

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from t2t_repro.io import files
from t2t_repro.serving import saved_model

OLDEST, *_, NEWEST = saved_model.GRAPH_DEF_VERSIONS


def test_card_of_export_names_the_oldest_runtime(exported):
    card = files.read_json(exported / "2" / saved_model.MODEL_CARD)
    assert card["min_runtime"] == OLDEST


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
