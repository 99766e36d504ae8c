"""Exports a trained model: for TF Serving, or for CTranslate2.

python -m t2t_repro.exporter --output_dir=… --export_dir=…
"""

from absl import flags

from t2t_repro import common_flags, exporting, runs
from t2t_repro.serving import served_model

common_flags.define_decoding_flags()
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "Of a SavedModel: gets a folder per version; OUTPUT_DIR/export if left "
    "out. For CTranslate2: becomes the model; OUTPUT_DIR/ctranslate2.",
)
_FORMAT = flags.DEFINE_enum(
    "format", "saved_model", list(exporting.FORMATS), "What to write."
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
    folder = exporting.write(
        run,
        _EXPORT_DIR.value,
        _FORMAT.value,
        common_flags.checkpoint_path(),
        common_flags.decode_hparams(run.problem),
        _WEIGHTS_DTYPE.value,
    )
    print(f"Exported {folder}.")


if __name__ == "__main__":
    common_flags.run(main)
