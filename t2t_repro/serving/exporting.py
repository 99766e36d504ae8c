"""Exports of a run to TensorFlow Serving or CTranslate2."""

import dataclasses
import pathlib

from t2t_repro import errors
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files, storage
from t2t_repro.runs import run_json, stored_run
from t2t_repro.runs.run import Run, load_models, scores_of
from t2t_repro.serving import model_card, saved_model, to_ctranslate2

# Format -> the function that writes it, and its default folder in the run.
FORMATS = {
    "saved_model": (saved_model.export, "export"),
    "ctranslate2": (to_ctranslate2.export, "ctranslate2"),
}


def write(
    run: Run,
    export_dir: str | pathlib.Path | None = None,
    format: str = "saved_model",
    checkpoint_path: stored_run.Checkpoints = None,
    decode_hparams: DecodeHParams | None = None,
    weights_dtype: str = "float32",
) -> pathlib.Path:
    """Export a run.

    Args:
        run: result of runs.open_run().
        export_dir: the folder of the SavedModel's versions, or of the
            CTranslate2 model; None: a folder in the run. At a URL, the model
            is stored when it is complete.
        format: one of FORMATS.
        checkpoint_path: argument of runs.load_models().
        decode_hparams: settings of the search; None: those of the problem.
        weights_dtype: one of serving.served_model.WEIGHTS_DTYPES.

    Returns:
        The folder of the model.

    Raises:
        UserError: the problem, the model or the vocabulary cannot be exported,
            or the format needs a package that is not installed.
    """
    if format == "ctranslate2":
        to_ctranslate2.import_specs()  # before the models are loaded
    if run.problem.normalizes:
        raise errors.UserError(
            f"{run.problem.registered_name} changes its text before the model "
            "reads it, which an exported graph cannot do: it would translate "
            "raw text badly. Translate with decoder, or train on the text as "
            "it is."
        )
    models, paths = load_models(run, checkpoint_path)
    hparams = decode_hparams or run.problem.search
    card = _card(run, paths, hparams)
    write_format, name = FORMATS[format]
    folder = write_format(
        models,
        run.vocabularies,
        hparams,
        storage.local_path(export_dir or run.output_dir / name),
        card,
        weights_dtype,
    )
    # No program reads it, so that it may follow the published model.
    text = model_card.markdown(card, format)
    files.write_text(folder / model_card.FILE, text)
    storage.upload(folder)
    return folder


def _card(run, paths, hparams):
    """Return the model card: what an export is, and how it was made."""
    card = run.settings | {
        "run": run.output_dir.name,
        "checkpoints": stored_run.checkpoint_names(paths),
        "decode_hparams": dataclasses.asdict(hparams),
        "scores": scores_of(run.output_dir, paths, hparams),
        "exported_with": run_json.versions(),
        "data": model_card.data(run.problem),
    }
    for name in ("data_dir", "usr_dir", "command_lines"):
        card.pop(name, None)  # paths of this machine
    card["problem_arguments"] = card["problem_arguments"] | {"vocabulary": ""}
    return card
