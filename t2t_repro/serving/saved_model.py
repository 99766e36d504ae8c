"""A SavedModel that TF Serving loads as it is: versions in a folder.

The model card has the sha256 of graph and weights, which `serve` and `query`
compare as they load. TF Serving does not read it.
"""

import pathlib
import re

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from t2t_repro import errors, files, json_files
from t2t_repro.serving import served_model, warm_up

MODEL_CARD = pathlib.Path("assets.extra") / "model_card.json"
_VERSION = re.compile("0|[1-9][0-9]{0,17}")  # name of its folder


def export(
    models,
    vocabularies,
    decode_hparams,
    export_dir,
    card,
    weights_dtype="float32",
) -> pathlib.Path:
    """Writes the next version of a SavedModel.

    TF Serving polls the folder, so a version is written under a name that is
    no number, and renamed.

    Args:
        models, vocabularies, decode_hparams: of translate.Translator.
        export_dir: gets a folder 1, or one more than the highest there.
        card: what the model card is to say, beside the operations.
        weights_dtype: that they are stored in, one of
            served_model.WEIGHTS_DTYPES.

    Returns:
        The version's folder.

    Raises:
        UserError: a weight is beyond `weights_dtype`, or a vocabulary cannot
            be in a graph.
    """
    served = served_model.ServedModel(
        models, vocabularies, decode_hparams, weights_dtype
    )
    export_dir = files.path(export_dir)
    export_dir.mkdir(parents=True, exist_ok=True)
    folder = export_dir / str(max(versions(export_dir), default=0) + 1)
    with files.making_folder(folder) as temporary:
        tf.saved_model.save(
            served, str(temporary), signatures=served.signatures()
        )
        graph = read_graph(temporary)
        made = {
            "weights_dtype": weights_dtype,
            "operations": operations(graph),
            "files": _checksums(temporary),
        }
        (temporary / MODEL_CARD).parent.mkdir()
        json_files.write(temporary / MODEL_CARD, card | made, sealed=True)
        warm_up.write(temporary, graph.signature_def, vocabularies)
    return folder


def _checksums(folder):
    """{path: sha256} of a version's files; not of those in assets.extra.

    The card has a seal, and the records of warm-up requests have checksums.
    """
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {
        name: files.sha256(path)
        for name, path in sorted(
            (path.relative_to(folder).as_posix(), path) for path in paths
        )
        if not name.startswith(MODEL_CARD.parts[0])
    }


def read_verified_card(folder: pathlib.Path) -> dict:
    """The model card of a version, whose files are as it says.

    {} where there is none: the SavedModel is another program's.

    Raises:
        UserError: names the file that is damaged.
    """
    path = folder / MODEL_CARD
    if not path.exists():
        return {}
    card = json_files.read(path)
    wanted, found = card.get("files", {}), _checksums(folder)
    for name in wanted:
        if found.get(name) != wanted[name]:
            raise errors.UserError(
                f"{folder / name} is damaged: sha256 is "
                f"{found.get(name, 'no file')} instead of {wanted[name]}. "
                "Export the model again."
            )
    return card


def read_graph(folder: pathlib.Path):
    """The MetaGraphDef of a version's folder."""
    saved = saved_model_pb2.SavedModel.FromString(
        (folder / "saved_model.pb").read_bytes()
    )
    (graph,) = saved.meta_graphs
    return graph


def operations(graph) -> list[str]:
    """Names of all operations of a MetaGraphDef, its functions' among them."""
    functions = graph.graph_def.library.function
    nodes = [graph.graph_def.node, *(one.node_def for one in functions)]
    return sorted({node.op for some in nodes for node in some})


def newest(export_dir: pathlib.Path) -> int:
    """The newest version in an export folder.

    Raises:
        UserError: there is none.
    """
    found = versions(export_dir) if export_dir.is_dir() else []
    if not found:
        raise errors.UserError(
            f"There is no exported model in {export_dir}. Make one with the "
            "exporter, or name the right --export_dir."
        )
    return found[-1]


def versions(export_dir: pathlib.Path) -> list[int]:
    """Versions in an export folder, in rising order."""
    return sorted(
        int(path.name)
        for path in export_dir.iterdir()
        if _VERSION.fullmatch(path.name)
    )
