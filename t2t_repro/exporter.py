"""Export a model for TensorFlow Serving or CTranslate2.

t2t exporter --output_dir=… --export_dir=…
"""

from absl import flags

from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import storage

common_flags.define_decoding_flags()
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "Folder of the SavedModel's versions, by default OUTPUT_DIR/export; for "
    "CTranslate2 the folder of the model, by default OUTPUT_DIR/ctranslate2.",
)
_FORMAT = flags.DEFINE_enum(
    "format", "saved_model", ["saved_model", "ctranslate2"], "Format to write."
)
_WEIGHTS_DTYPE = flags.DEFINE_enum(
    "weights_dtype",
    "float32",
    ["float32", "float16", "bfloat16"],
    "Type in which a SavedModel stores weights; 16 bits halve its size. It "
    "computes in float32.",
)


def main(model: common_flags.TrainedModel) -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.serving import exporting

    model.print_checkpoints()
    folder = exporting.write(
        model.run,
        _EXPORT_DIR.value,
        _FORMAT.value,
        model.checkpoint_paths,
        model.decode_hparams,
        _WEIGHTS_DTYPE.value,
    )
    print(f"Exported {storage.url_of(folder) or folder}.")


if __name__ == "__main__":
    command_line.run(main, common_flags.RUN, common_flags.trained_model)
