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
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.saved_model import save_context

from t2t_repro import errors
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files, json_files, locks, progress
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runs import checkpoint_reader
from t2t_repro.runtime import tensorflow_import
from t2t_repro.serving import (
    runtimes,
    served_model,
    version_folders,
    warm_up,
)
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
) -> pathlib.Path:
    """Write the next version of a SavedModel.

    TF Serving polls the folder for names that are numbers. So a version is
    written under another name, and renamed when it is complete and on the disk.
    If another process writes a version there, this one waits. If the oldest
    runtime of runtimes.py cannot load it, a message on stderr says why.

    Args:
        models: one model, or an ensemble.
        vocabularies: vocabularies of source and target.
        decode_hparams: settings of the search.
        export_dir: parent of the version's folder, whose name is 1, or the
            highest number there plus 1.
        card: entries of the model card, beside those of the graph and files.
        weights_dtype: dtype of the stored weights, one of
            served_model.WEIGHTS_DTYPES.

    Returns:
        The version's folder.

    Raises:
        UserError: a weight is too large for `weights_dtype`, or a vocabulary
            has no form in a graph.
    """
    graph_model = served_model.ServedModel(
        models, vocabularies, decode_hparams, weights_dtype
    )
    export_dir = files.expand_path(export_dir)
    card = card | {"weights_dtype": weights_dtype}
    with locks.locked(export_dir, wait=True):
        files.remove_leftovers(export_dir, version_folders.is_version)
        versions = [
            *version_folders.list_versions(export_dir),
            *version_folders.list_uploaded(export_dir),
        ]
        folder = export_dir / str(max(versions, default=0) + 1)
        with files.atomic_folder(folder) as temporary:
            _write(graph_model, vocabularies, card, temporary)
    return folder


def _write(graph_model, vocabularies, card, folder):
    """Write graph, weights, model card and warm-up requests."""
    signatures = graph_model.signatures()
    options = tf.saved_model.SaveOptions(
        function_aliases={_HAS_CARD: graph_model.translate}
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
    requirements = runtimes.requirements(graph)
    if requirements:
        print(runtimes.message(requirements), file=sys.stderr)
    entries = {
        "min_runtime": runtimes.min_runtime(requirements),
        "operations": operations(graph),
        "files": checksums(folder),
    }
    (folder / MODEL_CARD).parent.mkdir()
    json_files.write(folder / MODEL_CARD, card | entries, with_checksum=True)
    warm_up.write(folder, graph.signature_def, vocabularies)


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
    card = json_files.read(path, {"files": {str: str}})
    expected, actual = card["files"], checksums(folder)
    for name in expected:
        if actual.get(name) != expected[name]:
            raise errors.UserError(
                f"{files.inside(folder, name)} is damaged: sha256 is "
                f"{actual.get(name, 'no file')} instead of {expected[name]}. "
                "Export the model again."
            )
    return card


def load(folder: pathlib.Path) -> Any:
    """Load a version into memory by TensorFlow, which raises many types."""
    with files.without_wildcards(folder) as path:
        return tf.saved_model.load(str(path))


def read_graph(folder: pathlib.Path) -> meta_graph_pb2.MetaGraphDef:
    """Read the graph in a version's folder."""
    saved = saved_model_pb2.SavedModel.FromString(
        (folder / version_folders.GRAPH).read_bytes()
    )
    (graph,) = saved.meta_graphs
    return graph


def num_weights(folder: pathlib.Path) -> int:
    """Return the number of elements of all variables of a version.

    Raises:
        UserError: their names and shapes cannot be read.
    """
    reader = checkpoint_reader.CheckpointReader(
        folder / "variables" / "variables"
    )
    return sum(map(math.prod, reader.shapes.values()))


def operations(graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """List the names of all operations, those in functions included."""
    return sorted({node.op for node in runtimes.nodes(graph)})
