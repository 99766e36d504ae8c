"""Export a model for TensorFlow Serving or CTranslate2.

t2t exporter --output_dir=… --export_dir=…
"""

from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import at_least, flag, one_of
from t2t_repro.io import storage

common_flags.define_decoding_flags()


@common_flags.options
class Options:
    """Options of exporter, each a flag of the same name."""

    export_dir: str | None = flag(
        None,
        "Folder of the SavedModel's versions, by default "
        "OUTPUT_DIR/export; for CTranslate2 the folder of the model, by "
        "default OUTPUT_DIR/ctranslate2.",
    )
    format: str = flag(
        "saved_model", "Format to write.", one_of("saved_model", "ctranslate2")
    )
    weights_dtype: str = flag(
        "float32",
        "Type in which a SavedModel stores weights; 16 bits halve its "
        "size. It computes in float32.",
        one_of("float32", "float16", "bfloat16"),
    )
    max_beam_size: int = flag(
        0,
        "Most beams that a request may name. Above 0, a SavedModel has the "
        "signatures translate and subwords, whose requests may have prefixes "
        "and settings of the search.",
        at_least(0),
    )
    target_language: str = flag(
        "",
        "Language into which a SavedModel of several is to translate all "
        "lines, without tags.",
    )
    source_language: str = flag("", common_flags.SOURCE_LANGUAGE)


def main(model: common_flags.TrainedModel) -> None:
    from t2t_repro.serving import exporting

    options = common_flags.field_values(Options)
    model.print_checkpoints()
    folder = exporting.write(
        model.run.toward(common_flags.direction(options)),
        options.export_dir,
        options.format,
        model.checkpoint_paths,
        model.decode_hparams,
        options.weights_dtype,
        options.max_beam_size,
    )
    print(f"Exported {storage.url_of(folder) or folder}.")
    if options.format == "saved_model":
        common_flags.print_next(
            "query",
            f"--export_dir={options.export_dir or folder.parent}",
            of_run=False,
        )


if __name__ == "__main__":
    command_line.run(main, common_flags.RUN, common_flags.trained_model)
