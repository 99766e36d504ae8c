"""Oldest TensorFlow that has all operations of a graph.

runtime_operations.json lists what newer versions of TensorFlow and TF Text have
and its oldest version does not: operations ("DecodeJxl"), attributes
("TensorListGetItem.Tshape") and dtypes of attributes ("Range.Tidx=DT_UINT64").
`python -m scripts.release.check_runtimes` writes it and compares it with those
versions. It does not list operations of other libraries.
"""

import pathlib
from collections.abc import Iterator, Mapping

from tensorflow.core.framework import node_def_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from t2t_repro.io import json_files

TABLE = pathlib.Path(__file__).with_name("runtime_operations.json")
_table = json_files.read(
    TABLE, {"graph_def_versions": {str: int}, "first_versions": {str: str}}
)
# Version of TensorFlow -> its newest version of GraphDef, in ascending order.
GRAPH_DEF_VERSIONS: dict[str, int] = _table["graph_def_versions"]
_FIRST_VERSIONS: dict[str, str] = _table["first_versions"]
_OLDEST, *_, _NEWEST = GRAPH_DEF_VERSIONS


def requirements(graph: meta_graph_pb2.MetaGraphDef) -> dict[str, str]:
    """Return what a graph needs and the oldest version lacks.

    Each requirement has the first version of TensorFlow that meets it.
    """
    found = {
        feature: _FIRST_VERSIONS[feature]
        for node in nodes(graph)
        for feature in _features(node)
        if feature in _FIRST_VERSIONS
    }
    consumer = graph.graph_def.versions.min_consumer
    readers = (
        version
        for version, graph_def_version in GRAPH_DEF_VERSIONS.items()
        if graph_def_version >= consumer
    )
    if (reader := next(readers, _NEWEST)) != _OLDEST:
        found[f"GraphDef version {consumer}"] = reader
    return dict(sorted(found.items()))


def min_runtime(requirements: Mapping[str, str]) -> str:
    """Return the oldest version of the table that meets all requirements."""
    return max(
        requirements.values(),
        key=list(GRAPH_DEF_VERSIONS).index,
        default=_OLDEST,
    )


def message(requirements: Mapping[str, str]) -> str:
    """Return a message that lists requirements with their first versions."""
    version = min_runtime(requirements)
    reasons = ", ".join(
        f"{name} ({first})" for name, first in requirements.items()
    )
    return (
        f"This export needs TensorFlow or TF Serving {version} or newer. The "
        f"first versions that have what its graph uses: {reasons}."
    )


def nodes(
    graph: meta_graph_pb2.MetaGraphDef,
) -> Iterator[node_def_pb2.NodeDef]:
    """Yield all nodes of a graph, those in functions included."""
    yield from graph.graph_def.node
    for function in graph.graph_def.library.function:
        yield from function.node_def


def _features(node):
    """Yield what a node uses, in the notation of the table."""
    yield node.op
    for name, value in node.attr.items():
        yield f"{node.op}.{name}"
        for dtype in (value.type, *value.list.type):
            yield f"{node.op}.{name}={types_pb2.DataType.Name(dtype)}"
