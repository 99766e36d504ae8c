"""Exports a trained model: for TF Serving, or for CTranslate2.

python -m t2t_repro.exporter --output_dir=… --export_dir=…
"""

import dataclasses

from absl import flags

from t2t_repro import common_flags, errors, runs
from t2t_repro.serving import export, served_model, to_ctranslate2

# What writes a format, and the folder in the run that it goes to.
FORMATS = {
    "saved_model": (export.export, "export"),
    "ctranslate2": (to_ctranslate2.export, "ctranslate2"),
}

common_flags.define_decoding_flags()
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "Of a SavedModel: gets a folder per version; OUTPUT_DIR/export if left "
    "out. For CTranslate2: becomes the model; OUTPUT_DIR/ctranslate2.",
)
_FORMAT = flags.DEFINE_enum(
    "format", "saved_model", list(FORMATS), "What to write."
)
_WEIGHTS_DTYPE = flags.DEFINE_enum(
    "weights_dtype",
    "float32",
    served_model.WEIGHTS_DTYPES,
    "What a SavedModel stores weights in; 16 bits are half the size. It "
    "computes in float32.",
)
flags.adopt_module_key_flags(common_flags)


def main():
    run = runs.open_run(
        common_flags.output_dir(), common_flags.expected_settings()
    )
    if run.problem.normalizes:
        raise errors.UserError(
            f"{run.problem.registered_name} changes its text before the model "
            "sees it, which an exported graph cannot do: it would translate "
            "raw text badly. Translate with decoder, or train on the text as "
            "it is."
        )
    models, paths = runs.load_models(run, common_flags.checkpoint_path())
    hparams = common_flags.decode_hparams(run.problem)
    card = run.settings | {
        "run": run.output_dir.name,
        "checkpoints": runs.names(paths),
        "decode_hparams": dataclasses.asdict(hparams),
        "scores": runs.score_sheets(run.output_dir, paths),
        "exported_with": runs.versions(),
    }
    del card["data_dir"], card["command_lines"]  # paths of this machine
    write, name = FORMATS[_FORMAT.value]
    folder = write(
        models,
        run.subwords,
        hparams,
        _EXPORT_DIR.value or run.output_dir / name,
        card,
        _WEIGHTS_DTYPE.value,
    )
    print(f"Exported {folder}.")


if __name__ == "__main__":
    common_flags.run(main)
