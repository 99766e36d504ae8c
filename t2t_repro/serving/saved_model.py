"""SavedModels in the layout of TF Serving: versions in an export folder.

The model card has the sha256 of graph and weights, which `serve` and `query`
verify when they load a version. TF Serving does not read it. A mark in the
graph says that there is a card: a version that lost it, or whose card is still
to be copied, is not loaded. A SavedModel of another program has neither.
"""

import logging
import math
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.saved_model import save_context
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from t2t_repro import errors
from t2t_repro.decoding import compiled
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files, progress
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runs import checkpoints
from t2t_repro.runtime import tensorflow_import
from t2t_repro.serving import requests, served_model, version_folders
from t2t_repro.serving.graph_vocabularies import GraphTagger
from t2t_repro.text import languages
from t2t_repro.text.vocabulary import EOS
from t2t_repro.text.vocabulary_pair import Vocabularies

MODEL_CARD = pathlib.Path("assets.extra") / "model_card.json"
_HAS_CARD = "t2t_repro.has_model_card"  # alias of a function, the mark


def export(
    models: Sequence[Seq2Seq],
    vocabularies: Vocabularies,
    decode_hparams: DecodeHParams,
    export_dir: str | pathlib.Path,
    card: dict,
    weights_dtype: str = "float32",
    max_beam_size: int = 0,
) -> pathlib.Path:
    """Write the next version of a SavedModel.

    TF Serving polls the folder for names that are numbers. So a version is
    written under another name, and renamed when it is complete and on the disk.
    If another process writes a version there, this one waits. If the oldest
    runtime that is known cannot load it, a message on stderr says why.

    Args:
        models: one model, or an ensemble.
        vocabularies: vocabularies of source and target.
        decode_hparams: settings of the search.
        export_dir: parent of the version's folder, whose name is 1, or the
            highest number there plus 1.
        card: entries of the model card, beside those of the graph and files.
        weights_dtype: dtype of the stored weights, one of
            served_model.WEIGHTS_DTYPES.
        max_beam_size: most beams that a request may name; 0: requests name no
            setting.

    Returns:
        The version's folder.

    Raises:
        UserError: a weight is too large for `weights_dtype`, a vocabulary has
            no form in a graph, or the search has more than `max_beam_size`.
    """
    settings = models, vocabularies, decode_hparams, weights_dtype
    card = card | {"weights_dtype": weights_dtype}
    if max_beam_size:
        graph_model = served_model.RequestModel(*settings, max_beam_size)
        card |= requests.bounds_entry(max_beam_size)
    else:
        graph_model = served_model.ServedModel(*settings)
    graph_model.tag = card.get("tag", "")
    if tagger := languages.tagger_of(card.get("data", {})):
        graph_model.tagger = GraphTagger(tagger)
    if decode_hparams.xla == "on":
        card["xla_buckets"] = served_model.BUCKETS
        _require_compilation(graph_model)
    export_dir = files.expand_path(export_dir)
    with files.locked(export_dir, wait=True):
        files.remove_leftovers(export_dir, version_folders.is_version)
        versions = [
            *version_folders.list_versions(export_dir),
            *version_folders.list_uploaded(export_dir),
        ]
        folder = export_dir / str(max(versions, default=0) + 1)
        with files.atomic_folder(folder) as temporary:
            _write(graph_model, vocabularies, card, temporary)
    return folder


def _require_compilation(graph_model):
    """Check that XLA can compile the search, and say what servers need."""
    if graph_model.translate is None:  # see RequestModel
        raise errors.UserError(
            "XLA cannot compile the search of an export with side inputs. "
            "Export without xla=on."
        )
    try:
        graph_model.translate(tf.constant([""]))
    except tf.errors.OpError as error:
        raise errors.UserError(
            f"XLA cannot compile {compiled.what_is_refused(error)}. Export "
            "without xla=on."
        ) from error
    sizes = ", ".join(map(str, served_model.BUCKETS["sentences"]))
    print(
        "The search of this export is compiled. On a CPU, TF Serving needs "
        "--xla_cpu_compilation_enabled; if it batches, with the "
        f"allowed_batch_sizes {sizes}.",
        file=sys.stderr,
    )


def _write(graph_model, vocabularies, card, folder):
    signatures = graph_model.signatures()
    options = tf.saved_model.SaveOptions(
        function_aliases={_HAS_CARD: next(iter(signatures.values()), None)}
    )
    # save() would do the same, without a word for minutes. It finds the graphs
    # only if they were traced in its own context, and would trace them again.
    with save_context.save_context(options):
        for function in progress.bar(
            signatures.values(),
            "trace",
            unit="signature",
            delay=progress.DELAY_SECONDS,
        ):
            function.get_concrete_function()
    with tensorflow_import.logging_only(logging.WARNING):
        tf.saved_model.save(
            graph_model, str(folder), signatures=signatures, options=options
        )
    graph = read_graph(folder)
    if requirements := runtime_requirements(graph):
        print(runtime_message(requirements), file=sys.stderr)
    entries = {
        "min_runtime": min_runtime(requirements),
        "operations": operations(graph),
        "files": checksums(folder),
    }
    (folder / MODEL_CARD).parent.mkdir()
    files.write_json(folder / MODEL_CARD, card | entries, with_checksum=True)
    write_warm_up(
        folder,
        graph.signature_def,
        vocabularies,
        card.get("xla_buckets"),
        _any_tag(card.get("data", {})),
    )


def _any_tag(data):
    """Return a tag with which sources may begin; "": they have none."""
    first, *_ = data.get("target_languages") or [""]
    source = f"{first}-" if data.get("source_languages") else ""
    return first and languages.tag_of(source + first)


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """Return {path: sha256} of a version's files outside assets.extra.

    The files there, card and warm-up requests, contain their own checksums.
    Hidden files are not the version's: storage.py notes there what it copied.
    """
    paths = (path for path in folder.rglob("[!.]*") if path.is_file())
    return {
        name: files.sha256(path)
        for name, path in sorted(
            (path.relative_to(folder).as_posix(), path) for path in paths
        )
        if not name.startswith(MODEL_CARD.parts[0])
    }


def read_verified_card(folder: pathlib.Path) -> dict:
    """Return the model card of a version after a check of its checksums.

    A SavedModel of another program has no card: the result is {}.

    Raises:
        UserError: names the file that is missing or damaged.
    """
    path = folder / MODEL_CARD
    if not path.exists():
        aliases = read_graph(folder).meta_info_def.function_aliases
        if _HAS_CARD not in aliases.values():
            return {}
        raise errors.UserError(
            f"{path} is missing, which has the checksums of this version. Copy "
            "it, too, or export the model again."
        )
    card = files.read_json(path, {"files": {str: str}})
    for name, expected in card["files"].items():
        path = files.inside(folder, name)
        actual = files.sha256(path) if path.is_file() else "no file"
        if actual != expected:
            raise errors.UserError(
                f"{path} is damaged: sha256 is {actual} instead of {expected}. "
                "Export the model again."
            )
    return card


def load(folder: pathlib.Path) -> Any:
    """Load a version into memory by TensorFlow, which raises many types."""
    with files.without_wildcards(folder) as path:
        return tf.saved_model.load(str(path))


def read_graph(folder: pathlib.Path) -> meta_graph_pb2.MetaGraphDef:
    """Read the graph in a version's folder.

    Raises:
        UserError: there is none in the file.
    """
    path = folder / version_folders.GRAPH
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    if len(saved.meta_graphs) != 1:
        raise errors.UserError(
            f"{path} has {len(saved.meta_graphs)} graphs instead of one. "
            "Export the model again."
        )
    return saved.meta_graphs[0]


def num_weights(folder: pathlib.Path) -> int:
    """Return the number of elements of all variables of a version.

    Raises:
        UserError: their names and shapes cannot be read.
    """
    reader = checkpoints.CheckpointReader(folder / "variables" / "variables")
    return sum(map(math.prod, reader.shapes.values()))


def operations(graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """List the names of all operations, those in functions included."""
    return sorted({node.op for node in graph_nodes(graph)})


# Oldest TensorFlow that has all operations of a graph.
#
# runtime_operations.json lists what newer versions of TensorFlow and TF Text
# have and its oldest version does not: operations ("DecodeJxl"), attributes
# ("TensorListGetItem.Tshape") and dtypes of attributes
# ("Range.Tidx=DT_UINT64"). `python -m scripts.release.check_runtimes` writes it
# and compares it with those versions. It does not list operations of other
# libraries.

TABLE = pathlib.Path(__file__).with_name("runtime_operations.json")
_table = files.read_json(
    TABLE, {"graph_def_versions": {str: int}, "first_versions": {str: str}}
)
# Version of TensorFlow -> its newest version of GraphDef, in ascending order.
GRAPH_DEF_VERSIONS: dict[str, int] = _table["graph_def_versions"]
_FIRST_VERSIONS: dict[str, str] = _table["first_versions"]
_OLDEST, *_, _NEWEST = GRAPH_DEF_VERSIONS


def runtime_requirements(graph: meta_graph_pb2.MetaGraphDef) -> dict[str, str]:
    """Return what a graph needs and the oldest version lacks.

    Each requirement has the first version of TensorFlow that meets it.
    """
    found = {
        feature: _FIRST_VERSIONS[feature]
        for node in graph_nodes(graph)
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


def runtime_message(requirements: Mapping[str, str]) -> str:
    """Return a message that lists requirements with their first versions."""
    version = min_runtime(requirements)
    reasons = ", ".join(
        f"{name} ({first})" for name, first in requirements.items()
    )
    return (
        f"This export needs TensorFlow or TF Serving {version} or newer. The "
        f"first versions that have what its graph uses: {reasons}."
    )


def graph_nodes(
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


# Warm-up requests: TensorFlow Serving and t2t_repro.serve run them before they
# serve a version, whose first requests are slow: they trace and allocate.

WARM_UP_REQUESTS = pathlib.Path("assets.extra") / "tf_serving_warmup_requests"
_LENGTHS = (4, 32)  # subwords of the sentences: two, so that one is padded


def write_warm_up(
    folder: pathlib.Path,
    signature_defs: Mapping[str, meta_graph_pb2.SignatureDef],
    vocabularies: Vocabularies,
    buckets: Mapping[str, Sequence[int]] | None = None,
    tag: str = "",
) -> None:
    """Write a request for each signature, and for each compiled search.

    Signatures without inputs have none. The vocabularies decode text, of which
    sources begin with `tag`. An optional input has its default. `buckets` are
    "sentences" and "lengths" of the batches of an export with xla=on.
    """
    texts = {
        "inputs": _texts(vocabularies.source, tag),
        "targets": _texts(vocabularies.target),
        "side": _texts(vocabularies.target),
    }
    warm_up = [
        (
            name,
            {
                key: _repeated(definition.defaults[key])
                if key in definition.defaults
                else texts[key]
                for key in definition.inputs
            },
        )
        for name, definition in sorted(signature_defs.items())
        if definition.inputs  # not TensorFlow's initialization
    ]
    buckets = buckets or {"sentences": (), "lengths": ()}
    for length in buckets["lengths"]:
        text = _text_of_length(vocabularies.source, length, tag)
        for count in buckets["sentences"]:
            lines = tf.make_tensor_proto([text] * count, tf.string)
            for name in ("serving_default", "n_best"):
                warm_up.append((name, {"inputs": lines}))
    with tf.io.TFRecordWriter(str(folder / WARM_UP_REQUESTS)) as file:
        for name, inputs in warm_up:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for key, tensor in inputs.items():
                request.inputs[key].CopyFrom(tensor)
            file.write(log.SerializeToString())


def _text_of_length(vocabulary, length, tag):
    """Return text whose number of subwords, with EOS, has this bucket."""
    words = vocabulary.decode([[i] for i in range(EOS + 1, vocabulary.size)])
    text = tag
    for word in reversed(words):
        longer = f"{text} {word}".strip()
        size = len(vocabulary.encode([longer])[0])
        if size <= length:
            text = longer
        if size == length:
            break
    return text


def _texts(vocabulary, tag=""):
    """Return sentences of the highest ids, which are rare subwords."""
    ids = range(EOS + 1, vocabulary.size)
    rows = [ids[-length:] for length in _LENGTHS]
    texts = [languages.join_tag(tag, text) for text in vocabulary.decode(rows)]
    return tf.make_tensor_proto(texts, tf.string)


def _repeated(default):
    """Return a tensor with the value of a default for each sentence."""
    value = tf.make_ndarray(default)
    return tf.make_tensor_proto(value.repeat(len(_LENGTHS)))


def read_warm_up(folder: pathlib.Path) -> Iterator[predict_pb2.PredictRequest]:
    """Yield the requests in a version's folder; none without the file.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / WARM_UP_REQUESTS
    if not path.exists():
        return
    try:
        for record in tf.data.TFRecordDataset(str(path)):
            log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
            yield log.predict_log.request
    except tf.errors.DataLossError as error:
        raise errors.UserError(
            f"{path} is damaged: {error.message}. Export the model again, or "
            "remove the file."
        ) from error
