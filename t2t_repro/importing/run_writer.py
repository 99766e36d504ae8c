"""Writer of an imported model as a run, which all commands read."""

import dataclasses
import pathlib
import re
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro import errors, hparam, registry
from t2t_repro.decoding import score
from t2t_repro.importing import arrays, weights
from t2t_repro.importing.imported import Imported
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.problem import Problem, build_problem
from t2t_repro.runs import checkpoint_files, checkpoints, run_json
from t2t_repro.text import vocabulary_pair

HPARAMS_SET = "fine_tuning"
_SEED = 1
_TOLERANCE = 0.01  # of log-probabilities; a wrong setting moves them by more
_MAX_HEADER = 20_000  # characters
_LICENSE = re.compile(r"^license:[ \t]*['\"]?([\w.-]{1,80})['\"]?[ \t]*$", re.M)


def write(
    imported: Imported,
    system: str,
    output_dir: pathlib.Path,
    languages: str,
    hparams: str = "",
    origin: dict[str, Any] | None = None,
) -> pathlib.Path:
    """Write run.json, the vocabularies and a checkpoint of step 0.

    The model is built and compared with the weights before anything is written.

    Args:
        imported: result of a reader.
        system: name of the system, for run.json.
        output_dir: folder of the run, absent or empty.
        languages: "en-de".
        hparams: "key=value,key=value", hparams that differ.
        origin: name and revision of a model that was downloaded.

    Returns:
        The path of the checkpoint.

    Raises:
        UserError: the folder is not empty, or the weights do not fit.
    """
    require_empty(output_dir)
    settings = build_hparams(imported, hparams)
    variables = build_variables(imported, settings)
    if not hparams:  # such as a positional encoding of the user's choice
        compare(imported, settings, variables)
    problem = _problem(imported, output_dir, languages)
    pair = imported.vocabularies.pair
    stored = run_json.settings(
        problem, HPARAMS_SET, settings, _SEED, None, pair, 0
    )
    stored["imported_from"] = origin_of(imported, system) | (origin or {})
    path = output_dir / checkpoint_files.CHECKPOINTS / "ckpt-0"
    with files.locked(output_dir, beside=True):
        require_empty(output_dir)  # of another importer, since then
        try:
            checkpoints.write_checkpoint(variables, path, pair.sha256)
            run_json.start(output_dir, stored, pair, "imported, not trained")
        except BaseException:  # as of a full disk: the folder is empty again
            shutil.rmtree(output_dir, ignore_errors=True)
            raise
    return path


def require_empty(output_dir: pathlib.Path) -> None:
    """Refuse a folder that has files already."""
    if output_dir.exists() and any(output_dir.iterdir()):
        raise errors.UserError(
            f"{output_dir} is not empty. Name another --output_dir."
        )


def origin_of(imported: Imported, system: str) -> dict[str, Any]:
    """Return where a model is from, without paths of this machine."""
    folder = imported.files[0].parent
    return {
        "system": system,
        "name": folder.resolve().name,
        "license": _license(folder / "README.md"),
        "sha256": {f.name: files.sha256(f) for f in imported.files},
    }


def _license(card: pathlib.Path) -> str:
    """Return the licence in the header of a model card of the Hub, or "".

    "unknown" is none, which exports of ours have.
    """
    if not card.is_file():
        return ""
    with card.open(encoding="utf-8", errors="replace") as file:
        header = re.match(r"---\n.*?\n---", file.read(_MAX_HEADER), re.DOTALL)
    found = header and _LICENSE.search(header[0])
    return found[1] if found and found[1] != "unknown" else ""


def build_hparams(imported: Imported, changes: str = "") -> hparam.HParams:
    """Return the settings of an imported model, with "key=value" changes.

    Raises:
        UserError: a value is wrong.
    """
    base = registry.build_hparams(HPARAMS_SET)
    return dataclasses.replace(base, **imported.hparams).override(changes)


def build_variables(
    imported: Imported, hparams: hparam.HParams
) -> dict[str, tf.Variable]:
    """Return the weights by their names in checkpoints.

    Raises:
        UserError: they do not fit the model.
    """
    model = building.build_abstract(hparams, **imported.vocabularies.pair.sizes)
    expected = {
        path: tuple(weight.shape)
        for path, weight in building.by_path(model.weights).items()
    }
    found = weights.by_path(imported.weights, hparams)
    shapes = {path: array.shape for path, array in found.items()}
    if differences := checkpoints.differences(shapes, expected):
        raise errors.UserError(
            "The weights do not fit the model that the settings describe: "
            f"{differences}. Compare the configuration with the weights' file."
        )
    return {
        f"weights/{path}": arrays.variable(found[path]) for path in expected
    }


def compare(
    imported: Imported,
    hparams: hparam.HParams,
    variables: Mapping[str, tf.Variable],
) -> None:
    """Compare a forward pass with the other system's, if that is installed.

    Raises:
        UserError: their log-probabilities differ.
    """
    reference = imported.reference
    if reference is None:
        return
    try:
        theirs = np.array(reference.log_probs())
    except Exception as error:  # an old file, or any other of its own
        print(f"Not compared with {reference.system}: {error}", file=sys.stderr)
        return
    source, target = imported.vocabularies.pair
    model = building.build(hparams, target.size, source_vocab_size=source.size)
    for path, weight in building.by_path(model.weights).items():
        weight.assign(variables[f"weights/{path}"])
    ours = score.subword_log_probs(
        [model],
        tf.constant([reference.inputs], tf.int32),
        tf.constant([reference.targets], tf.int32),
    ).numpy()[0]
    if ours.shape != theirs.shape or not np.allclose(
        ours, theirs, rtol=0, atol=_TOLERANCE
    ):
        raise errors.UserError(
            "This model cannot be imported: of the same outputs, it has the "
            f"log-probabilities {ours.round(2).tolist()} here and "
            f"{theirs.round(2).tolist()} in {reference.system}. A setting may "
            "have another meaning there: please report this with the files."
        )


def _problem(
    imported: Imported, output_dir: pathlib.Path, languages: str
) -> Problem:
    """Return a problem with the vocabularies of the run."""
    vocabularies, folder = imported.vocabularies, output_dir.absolute()
    pair = vocabularies.pair
    if ":" in str(folder) and not pair.is_shared:
        raise errors.UserError(
            f"{folder} has a colon, which separates the paths of two "
            "vocabularies. Name another --output_dir."
        )
    names = vocabulary_pair.paths(folder, not pair.is_shared)
    arguments = {
        "name": re.sub(r"[^\w.]", "_", folder.name),
        "vocab_size": pair.target.size,
        "vocabulary": ":".join(map(str, names)),
        "vocabulary_type": vocabularies.kind,
        "separate_vocabularies": not pair.is_shared,
        "decode_hparams": ":".join(
            f"{k}={v}" for k, v in imported.search.items()
        ),
    }
    if not vocabularies.codes:
        arguments["languages"] = languages
        return build_problem("parallel_text", arguments)
    source, _, target = languages.partition("-")
    arguments |= {
        "languages": ":".join(vocabularies.codes),
        "source": source,
        "target": target,
        "reads_source": pair.source.leads_outputs,
    }
    return build_problem("parallel_text_multilingual", arguments)
